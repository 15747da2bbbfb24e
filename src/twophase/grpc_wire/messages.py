"""The messages of `dtmgimp.proto` as plain values: bytes to a struct, and back.

The descriptors come from a file that `scripts/proto` writes, and live in a pool of their own: generated Python would
tie every installation to the protobuf release it was generated for, and the common pool would clash with a service that
has generated code from dtm's file in the same process (ADR 0010). Nothing outside this module sees protobuf.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pb2, empty_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from twophase.core.options import OptionFields

SERVICE: Final = "dtmgimp.Dtm"


class Request(OptionFields, frozen=True, omit_defaults=True):
    """`DtmRequest` with its options beside it.

    Times without a unit in their name are in seconds.
    """

    gid: str = ""
    trans_type: str = ""
    steps: str = ""
    """JSON text: a list of `{"action": ADDRESS}`."""
    payloads: list[bytes] = msgspec.field(default_factory=list)
    query_prepared: str = ""


class Topic(msgspec.Struct, frozen=True):
    """`DtmTopicRequest`."""

    topic: str
    url: str
    remark: str


class BrokenMessage(Exception):
    """An error: the bytes are no message of that type."""


def _pascal(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


_IN_REQUEST: Final = {
    "gid": "Gid",
    "trans_type": "TransType",
    "steps": "Steps",
    "payloads": "BinPayloads",
    "query_prepared": "QueryPrepared",
    "custom_data": "CustomedData",
}
_IN_OPTIONS: Final = {name: _pascal(name) for name in Request.__struct_fields__ if name not in _IN_REQUEST}
_OPTIONS: Final = "TransOptions"
_OPTIONS_TAG: Final = 3 << 3 | 2
_VARINT, _LENGTH = 0, 2
_FIXED: Final = {1: 8, 5: 4}
_NAMES: Final = tuple(name for name in _IN_OPTIONS if name != "branch_headers")
_values: Final = attrgetter(*(_IN_OPTIONS[name] for name in _NAMES))


@functools.cache
def pool() -> DescriptorPool:
    """Return the descriptors of dtm's interface, for reflection too."""
    own = DescriptorPool()
    own.AddSerializedFile(empty_pb2.DESCRIPTOR.serialized_pb)
    described = descriptor_pb2.FileDescriptorSet.FromString(
        files("twophase.grpc_wire").joinpath("dtmgimp.binpb").read_bytes()
    )
    for file in described.file:
        if file.package == SERVICE.partition(".")[0]:
            own.AddSerializedFile(file.SerializeToString())
    return own


@functools.cache
def _class(name: str) -> Any:
    return GetMessageClass(pool().FindMessageTypeByName(f"dtmgimp.{name}"))


def _parse(name: str, raw: bytes) -> Any:
    try:
        return _class(name).FromString(raw)
    except (DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BrokenMessage(f"the request is not a protobuf message dtmgimp.{name}") from error


def count_fields(raw: bytes, most: int) -> int:
    """Count the fields of a DtmRequest and of its options.

    Nothing is made of them. It stops beyond `most`, and where the bytes are no protobuf: there the parser stops, too.

    >>> count_fields(encode_request(Request(gid="g", payloads=[b"a", b"b"], branch_headers={"c": "d"})), 9)
    5
    """
    at, options_end, count, size = 0, 0, 0, len(raw)
    while at < size and count <= most:
        count += 1
        start = at
        tag, at = _number(raw, at)
        kind = tag & 7
        if kind == _LENGTH:
            length, at = _number(raw, at)
            if tag == _OPTIONS_TAG and start >= options_end:
                options_end = at + length
                continue
            at += length
        elif kind == _VARINT:
            _, at = _number(raw, at)
        else:
            at += _FIXED.get(kind, 0)
        if start < options_end < at:
            at = options_end  # those were no options, as within an unknown group
    return count


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position behind it; 0 where the bytes end within it."""
    number = shift = 0
    for byte in raw[at : at + 10]:
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
    return 0, len(raw)


def parse_request(raw: bytes) -> Request:
    """Return the request in `raw`.

    Raises:
        BrokenMessage: not a DtmRequest, or text in it that is not UTF-8.

    >>> parse_request(encode_request(Request(gid="g", trans_type="msg", delay_ms=7))).delay_ms
    7
    """
    request = _parse("DtmRequest", raw)
    head = request.Gid, request.TransType, request.Steps, list(request.BinPayloads), request.QueryPrepared
    if not request.HasField(_OPTIONS):
        return Request(*head, custom_data=request.CustomedData)
    options = request.TransOptions
    named = dict(zip(_NAMES, _values(options), strict=True))
    return Request(*head, custom_data=request.CustomedData, branch_headers=dict(options.BranchHeaders), **named)


def encode_request(request: Request) -> bytes:
    """Return the bytes of a DtmRequest; options that are all defaults are left out.

    Raises:
        ValueError: a number that its field cannot hold, or text that cannot be UTF-8.
    """
    fields = msgspec.to_builtins(request, builtin_types=(bytes,))
    options = {_IN_OPTIONS[name]: value for name, value in fields.items() if name in _IN_OPTIONS}
    message = {_IN_REQUEST[name]: value for name, value in fields.items() if name in _IN_REQUEST}
    encoded: bytes = _class("DtmRequest")(**message, **({_OPTIONS: options} if options else {})).SerializeToString()
    return encoded


def parse_topic(raw: bytes) -> Topic:
    """Return the topic request in `raw`; raises BrokenMessage."""
    request = _parse("DtmTopicRequest", raw)
    return Topic(request.Topic, request.URL, request.Remark)


def parse_gid(raw: bytes) -> str:
    """Return the gid in a DtmGidReply; raises BrokenMessage."""
    gid: str = _parse("DtmGidReply", raw).Gid
    return gid


def encode_gid(gid: str) -> bytes:
    """Return the bytes of a DtmGidReply.

    >>> parse_gid(encode_gid("order-17"))
    'order-17'
    """
    encoded: bytes = _class("DtmGidReply")(Gid=gid).SerializeToString()
    return encoded
