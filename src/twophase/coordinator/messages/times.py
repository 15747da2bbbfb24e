"""When a message may be tried at the earliest, and when it has been tried often enough."""

from __future__ import annotations

from twophase.coordinator.messages.entry import Entry
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.hooks import Clock
from twophase.core.lifecycle import State
from twophase.core.message import Durability, Message
from twophase.core.schedule import PAUSE_MS_MAX


class Times:
    """What its producer said of a message's times, and the settings where he said nothing."""

    def __init__(self, settings: CoordinatorSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    def earliest_ms(self, state: State, message: Message, created_ms: int) -> int:
        """Before this nobody is asked or called, however much somebody hurries.

        A producer who is asked before it has begun its transaction can never begin it.
        """
        if state is State.PREPARED:
            return created_ms + (message.options.timeout_to_fail_ms or self._settings.timeout_to_fail_ms)
        return message.options.first_call_ms(created_ms)

    def earliest_due_ms(self, state: State, message: Message, created_ms: int) -> int:
        """The due time of a row that is not tried before `earliest_ms`.

        A far one says that no branch has been called yet (see `horizon`). With check-back durability one may have been,
        before a submit brought the time: such a row falls due in between, and is put off again.
        """
        earliest_ms = self.earliest_ms(state, message, created_ms)
        if state is State.SUBMITTED and message.options.durability is Durability.CHECK_BACK:
            return min(earliest_ms, self._clock.now_ms() + PAUSE_MS_MAX)
        return earliest_ms

    def soonest_ms(self, state: State, message: Message, created_ms: int) -> int:
        """The due time of a row that is to be tried as soon as may be."""
        return max(self._clock.now_ms(), self.earliest_due_ms(state, message, created_ms))

    def used_up(self, entry: Entry) -> bool:
        """Whether a message whose branches fail has failed as often in a row as it may."""
        attempts_max = entry.message.options.attempts_max or self._settings.attempts_max
        return 0 < attempts_max <= entry.attempts
