"""The part of a message that a caller is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from twophase.coordinator.dispatch.evidence import tellable
from twophase.stores.rows import Attempt, AttemptKind

HIDDEN_HEADERS: Final = ("authorization", "cookie", "x-api-key", "proxy-authorization")
MASK: Final = "***"
_CALLS: Final = frozenset({AttemptKind.BRANCH, AttemptKind.CHECK_BACK})


class Sight(msgspec.Struct, frozen=True):
    """The part of each message that is shown.

    `payloads`: its payloads, the values of its headers and the texts of answers, too. `hidden`: headers whose values
    are never shown, in lower case.

    >>> Sight(True, frozenset({"cookie"})).headers([("Cookie", "a=1"), ("tenant", "7")])
    {'Cookie': '***', 'tenant': '7'}
    """

    payloads: bool = True
    hidden: frozenset[str] = frozenset(HIDDEN_HEADERS)

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return the headers, with a mask for each value that is not shown."""
        return {name: value if self.payloads and name.lower() not in self.hidden else MASK for name, value in headers}

    def error(self, attempt: Attempt) -> str:
        """Return the error of an attempt; an answer's own text may repeat the payload."""
        return attempt.error if self.payloads or attempt.kind not in _CALLS else tellable(attempt)


EVERYTHING: Final = Sight()


def hidden_headers(text: str) -> frozenset[str]:
    """Return the header names in a setting's text, which separates them by commas.

    >>> sorted(hidden_headers("Cookie, x-api-key,"))
    ['cookie', 'x-api-key']
    """
    return frozenset(name.strip().lower() for name in text.split(",") if name.strip())
