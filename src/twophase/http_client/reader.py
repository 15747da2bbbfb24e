"""Bytes in, one response out: the answer of a peer, judged without any I/O.

Promise: the response is the same however the bytes are split into reads, every part of it is bounded, and a response
whose end is doubtful is an error rather than a guess. The parser (llhttp) is kept strict: a length given twice or
beside chunks, a bare CR or LF, a folded line are all refused (RFC 9112 §6.3, §11.1).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import httptools

from twophase.http_client.byte_budget import NO_ROOM_FOR_ANSWERS, Account
from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse, split_headers

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_HTTP_1_0: Final = "1.0"
_VERSIONS: Final = frozenset({"1.1", _HTTP_1_0})

HEADS_MAX: Final = 64
_HEAD_BYTES_MAX: Final = 1024


class KnownHead(NamedTuple):
    """The meaning of a response's head.

    It gives the length of the body, and the connection can be used again.
    """

    status: int
    body_bytes: int
    lowered: bytes


class KnownHeads(dict[bytes, KnownHead]):
    """Heads that the parser has read before, by their bytes.

    There are at most 64, of at most 1 KiB.

    A host's responses nearly all have one of a few heads. The parser is asked once for each.

    >>> heads = KnownHeads()
    >>> heads.learn(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi", 200, 2)
    >>> heads[b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n"].body_bytes
    2
    """

    __slots__ = ()

    def learn(self, data: bytes, status: int, body_bytes: int) -> None:
        """Remember the head of a response that leaves its connection usable.

        It is not remembered when `data` has more than head and body.
        """
        end = data.find(b"\r\n\r\n") + 4
        if len(data) - end != body_bytes or end > _HEAD_BYTES_MAX:
            return  # chunks, or an interim response before it
        if len(self) >= HEADS_MAX:
            self.clear()  # a Date header makes a new head each second
        self[data[:end]] = KnownHead(status, body_bytes, data[:end].lower())


class _StopParsing(Exception):
    """Raised in a parser callback when the rest of the read is of no interest.

    `feed` knows the reason.
    """


class ResponseReader:
    """Reads one response at a time over a connection's life.

    Call `begin`, `feed` until it returns a response, `begin` again.

    >>> reader = ResponseReader(body_bytes_max=1024, header_bytes_max=1024)
    >>> reader.begin()
    >>> reader.feed(b"HTTP/1.1 200 OK\\r\\nContent-Len")
    >>> response = reader.feed(b"gth: 2\\r\\n\\r\\nhi")
    >>> response.status, response.body, reader.reusable
    (200, b'hi', True)
    """

    __slots__ = (
        "_account",
        "_body_bytes",
        "_body_bytes_max",
        "_body_bytes_max_of_any",
        "_body_bytes_seen",
        "_complete",
        "_failure",
        "_head",
        "_header_bytes_max",
        "_heads",
        "_is_head",
        "_overhead_bytes",
        "_parser",
        "_pieces",
        "_status",
        "reusable",
    )

    def __init__(
        self,
        *,
        body_bytes_max: int,
        header_bytes_max: int,
        heads: KnownHeads | None = None,
        account: Account | None = None,
    ) -> None:
        """A reader; `account` bounds the bodies of all readers together, by its budget."""
        self._account = account
        self._body_bytes_max_of_any = body_bytes_max
        self._header_bytes_max = header_bytes_max
        self._heads = KnownHeads() if heads is None else heads
        self._failure: HttpError | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self.begin()

    def begin(self, *, is_head: bool = False, body_bytes_max: int = 0) -> None:
        """Expect a response.

        Arguments:
            is_head: to a HEAD request, so without a body whatever its headers say.
            body_bytes_max: the longest body of this one, where it may be longer than any.
        """
        self._body_bytes_max = max(body_bytes_max, self._body_bytes_max_of_any)
        self.reusable = False
        """True when the connection can carry another request after the response."""
        self._is_head = is_head
        self._complete = False
        self._status = 0
        self._head: list[bytes] = []
        self._pieces: list[bytes] = []
        self._body_bytes = 0
        self._body_bytes_seen = 0
        self._overhead_bytes = 0

    @property
    def started(self) -> bool:
        """True when any byte of the response was read."""
        return bool(self._head)

    def feed(self, data: bytes) -> HttpResponse | None:
        """Take the bytes of a read; return the response that they complete, else None.

        Raises:
            HttpError: kind `PROTOCOL`, `TOO_LARGE` or `NO_ROOM`; the connection is of no further use.
        """
        parser = self._parser
        assert parser is not None, "fed after dispose"
        if not self._head:
            end = data.find(b"\r\n\r\n") + 4
            known = self._heads.get(data[:end])
            if known is not None and not self._is_head and len(data) - end == known.body_bytes <= self._body_bytes_max:
                self._head = [data]
                self._status = known.status
                self._complete = self.reusable = True
                return HttpResponse(known.status, self._head, data[end:], known.lowered)
        if not self._status:
            self._head.append(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.reusable = False
            if not self._complete:
                text = f"not a proper HTTP/1 response: {error}"[:200]
                raise self._failure or HttpError(HttpErrorKind.PROTOCOL, text) from None
        if self._complete:
            if self.reusable and self._head == [data]:
                self._heads.learn(data, self._status, self._body_bytes)
            pieces = self._pieces
            self._release()
            return HttpResponse(self._status, self._head, pieces[0] if len(pieces) == 1 else b"".join(pieces))
        self._bound_overhead(len(data))
        if self._account is not None and not self._account.keep(self._body_bytes):
            raise HttpError(HttpErrorKind.NO_ROOM, NO_ROOM_FOR_ANSWERS)
        return None

    def end_of_stream(self) -> HttpResponse | None:
        """Handle the peer's close.

        Return the response when closing is how its body ends (RFC 9112 §6.3, 8), else None.
        """
        if not self._status or self._failure is not None or self._framing():
            return None
        return HttpResponse(self._status, self._head, b"".join(self._pieces))

    def progress(self) -> str:
        """Return the progress of the response, in words."""
        if not self.started:
            return "without an answer"
        return f"after {self._body_bytes} bytes of the body" if self._status else "before the headers were complete"

    def dispose(self) -> None:
        """Release the parser.

        It holds methods of this object, a cycle only the garbage collector would free.
        """
        self._parser = None
        self._release()

    def _release(self) -> None:
        if self._account is not None:
            self._account.release()

    def _framing(self) -> list[tuple[bytes, bytes]]:
        return [(name, value) for name, value in split_headers(b"".join(self._head)) if name in _FRAMING]

    def _bound_overhead(self, read_bytes: int) -> None:
        """Bound what is not body.

        That is interim responses, headers, chunk sizes and extensions, trailers. The parser itself gathers an
        unfinished header, so this counts the bytes read since the body last grew. The bound can be passed by one read,
        never by more.
        """
        if self._body_bytes != self._body_bytes_seen:
            self._body_bytes_seen = self._body_bytes
            self._overhead_bytes = 0
            return
        self._overhead_bytes += read_bytes
        if self._overhead_bytes > self._header_bytes_max:
            raise HttpError(HttpErrorKind.TOO_LARGE, f"more than {self._header_bytes_max} bytes beside the body")

    def _refuse(self, kind: HttpErrorKind, text: str) -> _StopParsing:
        self._failure = HttpError(kind, text)
        return _StopParsing()

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Stop at another response in the same read: no request asked for it."""
        if self._complete:
            raise _StopParsing

    def on_headers_complete(self) -> None:
        """Note the status: is this the response, and has it a body?"""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if self._parser.get_http_version() not in _VERSIONS:
            raise self._refuse(HttpErrorKind.PROTOCOL, "the answer is not of HTTP/1.1")
        if status < 200:
            if status < 100 or status == 101:
                raise self._refuse(HttpErrorKind.PROTOCOL, f"status {status} was not asked for")
            return
        self._status = status
        if self._is_head:
            # Only a return value that httptools does not pass on could tell the parser that no body follows: take the
            # response as complete and give the connection up. HEAD is not what this client is fast for.
            self._complete = True
            raise _StopParsing

    def on_chunk_header(self) -> None:
        """Refuse chunks behind another coding of the body.

        Where chunked is not the last coding the body ends with the connection: `end_of_stream` refuses it.
        """
        assert self._parser is not None
        if self._body_bytes:
            return
        if self._parser.get_http_version() == _HTTP_1_0:
            raise self._refuse(HttpErrorKind.PROTOCOL, "HTTP/1.0 knows no chunks")
        if [value.lower() for _, value in self._framing()] != [b"chunked"]:
            raise self._refuse(HttpErrorKind.PROTOCOL, "the answer has a transfer encoding other than chunked")

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._body_bytes += len(data)
        if self._body_bytes > self._body_bytes_max:
            raise self._refuse(HttpErrorKind.TOO_LARGE, f"a body of more than {self._body_bytes_max} bytes")
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        """Note that the response is complete.

        A complete interim one (RFC 9110 §15.2) leaves the response still to come.
        """
        if self._status:
            assert self._parser is not None
            self._complete = True
            self.reusable = self._parser.should_keep_alive()
