"""Answers that wait for windows, against a model of the windows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.outbox import Outbox
from twophase.grpc_server.http2.response import Response


def _stream(number: int) -> Any:
    return SimpleNamespace(number=number, debt=0, connection=SimpleNamespace(now_s=0.0))


def _answer(size: int) -> Response:
    return Response(b"h", bytes(size), b"t")


class OutboxAgainstWindows(RuleBasedStateMachine):
    """Whatever the windows allow has been sent, and never more."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[int, int] = {}
        self.over: set[int] = set()
        self.outbox = Outbox(self._write, lambda stream: self.over.add(stream.number))
        self.outbox.window = 20
        self.outbox.initial = 10
        self.streams: dict[int, tuple[Any, int]] = {}

    def _write(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            high, low, kind, _, number = frames.HEAD.unpack_from(data, at)
            size = high << 16 | low
            if kind == frames.DATA:
                self.sent[number] = self.sent.get(number, 0) + size
            at += frames.HEAD_BYTES + size

    @rule(size=st.integers(1, 40))
    def answer(self, size: int) -> None:
        number = 2 * len(self.streams) + 1
        stream = _stream(number)
        self.streams[number] = stream, size
        self.outbox.answer(stream, _answer(size))

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), by=st.integers(1, 15))
    def widen_one(self, data: st.DataObject, by: int) -> None:
        stream, _ = self.streams[data.draw(st.sampled_from(sorted(self.streams)))]
        stream.debt -= by
        self.outbox.widened(stream)

    @rule(by=st.integers(1, 30))
    def widen_all_together(self, by: int) -> None:
        self.outbox.window += by
        self.outbox.release()

    @rule(initial=st.integers(0, 20))
    def change_each(self, initial: int) -> None:
        self.outbox.initial = initial
        self.outbox.release(all_streams=True)

    @rule()
    def pause(self) -> None:
        self.outbox.paused = True

    @rule()
    def resume(self) -> None:
        self.outbox.paused = False
        self.outbox.release()

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.streams)))
        self.outbox.forget(self.streams.pop(number)[0])
        self.streams[number] = _stream(number), 0
        self.sent[number] = 0

    @invariant()
    def what_may_go_has_gone(self) -> None:
        assert self.outbox.window >= 0
        left = {number: size - self.sent.get(number, 0) for number, (_, size) in self.streams.items()}
        assert all(size >= 0 for size in left.values())
        waiting = {number for number, size in left.items() if size}
        assert self.outbox.waits == bool(waiting)
        assert not waiting & self.over
        if self.outbox.window > 0 and not self.outbox.paused:
            assert all(self.outbox.initial - self.streams[number][0].debt <= 0 for number in waiting)


OutboxAgainstWindows.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestOutbox = OutboxAgainstWindows.TestCase


@pytest.mark.parametrize("change", ["another stream", "all together"])
def test_a_change_of_a_window_looks_at_no_stream_that_waits_for_its_own(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(lambda _: None, lambda _: None)
    outbox.initial = 0
    for number in range(1, 2_001, 2):
        outbox.answer(_stream(number), _answer(100))
    assert outbox.shut == 1_000
    looks: list[Any] = []
    monkeypatch.setattr(Outbox, "_send", lambda _, held: looks.append(held))

    if change == "another stream":
        outbox.widened(_stream(2_001))
    else:
        outbox.window += 1_000
        outbox.release()

    assert looks == []
