"""The duration and number of a request's tries: virtual time, scripted answers."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.unit.client.harness import Time
from twophase.client.transport.exchange import Pause, RequestBounds, Send, exchange
from twophase.client.transport.wire import (
    Disconnected,
    HttpAnswer,
    NotConnected,
    NotTrusted,
    Operation,
    TransportFailure,
)
from twophase.core.errors import CoordinatorUnreachable, Fate, Overloaded, ShuttingDown, TlsFailed, Unavailable
from twophase.core.message import Branch, Message
from twophase.core.options import Options

OK = HttpAnswer(200, b'{"dtm_result":"SUCCESS","prepared_at":17}')
SILENT = TransportFailure("timed out")
CUT = Disconnected("cut")
MESSAGE = Message("g", (Branch("http://b/1"), Branch("http://b/2")))


class Script:
    """A coordinator that answers one exchange by script.

    A try takes `takes_ms`, at most its timeout.
    """

    def __init__(self, *answers: HttpAnswer | Exception, takes_ms: int = 1) -> None:
        self.time = Time()
        self.answers = list(answers)
        self.takes_ms = takes_ms
        self.pauses: list[int] = []
        self.timeouts: list[int] = []

    def play(self, message: Message = MESSAGE, operation: Operation = Operation.SUBMIT, **patience: int) -> int:
        steps = exchange(message, operation, RequestBounds(**patience), self.time.runtime())  # type: ignore[arg-type]
        try:
            command = next(steps)
            while True:
                command = self._perform(steps, command)
        except StopIteration as stop:
            return int(stop.value)

    def _perform(self, steps: Generator[Send | Pause, HttpAnswer, int], command: Send | Pause) -> Send | Pause:
        if isinstance(command, Pause):
            self.pauses.append(command.pause_ms)
            self.time.now_ms += command.pause_ms
            return steps.send(OK)
        self.timeouts.append(command.timeout_ms)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.time.now_ms += min(self.takes_ms, command.timeout_ms)
        return steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)


def test_answer_ends_the_exchange() -> None:
    script = Script(OK)
    assert script.play() == 17
    assert script.pauses == []


def test_lost_answers_are_asked_for_again_with_growing_pauses() -> None:
    script = Script(CUT, CUT, CUT, OK)
    assert script.play() == 17
    assert script.pauses == [50, 100, 200]


def test_a_coordinator_that_is_not_trusted_is_asked_once() -> None:
    script = Script(NotTrusted("pay: its authority is unknown", "Name it."))
    with pytest.raises(TlsFailed, match="submit was not sent: pay: its authority is unknown") as raised:
        script.play()
    assert (raised.value.fate, raised.value.remedy, script.pauses) == (Fate.UNCHANGED, "Name it.", [])


def test_a_coordinator_that_is_not_trusted_after_a_lost_answer_leaves_the_fate_open() -> None:
    with pytest.raises(TlsFailed) as raised:
        Script(SILENT, NotTrusted("expired", "")).play()
    assert (raised.value.fate, raised.value.remedy) == (Fate.UNDECIDED, TlsFailed.remedy)


def test_attempts_at_a_silent_coordinator_are_bounded() -> None:
    script = Script(SILENT)
    with pytest.raises(CoordinatorUnreachable, match="in 3 attempts: timed out") as raised:
        script.play(attempts=3)
    assert isinstance(raised.value.__cause__, TransportFailure)
    assert len(script.timeouts) == 3


NOWHERE = NotConnected("refused")
NO_UPSTREAM = HttpAnswer(502, b"<html>no upstream</html>")


@pytest.mark.parametrize(
    ("tries", "fate"),
    [((NOWHERE,), Fate.UNCHANGED), ((CUT, NOWHERE), Fate.UNDECIDED), ((NO_UPSTREAM, NOWHERE), Fate.UNDECIDED)],
    ids=["never", "a try was cut", "a try was answered"],
)
def test_what_was_never_sent_changed_nothing(tries: tuple[HttpAnswer | Exception, ...], fate: Fate) -> None:
    with pytest.raises(CoordinatorUnreachable) as raised:
        Script(*tries).play()
    assert raised.value.fate is fate


STOPPING = HttpAnswer(503, b'{"code":"TP-3002","message":"stopping"}', "1")


@pytest.mark.parametrize("away", [CUT, NO_UPSTREAM, STOPPING], ids=["refused", "behind a proxy", "stopping"])
def test_a_coordinator_that_is_away_is_tried_until_the_patience_ends(away: HttpAnswer | Exception) -> None:
    script = Script(away)
    with pytest.raises(Unavailable):
        script.play(attempts=1, total_ms=10_000)
    assert 8_000 < script.time.now_ms <= 10_000
    assert len(script.timeouts) < 20


def test_a_coordinator_that_comes_back_is_found_with_the_attempts_it_needs() -> None:
    script = Script(*[CUT] * 9, SILENT, OK)
    assert script.play(attempts=2) == 17


def test_all_attempts_together_are_bounded() -> None:
    script = Script(SILENT, takes_ms=5_000)
    with pytest.raises(CoordinatorUnreachable):
        script.play(attempts=100, total_ms=12_000)
    assert script.time.now_ms <= 12_000
    assert script.timeouts[-1] < 5_000


def test_overload_is_waited_for_as_long_as_it_says() -> None:
    script = Script(HttpAnswer(503, b'{"code":"TP-3001","message":"full"}', "2"), OK)
    assert script.play() == 17
    assert script.pauses == [2000]


def test_overload_longer_than_our_patience_is_raised_at_once() -> None:
    script = Script(HttpAnswer(503, b'{"code":"TP-3001","message":"full"}', "60"))
    with pytest.raises(Overloaded):
        script.play()
    assert script.pauses == []


def test_overload_that_lasts_is_raised() -> None:
    script = Script(HttpAnswer(503, b'{"code":"TP-3001","message":"full"}', "1"))
    with pytest.raises(Overloaded):
        script.play(attempts=3)
    assert script.pauses == [1000, 1000]


def test_draining_coordinator_is_asked_again() -> None:
    script = Script(HttpAnswer(503, b'{"code":"TP-3002","message":"stopping"}', "soon"), OK)
    assert script.play() == 17
    assert script.pauses == [50]


def test_draining_that_lasts_is_raised() -> None:
    with pytest.raises(ShuttingDown):
        Script(HttpAnswer(503, b'{"code":"TP-3002","message":"stopping"}', "1")).play()


def test_proxy_without_a_server_behind_it_is_unreachable() -> None:
    with pytest.raises(CoordinatorUnreachable, match="status 503"):
        Script(HttpAnswer(503, b"<html>no upstream</html>")).play()


def test_wait_result_leaves_time_for_a_round_of_branch_calls() -> None:
    script = Script(OK)
    script.play(Message("g", MESSAGE.branches, options=Options(wait_result=True, request_timeout_ms=4_000)))
    assert script.timeouts == [5_000 + 2 * 4_000]


def test_wait_result_of_concurrent_branches_takes_one_call() -> None:
    script = Script(OK)
    script.play(Message("g", MESSAGE.branches, options=Options(wait_result=True, concurrent=True)))
    assert script.timeouts == [5_000 + 3_000]


def test_wait_result_does_not_lengthen_prepare() -> None:
    script = Script(OK)
    script.play(Message("g", MESSAGE.branches, options=Options(wait_result=True)), Operation.PREPARE)
    assert script.timeouts == [5_000]
