"""Asks the producer of a prepared message whether its local transaction committed.

Keeps I5 and I9: time only ever causes a question, never a verdict, and an undecided message is asked again within
one backoff cap. A message without a check-back address cannot be asked; it is parked, visible and never decided
by silence (correctness rule 10). No number of attempts ends the questions: a limit would leave undecided for ever what
a committed transaction waits for. An operator hears of those that keep failing. The answer is understood by
`core.verdict` alone.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from twophase.coordinator.dispatch.alerts import AlertEvent, Alerts
from twophase.coordinator.dispatch.calls import NO_PERMIT, Calls
from twophase.coordinator.dispatch.evidence import attempt_of, not_allowed
from twophase.coordinator.dispatch.producers import PRODUCER_PREFIX, Producers
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage, Trigger
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.machine import StateMachine
from twophase.core.headers import without_reserved
from twophase.core.lifecycle import FINAL, Event, State
from twophase.core.limits import BRANCHES_MAX, OPEN_ANSWER_BYTES_MAX
from twophase.core.message import Message, decode_answered
from twophase.core.verdict import Verdict, interpret_check_back, word_that_decided
from twophase.destinations.base import Answer, Call
from twophase.stores.rows import Attempt, AttemptKind, DecidedBy

DECIDING: Final = {
    Verdict.COMMITTED: Event.CHECK_COMMITTED,
    Verdict.ROLLED_BACK: Event.CHECK_ROLLED_BACK,
}
"""The verdicts that decide a message, and their events."""
_EVENTS: Final = DECIDING | {
    Verdict.IN_PROGRESS: Event.CHECK_UNDECIDED,
    Verdict.UNKNOWN: Event.CHECK_UNDECIDED,
}

OnVerdict = Callable[[Verdict, Message | None], None]
"""Called with the verdict, and with the message that the answer completed, if any."""
_NO_ADDRESS = "the message has no check-back address"


class _CommittedBody(msgspec.Struct):
    """The branches that a committed answer may carry beside the verdict.

    JSON-RPC puts it in `result`.
    """

    branches: str | None = None
    jsonrpc: str = ""
    result: msgspec.Raw = msgspec.Raw(b"{}")


class CheckBack:
    """Performs check-backs."""

    def __init__(
        self,
        runtime: Runtime,
        memory: ActiveSet,
        machine: StateMachine,
        calls: Calls,
        alerts: Alerts,
        producers: Producers,
    ) -> None:
        self._producers = producers
        self._memory = memory
        self._machine = machine
        self._calls = calls
        self._alerts = alerts
        self._owners = runtime.owners
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._observer = runtime.observer

    def ask(self, active: ActiveMessage) -> None:
        """Ask about a prepared message that is due."""
        assert active.state is State.PREPARED, "only a prepared message is asked about"
        if self._calls.draining or active.detached:
            return
        url = active.message.check_url
        if not url:
            self._note(active, Answer(0, error=_NO_ADDRESS), Verdict.UNKNOWN)
            self._machine.handle(active, Trigger(Event.PARK, reason=_NO_ADDRESS))
            return
        if url.startswith(PRODUCER_PREFIX):
            self._producers.ask(active)
            return
        on_answer = partial(self._answered, active, url)
        pressure = self._memory.pressure(active) if self._memory.crowded else 0
        self._calls.start(active, url, partial(self._due_call, url), on_answer, pressure=pressure)

    def _due_call(self, url: str, active: ActiveMessage) -> Call | None:
        """Return the question of a message that was due.

        None for one that was parked while it waited.
        """
        return None if active.parked else self._call(url, active)

    def _call(self, url: str, active: ActiveMessage) -> Call | None:
        message = active.message
        if active.state is not State.PREPARED or message.check_url != url:
            return None
        return Call(
            url,
            (
                ("branch_id", "00"),
                ("gid", message.gid),
                ("op", "msg"),
                ("prepared_at", str(active.created_ms)),
                ("trans_type", "msg"),
            ),
            b"",
            without_reserved(message.options.headers + message.options.trace),
            self.timeout_ms(message),
            OPEN_ANSWER_BYTES_MAX.value if message.options.open else 0,
        )

    def timeout_ms(self, message: Message) -> int:
        """Return how long an answer may take.

        The message's own time for calls counts if it is longer than the default. A short time for branches must not cut
        the route's wait for a row's lock, after which it answers "in progress".
        """
        return max(message.options.request_timeout_ms, self._settings.request_timeout_ms)

    def ask_for(self, active: ActiveMessage, on_verdict: OnVerdict, on_no_permit: Callable[[], None]) -> None:
        """Ask for a caller that handles the verdict, or its absence.

        A message that is decided before the question is asked counts as one without a permit.
        """
        url = active.message.check_url

        def answered(key: str, answer: Answer) -> None:
            if answer is NO_PERMIT:
                on_no_permit()
                return
            if active.message.check_url != url and not active.detached:
                # Redirected meanwhile: the earlier address does not count.
                self.ask_for(active, on_verdict, on_no_permit)
                return
            verdict, answered, answer = self._understand(active, key, answer)
            if verdict not in (Verdict.COMMITTED, Verdict.ROLLED_BACK):
                self._note(active, answer, verdict)
            on_verdict(verdict, answered)

        self._calls.start(active, url, partial(self._call, url), answered)

    def _answered(self, active: ActiveMessage, url: str, key: str, answer: Answer) -> None:
        if active.message.check_url != url and active.state is State.PREPARED:
            self._machine.evict_if_idle(active)  # redirected meanwhile: the earlier address does not count
            return
        if answer is NO_PERMIT:
            if active.parked:
                self._machine.evict_if_idle(active)
            elif active.state is State.PREPARED:
                self._machine.defer(active, self._calls.waited_ms(active, url))
            return
        verdict, answered, answer = self._understand(active, key, answer)
        # A final message has left memory, yet a contrary verdict about it is still an incident.
        if not active.detached or active.state in FINAL:
            self._take(active, answer, verdict, answered)

    def _understand(self, active: ActiveMessage, key: str, answer: Answer) -> tuple[Verdict, Message | None, Answer]:
        """Return the verdict, the message with added branches, the answer to record."""
        explicit = active.message.options.explicit_verdict
        verdict = interpret_check_back(
            answer.status, answer.verdict_header, answer.body, explicit=explicit, strict=self._settings.strict
        )
        if key:
            self._observer.check_back_answered(verdict.value, answer.latency_ms / 1000)
        if verdict is not Verdict.COMMITTED or not active.message.options.open:
            return verdict, None, answer
        answered = _with_added_branches(active.message, answer.body)
        if answered is None:
            return Verdict.UNKNOWN, None, answer
        added = [branch.url for branch in answered.branches[len(active.message.branches) :]]
        if added and not self._owners.may_call(active.owner, added, answered.protocol):
            # Unknown, so asked again: the token's entry can be corrected, and nothing was called.
            refused = Answer(answer.status, latency_ms=answer.latency_ms, error=not_allowed(active.owner))
            return Verdict.UNKNOWN, None, refused
        return verdict, answered, answer

    def _take(self, active: ActiveMessage, answer: Answer, verdict: Verdict, answered: Message | None) -> None:
        event = _EVENTS[verdict]
        if event is Event.CHECK_UNDECIDED and active.state is State.PREPARED:
            active.attempts += 1
            attempt = self._note(active, answer, verdict)
            if verdict is Verdict.UNKNOWN:
                self._alerts.failing(active, attempt, AlertEvent.CHECK_BACK_FAILING)
        self._machine.handle(
            active,
            Trigger(event, answered, None, DecidedBy.CHECK_BACK, _reason(answer, verdict)),
        )

    def _note(self, active: ActiveMessage, answer: Answer, verdict: Verdict) -> Attempt:
        message = active.message
        attempt = attempt_of(
            message.gid,
            AttemptKind.CHECK_BACK,
            "00",
            message.check_url,
            self._clock.now_ms(),
            answer,
            verdict.value,
        )
        self._machine.group_commit.record(attempt)
        return attempt


def _reason(answer: Answer, verdict: Verdict) -> str:
    word = word_that_decided(answer.status, verdict.value)
    return f"the producer answered {verdict.value}{f': {word}' if word else ''}"


def _with_added_branches(message: Message, body: bytes) -> Message | None:
    """Return the message with the branches that the barrier row carried.

    None when the answer cannot be trusted to be whole.
    """
    try:
        answered = msgspec.json.decode(body, type=_CommittedBody)
        if answered.jsonrpc:
            answered = msgspec.json.decode(answered.result, type=_CommittedBody)
        text = answered.branches
        if text == "":
            return None  # a route of an older version: the row is committed, and lacks the branches that were added
        added = decode_answered(binascii.a2b_base64(text)) if text else ()
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError, RecursionError):
        return None
    branches = message.branches + added
    if len(branches) > BRANCHES_MAX.value:
        return None
    return msgspec.structs.replace(message, branches=branches)
