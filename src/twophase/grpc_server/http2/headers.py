"""The meaning of a block of headers (RFC 9113, 8.2).

A block is decoded once, remembered by its bytes, and checked as HTTP/2 demands. Promise: what is remembered is what
decoding would give. A block is remembered for every connection if decoding it neither read nor changed the peer's
table. The server asks the peer to keep no table (SETTINGS_HEADER_TABLE_SIZE 0); as soon as the peer has confirmed that
in a block (RFC 7541, 4.2), no block reads or changes one. From then on all its blocks are remembered, and of a new one
(each has its own `traceparent`) only the new fields are decoded. A peer that keeps its table all the same is
understood, only more slowly.

A header that varies from call to call and means nothing to the server, such as the id of a request, may be named. Then
blocks of peers without a table that differ only in its value have one meaning, which is read once, and they are not
decoded: with the same bytes up to the value, its length among them, a decoder is at the value's begin in either block.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from hpack import Decoder
from hpack.exceptions import HPACKDecodingError, HPACKError
from hpack.hpack import decode_integer
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from twophase.grpc_server.http2.faults import ConnectionFault
from twophase.grpc_server.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM

Fields = list[tuple[bytes, bytes]]
"""Names and values, in their order."""
H = TypeVar("H")
K = TypeVar("K", bytes, tuple[bytes, bytes])

BLOCKS_REMEMBERED_MAX: Final = 1024
VARYING_BYTES_MAX: Final = 64
"""The longest value of a header that varies, as it is encoded.

