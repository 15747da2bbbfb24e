"""One connection that produces.

It sends the requests of one message after the other, each when the last is answered. An answer whose head was seen
before, and whose length is the one that the head announced, is not parsed: the parser has judged exactly those bytes
already. Every other answer goes through twophase's own reader.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
from typing import Final, Protocol, cast

from benchmarks.load.ledger import Ledger
from benchmarks.load.workload import Template
from twophase.http_client.outcome import HttpError, HttpResponse
from twophase.http_client.reader import ResponseReader

_HEADS_MAX: Final = 512


class Step(enum.Enum):
    """The request under way."""

    NONE = "none"
    PREPARE = "prepare"
    SUBMIT = "submit"
    ABORT = "abort"


# The lookup of a global takes half the time of an enum's member; these are looked up several times a message.
_NONE: Final = Step.NONE
_PREPARE: Final = Step.PREPARE
_SUBMIT: Final = Step.SUBMIT


class Source(Protocol):
    """The run, which decides what a producer does next."""

    ledger: Ledger
    template: Template
    submits: bool
    heads: dict[bytes, int]

    def connected(self, producer: Sender) -> None: ...

    def finished(self, producer: Sender, *, failed: bool) -> None: ...

    def lost(self, producer: Sender) -> None: ...


class Sender(Protocol):
    """A sender of the requests of one message after the other."""

    def prepare(self, number: int, body: bytes, since_s: float) -> None: ...

    def submit(self, number: int, body: bytes, since_s: float) -> None: ...

    def abort(self, body: bytes) -> None: ...

    def cut(self) -> None: ...


class Producer(asyncio.Protocol):
    """The producer; see the module.

    Arguments:
        source: the run.
        submits: the connection that takes the submits of prepared messages; without it, the producer's own does.
    """

    __slots__ = (
        "_body", "_number", "_reader", "_reading", "_since_s", "_source", "_submits", "step", "transport",
        "write", "write_submit",
    )  # fmt: skip

    def __init__(self, source: Source, submits: asyncio.Transport | None = None) -> None:
        self.step = _NONE
        self.transport = cast("asyncio.Transport", None)
        self.write = cast("Callable[[bytes], None]", None)
        self.write_submit = self.write
        self._submits = submits
        self._source = source
        self._reader = ResponseReader(body_bytes_max=1 << 20, header_bytes_max=1 << 16)
        self._reading = False
        self._number = 0
        self._body = b""
        self._since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report that the server has accepted the connection."""
        self.transport = cast("asyncio.Transport", transport)
        self.write = self.transport.write
        self.write_submit = self.write if self._submits is None else self._submits.write
        self._source.connected(self)

    def prepare(self, number: int, body: bytes, since_s: float) -> None:
        """Begin a message with its prepare; its latency counts from `since_s`."""
        self.step = _PREPARE
        self._number = number
        self._body = body
        self._since_s = since_s
        self.write(self._source.template.prepare_head + body)

    def submit(self, number: int, body: bytes, since_s: float) -> None:
        """Begin a message with its submit."""
        self.step = _SUBMIT
        self._number = number
        self._since_s = since_s
        self._source.ledger.submitting(number, since_s)
        self.write(self._source.template.submit_head + body)

    def abort(self, body: bytes) -> None:
        """Abort a prepared message."""
        self.step = Step.ABORT
        self.write(self._source.template.abort_head + body)

    def cut(self) -> None:
        """Stop: the run is over."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take a read: nearly always the whole answer, with a head seen before."""
        end = data.find(b"\r\n\r\n")
        if self._source.heads.get(data[:end]) == len(data) - end and not self._reading and b"FAILURE" not in data:
            self._succeeded()
        else:
            self._read(data, end)

    def _succeeded(self) -> None:
        source = self._source
        ledger = source.ledger
        now_s = time.perf_counter()
        if self.step is _PREPARE:
            if self._number >= ledger.measured_from:
                ledger.prepare.add(now_s - self._since_s)
            if source.submits:
                self.step = _SUBMIT
                self._since_s = now_s
                ledger.submitting(self._number, now_s)
                self.write_submit(source.template.submit_head + self._body)
                return
            ledger.prepare_acknowledged(self._number)
        elif self.step is _SUBMIT:
            if self._number >= ledger.measured_from:
                ledger.submit.add(now_s - self._since_s)
            ledger.acknowledge(self._number)
        self.step = _NONE
        source.finished(self, failed=False)

    def _read(self, data: bytes, end: int) -> None:
        """Parse an answer, which is the slow way.

        Its head is remembered when the next answer with it need not be parsed.
        """
        source = self._source
        if self.step is _NONE:
            source.ledger.fail("an answer to nothing")
            self.transport.abort()
            return
        if not self._reading:
            self._reader.begin()
        try:
            response = self._reader.feed(data)
        except HttpError as error:
            source.ledger.fail(f"{self.step.value}: {error.kind.value}")
            self.transport.abort()
            return
        first, self._reading = not self._reading, response is None
        if response is None:
            return
        if not self._reader.reusable:
            source.ledger.fail(f"{self.step.value}: the server closes its connections: {_refusal(response)}")
            self.step = _NONE
            self.transport.abort()
        elif response.status == 200 and b"FAILURE" not in response.body:
            if first and response.header(b"content-length") == b"%d" % len(response.body):
                if len(source.heads) >= _HEADS_MAX:
                    source.heads.clear()
                source.heads[data[:end]] = len(response.body) + 4
            self._succeeded()
        else:
            source.ledger.fail(f"{self.step.value}: {_refusal(response)}")
            self.step = _NONE
            source.finished(self, failed=True)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- whatever ended it
        """Stop: the connection is gone, and the request's outcome is unknown."""
        self._reader.dispose()
        if self.step is not _NONE:
            self._source.ledger.fail(f"{self.step.value}: the connection was lost")
            self.step = _NONE
        if self._submits is not None:
            self._submits.abort()
        self._source.lost(self)


def _refusal(response: HttpResponse) -> str:
    text = response.body[:120].decode("utf-8", "replace")
    return f"{response.status} {text}"
