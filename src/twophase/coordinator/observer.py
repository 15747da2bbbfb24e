"""What a coordinator tells whoever watches: metrics and logs subscribe, the coordinator knows neither.

Calls come on the hot path, so an observer counts and returns; it never raises, blocks or awaits.
"""

from __future__ import annotations

from typing import Protocol

from twophase.core.lifecycle import State
from twophase.stores.base import Attempt


class Observer(Protocol):
    """Hears what happens. Durations are in seconds."""

    def flushed(self, items: int, seconds: float) -> None:
        """A flush made `items` changes durable."""

    def flush_failed(self, code: str) -> None:
        """A flush failed with this error code; its requests were answered with it."""

    def check_back_answered(self, verdict: str, seconds: float) -> None:
        """A producer was asked, and this is how the answer was understood."""

    def branch_answered(self, result: str, destination: str, seconds: float) -> None:
        """A branch was called, and this is how the answer was understood."""

    def not_done(self, attempt: Attempt) -> None:
        """A branch call or a check-back did not end the matter, and is repeated later."""

    def refused(self, code: str) -> None:
        """A request was refused with this error code."""

    def finished(self, state: State, decided_by: str) -> None:
        """A message became final."""

    def incident(self, gid: str, what: str) -> None:
        """A contrary decision arrived and was refused: someone's promise is broken, a person should look."""


class NullObserver:
    """Hears everything and keeps nothing."""

    def flushed(self, items: int, seconds: float) -> None: ...

    def flush_failed(self, code: str) -> None: ...

    def check_back_answered(self, verdict: str, seconds: float) -> None: ...

    def branch_answered(self, result: str, destination: str, seconds: float) -> None: ...

    def not_done(self, attempt: Attempt) -> None: ...

    def refused(self, code: str) -> None: ...

    def finished(self, state: State, decided_by: str) -> None: ...

    def incident(self, gid: str, what: str) -> None: ...