A block with a longer one is read as it is."""
BLOCK_BYTES_REMEMBERED_MAX: Final = 2048
FIELDS_REMEMBERED_MAX: Final = 4096
FIELD_BYTES_REMEMBERED_MAX: Final = 512
FIELDS_MAX: Final = 128
"""Bound on the fields of a block: 1 KB may unfold to a thousand of them."""
FIELDS_USUAL: Final = 32
FIELD_BYTES_BESIDE: Final = 32
"""Bytes that each field counts beside its name and value (RFC 9113, 6.5.2)."""
_FIELD_BYTES: Final = 128
"""Bytes of memory that each field takes beside its name and value."""
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_NEEDED: Final = frozenset({b":method", b":scheme", b":path"})
_OF_HTTP_1: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_TABLE_BYTES_AT_FIRST: Final = 4096
_NUMBER_BITS_MAX: Final = 35
_NEW_NAME: Final = frozenset({0x00, 0x10, 0x40})
"""First byte of a field whose name stands in it (RFC 7541, 6.2)."""
_HUFFMAN: Final = 0x80
_NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-z]+")
_NOT_IN_A_VALUE: Final = re.compile(rb"[\0\r\n]")
_MORE_LINES: Final = "a header value of more than one line"


class Malformed(Exception):
    """No proper request: its stream cannot continue."""


class Known(Generic[H]):
    """The meaning of blocks, shared by the connections of a port.

    Arguments:
        read: makes of a request's fields what its stream needs; raises Malformed.
        list_bytes_max: the most that a block may unfold to, names, values and 32 bytes for each.
        fields_max: the most fields that a peer may have decoded in a second.
        varying: the name of the header whose value `read` ignores; empty for none.
    """

    def __init__(self, read: Callable[[Fields], H], list_bytes_max: int, fields_max: int, varying: bytes = b"") -> None:
        self.read = read
        self.varying = varying
        self.list_bytes_max = list_bytes_max
        self.fields_max = fields_max
        self.always: dict[bytes, H] = {}
        """Blocks that mean the same under every table of the peer."""
        self.without_table: dict[bytes, H] = {}
        """Blocks that mean this where the peer keeps no table."""
        self.fields: dict[bytes, tuple[bytes, bytes]] = {}
        """Single fields, likewise."""
        self.names = _literals(varying) if varying else ()
        """The header that varies, as it may be encoded."""
        self.around: dict[tuple[bytes, bytes], H] = {}
        """Blocks of peers without a table, by the bytes around the value that varies."""

    def forget(self) -> None:
        """Forget the meanings: `read` would make others now."""
        self.always.clear()
        self.without_table.clear()
        self.around.clear()


class Blocks(Generic[H]):
    """The header blocks of one peer, in the order of their arrival."""

    def __init__(self, known: Known[H]) -> None:
        self.known = known.always
        """Meaning of the blocks that need no decoding; look here before `read`."""
        self.fields = 0
        """All fields of blocks that were not known as a whole."""
        self.decoded = 0
        """Fields of this second that were decoded, or were more than a block usually has."""
        self.size = 0
        """About the memory of the last request's headers; 0 where others share them."""
        self._shared = known
        self._decoder = Decoder(known.list_bytes_max)
        self._decoder.header_table = self._table = _NotingTable()
        self._table_bytes_max = _TABLE_BYTES_AT_FIRST

    def settled(self) -> None:
        """Note that the peer has acknowledged the settings: it keeps no table from now on."""
        self._table_bytes_max = 0

    def read(self, block: bytes) -> H:
        """Return the meaning of a request's block.

        Raises:
            Malformed: it is no request. ConnectionFault: it cannot be decoded.
        """
        shared = self._shared
        self.size = 0
        cut = None
        if shared.names and self.known is shared.without_table and len(block) <= BLOCK_BYTES_REMEMBERED_MAX:
            cut = _cut(block, shared.names)
            if cut is not None:
                before, value, behind = cut
                head = shared.around.get((before, behind))
                if head is not None:
                    _require_value(value, before[-1])
                    return head
        head = shared.read(_checked(self.decode(block)))
        if cut is not None and _is_at_a_field(block, cut[0], shared.names):
            _remember(shared.around, (cut[0], cut[2]), head)
        elif len(block) <= BLOCK_BYTES_REMEMBERED_MAX and not self._table.touched:
            _remember(self.known, block, head)
        return head

    def decode(self, block: bytes) -> Fields:
        """Return the fields of a block of any kind; raises ConnectionFault."""
        self._table.touched = False
        before = self.decoded
        try:
            fields = (
                self._decode_by_field(block) if self.known is self._shared.without_table else self._decode_all(block)
            )
        except (HPACKError, IndexError) as error:
            raise ConnectionFault(COMPRESSION_ERROR, "a block of headers cannot be decoded") from error
        self.fields += len(fields)
        self.size = sum(len(name) + len(value) + _FIELD_BYTES for name, value in fields)
        self.decoded = max(self.decoded, before + len(fields) - FIELDS_USUAL)
        if self.decoded > self._shared.fields_max:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many new headers")
        return fields

    def _decode_all(self, block: bytes) -> Fields:
        if len(block) > FIELDS_MAX:
            split(block)  # counts the fields
        self._bound_table(block)
        fields = self._decode(block)
        if self._table_bytes_max == self._table.maxsize == 0:
            self.known = self._shared.without_table
        return fields

    def _decode(self, block: bytes) -> Fields:
        fields = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        self.decoded += len(fields)
        return fields

    def _decode_by_field(self, block: bytes) -> Fields:
        """Return the fields of a block of a peer that keeps no table.

        Each field means the same in every block. A block with a field that was never seen before may have one that is
        never seen again, so it is not remembered.
        """
        seen = True
        known, fields, left = self._shared.fields, Fields(), self._shared.list_bytes_max
        for one in split(block):
            pair = known.get(one)
            if pair is None:
                found = self._decode(one)
                if not found:  # a change of the table's size, to 0
                    if fields:
                        raise HPACKDecodingError("a change of the table after a field")
                    self._bound_table(one)
                    continue
                pair, seen = found[0], False
                if len(one) <= FIELD_BYTES_REMEMBERED_MAX and pair[0] != self._shared.varying:
                    if len(known) >= FIELDS_REMEMBERED_MAX:
                        known.clear()
                    known[one] = pair
            left -= len(pair[0]) + len(pair[1]) + FIELD_BYTES_BESIDE
            if left < 0:
                raise HPACKDecodingError("more than a block may unfold to")
            fields.append(pair)
        self._table.touched = not seen
        return fields

    def _bound_table(self, block: bytes) -> None:
        """Refuse a table that is larger than allowed.

        A peer whose block does not mention a size is accepted.
        """
        at = 0
        while at < len(block) and block[at] & 0xE0 == 0x20:
            size, used = decode_integer(block[at:], 5)
            if size > self._table_bytes_max:
                raise ConnectionFault(COMPRESSION_ERROR, "a header table larger than allowed")
            self._table.touched = True
            at += used


def _remember(known: dict[K, H], key: K, head: H) -> None:
    if len(known) >= BLOCKS_REMEMBERED_MAX:
        known.clear()
    known[key] = head


def _literals(name: bytes) -> tuple[bytes, ...]:
    """Return the two forms of a name in a field (RFC 7541, 5.2).

    >>> _literals(b"id")
    (b'\\x02id', b'\\x824\\x9f')
    """
    packed = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(name)
    return bytes([len(name)]) + name, bytes([_HUFFMAN | len(packed)]) + packed


