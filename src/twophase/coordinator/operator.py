"""The operator's acts on a message; each is on record.

They are stop, park, redrive, redirect, and retry now. Promise (rules 23 and 24): an operator goes through the lifecycle
table like a producer, at any node; a message of another node is moved here by compare-and-set. Each act is recorded in
the same commit as its change: who, when, what and why, and no payload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from twophase.coordinator.dispatch.evidence import excerpt
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage, Audited, OnReply, Reply, Trigger, Validate
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.acts import Acts
from twophase.coordinator.state.machine import StateMachine
from twophase.core.audit_log import NOBODY, Actor, AuditEntry
from twophase.core.errors import StateConflict, StoreCorrupt, UnknownMessage
from twophase.core.lifecycle import Event, State
from twophase.core.message import Message, decode
from twophase.core.redirect import Move, Redirection, redirect
from twophase.stores.rows import Attempt, AttemptKind, DecidedBy, LiveRow

LATER_ROWS_MAX: Final = 10_000
"""Rows that one request reads to find those that wait."""
_PAGE_ROWS: Final = 100
"""Rows read at once, with their payloads."""
_NAME_BYTES_MAX: Final = 100


class Act(msgspec.Struct, frozen=True):
    """The operator and the reason of an act, in the operator's own words.

    Both may be empty. `override`: a stop counts although the producer of a prepared message gives no verdict.
    `prepared_only`: a stop is meant for a prepared message alone. `actor`: the client, for the audit log.
    """

    by: str = ""
    reason: str = ""
    override: bool = False
    actor: Actor = NOBODY
    prepared_only: bool = False

    def entry(self, verb: str, gid: str) -> AuditEntry:
        """Return the act for the audit log.

        >>> Act("eve", "fraud", override=True, actor=Actor("desk")).entry("stop", "order-17").act
        'stop-override'
        """
        name = f"{verb}-override" if self.override else verb
        reason = ": ".join([text for text in (self.by, self.reason) if text])
        return AuditEntry(self.actor.who, self.actor.peer, name, gid, reason)

    def describe(self, verb: str) -> str:
        """Return the act in a few words, on one line.

        >>> Act("eve", "the order was cancelled").describe("stopped")
        'stopped by eve: the order was cancelled'
        """
        by = excerpt(self.by.encode("utf-8", "replace")[:_NAME_BYTES_MAX]) or "an operator"
        reason = excerpt(self.reason.encode("utf-8", "replace"))
        return f"{verb} by {by}: {reason}" if reason else f"{verb} by {by}"


class Operator:
    """Performs the acts of operators, one message at a time.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        memory: the messages in memory.
        machine: handles the acts.
        find: returns the message of a gid, looked up if need be; None when the request was refused and answered.
        acts: performs each of them, with its row in the audit log.
    """

    def __init__(
        self,
        runtime: Runtime,
        memory: ActiveSet,
        machine: StateMachine,
        find: Callable[[str, OnReply], ActiveMessage | None],
        acts: Acts,
    ) -> None:
        self._store = runtime.store
        self._page_turns = runtime.page_turns
        self._memory = memory
        self._machine = machine
        self._clock = runtime.clock
        self._find = find
        self._acts = acts
        self.attempts_max = runtime.settings.attempts_max
        """Default number of consecutive failed rounds before a message is parked.

        0 disables parking.
        """
        self.earliest_ms = memory.times.earliest_ms
        """From (state, message, created_ms): the earliest time of a try."""

    async def stop(self, gid: str, act: Act) -> Reply:
        """Fail a message that is not final.

        A prepared one's producer is asked first, and its verdict wins; without one only an override stops the message.
        The reply's error: UnknownMessage, or StateConflict when it is final, when its transaction has committed and it
        is delivered, or when there is no verdict.

        Raises:
            StoreError: the store cannot be read.
        """
        row, refused = await self._find_live(gid, "stop")
        if row is None:
            return refused
        if act.prepared_only and row.state is not State.PREPARED:
            error = StateConflict(
                f"current status '{row.state}', cannot stop: it was to be stopped only while it is prepared.", gid=gid
            )
            return Reply(error, row.state, row.created_ms)
        trigger = Trigger(
            Event.FORCE_STOP,
            None,
            None,
            DecidedBy.OPERATOR,
            act.describe("stopped"),
            prepared_only=act.prepared_only,
            override=act.override,
        )
        reply = await self._handle(gid, trigger, "stop", act, row)
        if reply.error is None and reply.state is not State.FAILED:
            how = "its producer has committed" if row.state is State.PREPARED else "it is delivered"
            error = StateConflict(f"current status '{reply.state}', cannot stop: {how}.", gid=gid)
            return Reply(error, reply.state, reply.prepared_at_ms)
        return reply

    async def park(self, gid: str, act: Act) -> Reply:
        """Ask and call no more until a redrive; the message is kept. Errors as for `stop`."""
        row, refused = await self._find_live(gid, "park")
        return refused if row is None else await self._perform(gid, Event.PARK, "park", act, "parked", row)

    async def redrive(self, gid: str, act: Act) -> Reply:
        """End the parking, and begin anew with all attempts. Errors as for `stop`."""
        row, refused = await self._find_live(gid, "redrive")
        return refused if row is None else await self._perform(gid, Event.REDRIVE, "redrive", act, "redriven", row)

    async def retry_now(self, gid: str, act: Act) -> Reply:
        """Ask or call now instead of after the pause.

        Nothing is tried before its timeout_to_fail or delay is over. Errors as for `stop`; also StateConflict: it is
        parked, and stays so.
        """
        row, refused = await self._find_live(gid, "retry")
        if row is None:
            return refused
        if row.parked:
            error = StateConflict("the message is parked, and is not retried.", gid=gid, remedy="Redrive it.")
            return Reply(error, row.state, row.created_ms)
        return await self._perform(gid, Event.HURRY, "retry-now", act, "tried now", row)

    async def retry_later_ones(self, after_ms: int, limit: int, act: Act, gid_prefix: str = "") -> tuple[int, bool]:
        """Try messages now that would wait longer than `after_ms`; at most `limit`.

        They are messages of any node whose gid begins with `gid_prefix`. One that has not been tried yet, because its
        time has not come, is not changed.

        Returns:
            The number of messages tried now, and True when there are more of them.

        Raises:
            Overloaded: too many requests that read many rows wait for their turn.
        """
        async with self._page_turns.of(act.actor.who):
            waiting = await self._later_ones(after_ms, limit, gid_prefix)
        replies = await asyncio.gather(
            *(self._perform(gid, Event.HURRY, "retry-now", act, "tried now") for gid in waiting[:limit])
        )
        return sum(reply.error is None for reply in replies), len(waiting) > limit

    async def _later_ones(self, after_ms: int, limit: int, gid_prefix: str) -> list[str]:
        """Return the gids of messages that could be tried now; more than `limit` if any."""
        position = (self._clock.now_ms() + after_ms, "\U0010ffff")
        waiting: list[str] = []
        for _ in range(LATER_ROWS_MAX // _PAGE_ROWS):
            rows = await self._store.later(position, _PAGE_ROWS)
            waiting += [row.gid for row in rows if row.gid.startswith(gid_prefix) and self._could_be_earlier(row)]
            if len(rows) < _PAGE_ROWS or len(waiting) > limit:
                break
            position = (rows[-1].due_ms, rows[-1].gid)
        return waiting

    def _could_be_earlier(self, row: LiveRow) -> bool:
        try:
            message = decode(row.body)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return False
        return self.earliest_ms(row.state, message, row.created_ms) < row.due_ms

    async def redirect(
        self, gid: str, redirection: Redirection, act: Act, validate: Validate, *, dry_run: bool = False
    ) -> tuple[Reply, tuple[Move, ...]]:
        """Give open calls, or the check-back, another address, and try there.

        A parked message stays so.

        Arguments:
            validate: raises InvalidRequest when the message as it would be cannot be called.
            dry_run: only say what would change.

        Returns:
            The reply, errors as for `stop`, and what changed; nothing when the message goes there already.
        """
        row, refused = await self._find_live(gid, "redirect")
        if row is None:
            return refused, ()
        if redirection.check and row.state is not State.PREPARED:
            status = row.state.name.lower()
            error = StateConflict(
                f"current status '{status}', cannot redirect: its producer is no longer asked.", gid=gid
            )
            return Reply(error, row.state, row.created_ms), ()
        redirected, moves = redirect(_message_of(row), row.done, redirection)
        validate(redirected, moves)
        if dry_run or not moves:
            return refused, moves
        trigger = Trigger(
            Event.REDIRECT,
            None,
            None,
            DecidedBy.OPERATOR,
            act.describe("redirected"),
            redirection=redirection,
            validate=validate,
        )
        reply = await self._handle(gid, trigger, "redirect", act, row)
        return reply, trigger.moves if reply.error is None else ()

    async def _find_live(self, gid: str, verb: str) -> tuple[LiveRow | None, Reply]:
        """Return the message, or the reason why no act is possible."""
        row = await self._store.get(gid)
        if row is None:
            unknown = UnknownMessage(f"no message {gid!r} found, cannot {verb}.", gid=gid)
            return None, Reply(unknown, State.ABSENT)
        if isinstance(row, LiveRow):
            return row, Reply(None, row.state, row.created_ms)
        final = StateConflict(f"current status '{row.state}', cannot {verb}.", gid=gid)
        return None, Reply(final, row.state, row.created_ms)

    async def _perform(
        self, gid: str, event: Event, verb: str, act: Act, done: str, row: LiveRow | None = None
    ) -> Reply:
        trigger = Trigger(event, None, None, DecidedBy.OPERATOR, act.describe(done))
        return await self._handle(gid, trigger, verb, act, row)

    async def _handle(self, gid: str, trigger: Trigger, verb: str, act: Act, row: LiveRow | None) -> Reply:
        """Apply an operator's act; record it with the message and in the audit log.

        `row`: the message as it was read for the act. Another node may have changed it, and memory not know it yet.
        """

        def begin(on_reply: OnReply, audited: Audited) -> None:
            trigger.on_reply, trigger.audited = on_reply, audited
            active = self._find(gid, on_reply)
            if active is None:
                return
            if row is not None and active.version < row.version and not (active.busy or active.queue or active.early):
                self._memory.load_row(active, row)  # a round that calls other addresses ends with it
            if trigger.event is not Event.REDIRECT:  # whose action records each move
                # Recorded first, so that both go with one flush.
                attempt = Attempt(gid, AttemptKind.OPERATOR, "", "", self._clock.now_ms(), 0, 0, verb, trigger.reason)
                self._machine.group_commit.record(attempt)
            self._machine.handle(active, trigger)

        return await self._acts.perform(act.entry(verb, gid), begin)


def _message_of(row: LiveRow) -> Message:
    try:
        return decode(row.body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StoreCorrupt(f"the stored body of message {row.gid!r} cannot be read.", gid=row.gid) from error
