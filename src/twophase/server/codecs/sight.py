"""The part of a message that a caller is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_plus

import msgspec

from twophase.coordinator.dispatch.evidence import tellable
from twophase.core.queue_message import PROPERTY, QUEUE_PREFIX
from twophase.stores.rows import Attempt, AttemptKind

HIDDEN_HEADERS: Final = ("authorization", "cookie", "x-api-key", "proxy-authorization")
MASK: Final = "***"
_BETWEEN: Final = re.compile(r"[;\s]+")
_CALLS: Final = frozenset({AttemptKind.BRANCH, AttemptKind.CHECK_BACK})


class Sight(msgspec.Struct, frozen=True):
    """The part of each message that is shown.

    `payloads`: its payloads, the values of its headers and properties, and the texts of answers, too. `hidden`: headers
    and properties whose values are never shown, in lower case.

    >>> Sight(True, frozenset({"cookie"})).headers([("Cookie", "a=1"), ("tenant", "7")])
    {'Cookie': '***', 'tenant': '7'}
    """

    payloads: bool = True
    hidden: frozenset[str] = frozenset(HIDDEN_HEADERS)

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return the headers, with a mask for each value that is not shown."""
        return {name: value if self.payloads and name.lower() not in self.hidden else MASK for name, value in headers}

    def address(self, url: str) -> str:
        """Return an address as it is shown.

        One of a queue has a mask for each property's value that is not shown.
        The properties of a queue's message are what headers are to a call.

        >>> Sight(payloads=False).address("queue://orders?id=7&p.card=4111"), Sight().address("http://b/in?p.a=1")
        ('queue://orders?id=7&p.card=***', 'http://b/in?p.a=1')
        """
        if not url.startswith(QUEUE_PREFIX) or "?" not in url:
            return url
        base, _, query = url.partition("?")
        pairs = [pair.partition("=") for pair in query.split("&")]
        return f"{base}?{'&'.join([f'{name}{sign}{self._value(name, value)}' for name, sign, value in pairs])}"

    def _value(self, name: str, value: str) -> str:
        name = unquote_plus(name)
        if not name.startswith(PROPERTY):
            return value
        return value if self.payloads and name.removeprefix(PROPERTY).lower() not in self.hidden else MASK

    def error(self, attempt: Attempt) -> str:
        """Return the error of an attempt; an answer's own text may repeat the payload."""
        return attempt.error if self.payloads or attempt.kind not in _CALLS else tellable(attempt)


EVERYTHING: Final = Sight()


def hidden_headers(text: str) -> frozenset[str]:
    """Return the header names in a setting's text, which separates them by commas.

    Where spaces or semicolons separate them, each is hidden too: a missing comma must show no secret. The name of a
    property may contain both.

    >>> sorted(hidden_headers("Cookie, x-api-key,")), sorted(hidden_headers("cookie; tenant"))
    (['cookie', 'x-api-key'], ['cookie', 'cookie; tenant', 'tenant'])
    """
    names = [name.strip() for name in text.lower().split(",")]
    return frozenset([*names, *(word for name in names for word in _BETWEEN.split(name))]) - {""}