def _cut(block: bytes, names: tuple[bytes, ...]) -> tuple[bytes, bytes, bytes] | None:
    """Return the bytes before, of and behind what looks like the value of a name.

    None where nothing does, or where it is too long. It may be a part of another value: see `_is_at_a_field`.
    """
    for name in names:
        start = block.find(name) + len(name) + 1
        if len(name) < start <= len(block):
            end = start + (block[start - 1] & ~_HUFFMAN)
            if end <= min(len(block), start + VARYING_BYTES_MAX):
                return block[:start], block[start:end], block[end:]
    return None


def _is_at_a_field(block: bytes, before: bytes, names: tuple[bytes, ...]) -> bool:
    """Return True when `before` ends with a name and the length of its value.

    `names`: how that name may be encoded.
    """
    at = 0
    for one in split(block):
        if at + 1 < len(before) <= at + len(one):
            return one[0] in _NEW_NAME and block[at + 1 : len(before) - 1] in names
        at += len(one)
    return False


def _require_value(value: bytes, length: int) -> None:
    """Refuse a value that no header has; raises as `Blocks.read`.

    `length`: the byte before it.
    """
    if length & _HUFFMAN:
        try:
            value = decode_huffman(value)
        except HPACKError as error:
            raise ConnectionFault(COMPRESSION_ERROR, "a block of headers cannot be decoded") from error
    if _NOT_IN_A_VALUE.search(value):
        raise Malformed(_MORE_LINES)


def split(block: bytes) -> list[bytes]:
    """Split a block into fields and changes of the table's size (RFC 7541, 6).

    Each is returned as its bytes.

    Raises:
        HPACKDecodingError, IndexError: the block ends within one. ConnectionFault: there are too many.
    """
    at, end, found = 0, len(block), list[bytes]()
    while at < end:
        start, first = at, block[at]
        at += 1
        if first & 0x80:
            if first == 0xFF:
                _, at = _integer(block, start, 0x7F)
        elif first & 0xE0 == 0x20:
            if first == 0x3F:
                _, at = _integer(block, start, 0x1F)
        else:
            mask = 0x3F if first & 0x40 else 0x0F
            if first & mask == mask:
                _, at = _integer(block, start, mask)
            for _ in range(1 if first & mask else 2):
                size = block[at] & 0x7F
                at += 1
                if size == 0x7F:
                    size, at = _integer(block, at - 1, 0x7F)
                at += size
            if at > end:
                raise HPACKDecodingError("a field is cut off")
        if len(found) == FIELDS_MAX:
            raise ConnectionFault(COMPRESSION_ERROR, f"more than {FIELDS_MAX} headers in a block")
        found.append(block[start:at])
    return found


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return a number of RFC 7541, 5.1, and the position of its end."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    for shift in range(0, _NUMBER_BITS_MAX, 7):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise HPACKDecodingError("a number that is too long")


class _NotingTable(HeaderTable):
    """Notes whether a block has read or changed what is kept from block to block."""

    def __init__(self) -> None:
        super().__init__()
        self.touched = False

    def get_by_index(self, index: int) -> tuple[bytes, bytes]:
        if index > HeaderTable.STATIC_TABLE_LENGTH:
            self.touched = True
        return super().get_by_index(index)

    def add(self, name: bytes, value: bytes) -> None:
        self.touched = True
        super().add(name, value)


def _checked(fields: Fields) -> Fields:
    """Return the fields of a request; raises Malformed (RFC 9113, 8.2 and 8.3)."""
    once: set[bytes] = set()
    regular = False
    for name, value in fields:
        if name[:1] == b":":
            if regular or name in once or name not in _PSEUDO:
                raise Malformed("a pseudo-header that is twice there, not one of a request's, or in a wrong place")
            if (name == b":path" and not value) or _NOT_IN_A_VALUE.search(value):
                raise Malformed("an empty path, or a pseudo-header of more than one line")
            once.add(name)
            continue
        regular = True
        require_regular(name, value)
        if name == b"content-length":
            if name in once:
                raise Malformed("two lengths")
            once.add(name)
    if not once >= _NEEDED:
        raise Malformed("method, scheme and path are needed")
    return fields


def require_regular(name: bytes, value: bytes) -> None:
    """Refuse a pair that is no header of HTTP/2; raises Malformed."""
    if not _NAME.fullmatch(name):
        raise Malformed("a header name that is empty, has capitals or other characters that no name has")
    if name in _OF_HTTP_1 or (name == b"te" and value != b"trailers"):
        raise Malformed("a header that belongs to a connection of HTTP/1")
    if _NOT_IN_A_VALUE.search(value):
        raise Malformed(_MORE_LINES)
