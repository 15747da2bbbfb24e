"""The force stop of a prepared message.

Its producer is asked first, because the local transaction may have committed. Keeps rule 24. A verdict is a fact, and
wins over the operator: after a committed one the message is submitted and the stop refused; after a rolled back one the
check-back has failed it. Without a verdict the stop is refused, too, unless the operator overrides that. The decision
is recorded as the operator's then. When the producer could not even be asked, nothing is decided. Meanwhile others may
decide: the stop of a prepared message never ends one that has been submitted since.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from twophase.coordinator.dispatch.check_back import DECIDING, CheckBack
from twophase.coordinator.state.active_message import ActiveMessage, Audited, OnReply, Reply, Trigger, deliver
from twophase.coordinator.state.machine import StateMachine
from twophase.core.errors import Overloaded, StateConflict
from twophase.core.lifecycle import FINAL, Event, State
from twophase.core.message import Message
from twophase.core.verdict import Verdict
from twophase.stores.rows import DecidedBy

_PERMIT_WAIT_S: Final = 1.0
"""Time beyond the call's own timeout in which a question may wait for its turn."""


class ForceStop:
    """Asks producers on behalf of an operator who stops their messages."""

    def __init__(self, machine: StateMachine, check_back: CheckBack) -> None:
        self._check_back = check_back
        self._machine = machine

    def begin(self, active: ActiveMessage, on_reply: OnReply, stop: Trigger) -> None:
        """Stop a prepared message, and call `on_reply` once with the outcome.

        The state of a reply without error is the outcome: FAILED, or another where the stop came too late.
        """
        assert active.state is State.PREPARED, "only a prepared message has a producer to ask"
        asking = _Stop(self._machine, active, on_reply, stop.reason, stop.override, stop.audited)
        if not active.message.check_url:
            asking.end(Verdict.UNKNOWN, None, "it has no check-back address")
            return
        timeout_ms = self._check_back.timeout_ms(active.message)
        loop = asyncio.get_running_loop()
        asking.deadline = loop.call_later(timeout_ms / 1000 + _PERMIT_WAIT_S, asking.fail_and_evict)
        self._check_back.ask_for(active, asking.take, asking.fail_and_evict)


class _Stop(msgspec.Struct, eq=False):
    """One stop from its question to its reply; the message stays in memory meanwhile."""

    machine: StateMachine
    active: ActiveMessage
    on_reply: OnReply
    reason: str
    override: bool
    audited: Audited | None
    deadline: asyncio.TimerHandle | None = None
    ended: bool = False

    def __post_init__(self) -> None:
        self.active.calls += 1

    def take(self, verdict: Verdict, answered: Message | None) -> None:
        """End the stop after the producer's answer, or after a failed call."""
        self.end(verdict, answered, f"the producer, asked first, answered {verdict.value}")

    def fail_and_evict(self) -> None:
        """Give up: the producer could not be asked in time, so nothing is decided."""
        if self._release():
            active = self.active
            error = Overloaded("its producer could not be asked now; nothing was stopped.", gid=active.message.gid)
            decided = active.state is not State.PREPARED
            deliver(self.on_reply, Reply(None if decided else error, active.state, active.created_ms))
            self.machine.evict_if_idle(active)

    def end(self, verdict: Verdict, answered: Message | None, why: str) -> None:
        """End the stop with the verdict."""
        active = self.active
        event = DECIDING.get(verdict)
        if event is not None and active.detached and active.state in FINAL:
            # It is final, and has left memory: a contrary verdict about it is still an incident.
            self.machine.handle(active, Trigger(event, None, None, DecidedBy.CHECK_BACK))
        if not self._release():
            self.machine.evict_if_idle(active)
            return
        if active.detached:
            error = None if active.state in FINAL else Overloaded("the store has failed.", gid=active.message.gid)
            deliver(self.on_reply, Reply(error, active.state, active.created_ms))
            return
        if event is not None:
            reason = f"the producer answered {verdict.value}"
            trigger = Trigger(event, answered, self.on_reply, DecidedBy.CHECK_BACK, reason, audited=self.audited)
        elif active.state is State.PREPARED and not self.override:
            self._refuse(why)
            return
        else:
            reason = f"{self.reason}; {why}"
            trigger = Trigger(Event.FORCE_STOP, None, self.on_reply, DecidedBy.OPERATOR, reason, asked=True)
            trigger.prepared_only, trigger.audited = True, self.audited
        self.machine.handle(active, trigger)

    def _refuse(self, why: str) -> None:
        active, gid = self.active, self.active.message.gid
        error = StateConflict(
            f"current status 'prepared', cannot stop: {why}. Its transaction may have committed, or may still do so.",
            gid=gid,
            remedy="Find out what it did; `twophase messages stop GID --override` then stops without a verdict.",
        )
        deliver(self.on_reply, Reply(error, active.state, active.created_ms))
        self.machine.evict_if_idle(active)

    def _release(self) -> bool:
        if self.ended:
            return False
        self.ended = True
        self.active.calls -= 1
        if self.deadline is not None:
            self.deadline.cancel()
        return True
