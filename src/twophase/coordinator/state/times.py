"""The earliest and the latest time of a message's next try.

Its bound on failed rounds is here, too. Keeps I9 under a clock that is set back: a due time that was computed while the
clock was ahead may lie weeks away. A time that neither the message nor any pause explains becomes now.
"""

from __future__ import annotations

from typing import Final

from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.coordinator.state.deferral import SLOT_MS_MAX
from twophase.core.hooks import Clock
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.options import Durability
from twophase.core.schedule import PAUSE_MS_MAX

CLOCKS_APART_MS: Final = 60_000
"""Slack of a due time behind its reason.

The causes are a flush that waited for the store, and two clocks.
"""


class Times:
    """Times of a message: its options, and the settings where an option is not given."""

    def __init__(self, settings: CoordinatorSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    def earliest_ms(self, state: State, message: Message, created_ms: int) -> int:
        """Return the earliest time of a check-back or a branch call.

        A producer who is asked before it has begun its transaction can never begin it. A birth in the future, which a
        clock wrote that was ahead, counts as now.
        """
        if state is State.PREPARED:
            now_ms = self._clock.now_ms()
            born_ms = created_ms if created_ms <= now_ms + CLOCKS_APART_MS else now_ms
            return born_ms + (message.options.timeout_to_fail_ms or self._settings.timeout_to_fail_ms)
        return self.first_call_ms(message, created_ms)

    def first_call_ms(self, message: Message, created_ms: int) -> int:
        """Return the earliest time of a branch call; 0 for at once.

        A delay does not count from a birth in the future, which a clock wrote that was ahead: the row's due time, which
        `latest_ms` has set right, has the delay in it then.
        """
        if created_ms > self._clock.now_ms() + CLOCKS_APART_MS:
            return message.options.not_before_ms
        return message.options.first_call_ms(created_ms)

    def far_ms(self, now_ms: int) -> int:
        """Return the time up to which a due time needs no explanation."""
        return now_ms + SLOT_MS_MAX + CLOCKS_APART_MS

    def latest_ms(self, state: State, message: Message, created_ms: int, due_ms: int) -> int:
        """Return `due_ms`; or now, where nothing explains it.

        The explanations are the message and the longest pause between two tries. Branches that were never called
        because their message has a delay wait for it anew: the part of it that has passed is unknown.
        """
        now_ms = self._clock.now_ms()
        if due_ms <= self.far_ms(now_ms):
            return due_ms  # nearly always
        options, settings = message.options, self._settings
        born_ahead = created_ms > now_ms + CLOCKS_APART_MS
        if state is State.PREPARED:
            wait_ms = max(settings.check_back.cap_ms, options.timeout_to_fail_ms or settings.timeout_to_fail_ms)
            explained_ms = now_ms + wait_ms
        else:
            pause_ms = settings.delivery.starting_at(options.retry_interval_ms).cap_ms
            born_ms = now_ms if born_ahead else created_ms
            explained_ms = max(now_ms + pause_ms, options.first_call_ms(born_ms))
        if due_ms <= explained_ms + CLOCKS_APART_MS:
            return due_ms
        return now_ms + options.delay_ms if born_ahead and state is State.SUBMITTED else now_ms

    def earliest_due_ms(self, state: State, message: Message, created_ms: int) -> int:
        """Return the due time of a row that is not tried before `earliest_ms`.

        A far one means that no branch has been called yet (see `horizon`). With check-back durability one may have
        been, before a submit brought the time: such a row falls due in between, and is postponed again.
        """
        earliest_ms = self.earliest_ms(state, message, created_ms)
        if state is State.SUBMITTED and message.options.durability is Durability.CHECK_BACK:
            return min(earliest_ms, self._clock.now_ms() + PAUSE_MS_MAX)
        return earliest_ms

    def soonest_ms(self, state: State, message: Message, created_ms: int) -> int:
        """Return the due time of a row that is tried as soon as possible."""
        return max(self._clock.now_ms(), self.earliest_due_ms(state, message, created_ms))

    def used_up(self, active: ActiveMessage) -> bool:
        """Return True when a message's branches have failed as often in a row as it may."""
        attempts_max = active.message.options.attempts_max or self._settings.attempts_max
        return 0 < attempts_max <= active.attempts
