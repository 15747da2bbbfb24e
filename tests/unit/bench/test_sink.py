"""The sink understands every caller.

Requests arrive in one read or many, one or several at once, with a length or in chunks.
"""

from __future__ import annotations

import pytest

from benchmarks.load.ledger import Ledger
from benchmarks.load.sink import Sink, SinkConnection
from benchmarks.load.workload import FIRST_NUMBER
from tests.support.memory_transport import MemoryTransport


class _Caller:
    """A connection to a sink whose ledger expects `messages`."""

    def __init__(self, messages: int = 3, branches: int = 1) -> None:
        self.ledger = Ledger(branches)
        for _ in range(messages):
            self.ledger.submitting(self.ledger.begin(0.0), 0.0)
        self.sink = Sink(self.ledger, payload_bytes=22)
        self.transport = MemoryTransport()
        self.connection = SinkConnection(self.sink)
        self.connection.connection_made(self.transport)

    def call(self, number: int, branch: int = 1, query: str = "?gid=g&op=action") -> bytes:
        body = b'{"message":%d}' % (FIRST_NUMBER + number)
        head = f"POST /{self.sink.token}/{branch:02}{query} HTTP/1.1\r\nhost: s\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def chunked(self, number: int) -> bytes:
        body = b'{"message":%d}' % (FIRST_NUMBER + number)
        head = f"POST /{self.sink.token}/01 HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        return head + b"5\r\n" + body[:5] + b"\r\n%x\r\n" % len(body[5:]) + body[5:] + b"\r\n0\r\n\r\n"

    def receive(self, *reads: bytes) -> tuple[int, int]:
        """Messages delivered and answers written after these reads."""
        for read in reads:
            self.connection.data_received(read)
        return self.ledger.delivered, self.transport.writes


@pytest.fixture
def caller() -> _Caller:
    return _Caller()


def test_a_call_in_one_read_is_answered_and_counted(caller: _Caller) -> None:
    assert caller.receive(caller.call(0), caller.call(1)) == (2, 2)
    assert caller.transport.written.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("at", [1, 30, 60, -1])
def test_a_call_in_two_reads_is_the_same(caller: _Caller, at: int) -> None:
    whole = caller.call(0)

    assert caller.receive(whole[:at]) == (0, 0)
    assert caller.receive(whole[at:], caller.call(1)) == (2, 2)


def test_two_calls_in_one_read_are_both_counted(caller: _Caller) -> None:
    assert caller.receive(caller.call(0) + caller.call(1)) == (2, 2)


def test_a_chunked_call_is_counted(caller: _Caller) -> None:
    assert caller.receive(caller.chunked(2), caller.call(0)) == (2, 2)


def test_branches_are_distinguished() -> None:
    caller = _Caller(messages=1, branches=2)

    assert caller.receive(caller.call(0, branch=2), caller.call(0, branch=2)) == (0, 2)
    assert caller.ledger.duplicates == 1
    assert caller.receive(caller.call(0, branch=1)) == (1, 3)


def test_a_check_back_is_answered_with_the_verdict(caller: _Caller) -> None:
    caller.receive(f"GET /{caller.sink.token}/check?gid=g HTTP/1.1\r\nhost: s\r\n\r\n".encode())

    assert caller.sink.checks == 1
    assert caller.transport.written.startswith(b"HTTP/1.1 425 ")


def test_calls_of_another_run_are_strays_and_answered(caller: _Caller) -> None:
    other = caller.call(0).replace(caller.sink.token.encode(), b"deadbeef")

    assert caller.receive(other) == (0, 1)
    assert (caller.ledger.strays, caller.ledger.foreign) == (1, 0)


def test_a_call_about_no_message_of_the_run_is_foreign(caller: _Caller) -> None:
    assert caller.receive(caller.call(7)) == (0, 1)
    assert (caller.ledger.strays, caller.ledger.foreign) == (0, 1)


def test_what_is_no_http_is_cut_off(caller: _Caller) -> None:
    caller.receive(b"\x16\x03\x01 this is TLS")

    assert caller.transport.aborted


def test_while_holding_nothing_is_answered_nor_counted(caller: _Caller) -> None:
    caller.sink.holding = True
    assert caller.receive(caller.call(0)) == (0, 0)

    caller.sink.holding = False
    assert caller.receive(caller.call(0)) == (1, 1)
