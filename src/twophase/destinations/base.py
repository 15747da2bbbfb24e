"""The destination protocol: perform one call, report one answer, keep every bound.

A destination never interprets an answer (that is `core.verdict`) and never retries (that is the coordinator):
it turns a `Call` into exactly one callback with an `Answer`, within the call's timeout, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Call(msgspec.Struct, frozen=True):
    """One call. `query` is appended to the address's own query string, in this order.

    A payload makes it a POST; without one it is a GET. `headers` may override the content type.
    """

    url: str
    query: tuple[tuple[str, str], ...]
    payload: bytes
    headers: tuple[tuple[str, str], ...]
    timeout_ms: int
    answer_bytes_max: int = 0
    """Bound on this answer's body, where it may exceed the destination's own."""
    in_body: tuple[tuple[str, str], ...] = ()
    """The query of a call that has it in its payload."""


class Answer(msgspec.Struct, frozen=True):
    """The answer to a call.

    `status` 0: no answer came, and `error` gives the reason (never containing payload or secret).
    """

    status: int
    body: bytes = b""
    verdict_header: str | None = None
    latency_ms: float = 0.0
    error: str = ""


class Destination(Protocol):
    """A way to call addresses of some schemes."""

    def accepts(self, url: str) -> str | None:
        """Return None when this destination can call `url`, now and later.

        Otherwise return the reason, which names what is wrong with the address.
        """
        ...

    def key(self, url: str) -> str:
        """Return what `url` shares its limits with: scheme, host and port."""
        ...

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        """Start a call; `on_answer` is called once, never before this returns."""
        ...

    async def stop(self) -> None:
        """Close idle connections, give calls under way an error answer.

        A second call is safe.
        """
        ...
