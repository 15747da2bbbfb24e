"""Receipts of deliveries: the handles by which consumers name what they have.

A handle counts in the process that made it, and for one group and topic; consumers take it as it is.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from typing import Final, NamedTuple

from twophase.core.errors import ReceiptInvalid, ReceiptStale

_PARTS: Final = 5
_DIGITS_MAX: Final = 20
_INCARNATION_BYTES: Final = 6
_PLACE_DIGITS: Final = 12
_PLACES_MAX: Final = 4096
"""Places that are not computed again."""


class Receipt(NamedTuple):
    """A delivery, as a handle names it.

    `number`: of the entry in its queue. `delivery`: 0 for one of another process.
    """

    queue: int
    number: int
    delivery: int


@functools.lru_cache(_PLACES_MAX)
def place_of(group: str, topic: str) -> str:
    """Return the part of a handle that stands for a group and its topic.

    >>> place_of("billing", "orders"), place_of("bill", "ingorders") == place_of("billing", "orders")
    ('c1b0c008f0c7', False)
    """
    named = f"{len(group)}:{group}{topic}"
    return hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()[:_PLACE_DIGITS]


class Receipts:
    """The receipts of one process.

    >>> receipts, place = Receipts(), place_of("billing", "orders")
    >>> receipts.read(receipts.handle(place, 2, 17, receipts.next()), place)
    Receipt(queue=2, number=17, delivery=1)
    >>> Receipts().read(receipts.handle(place, 2, 17, receipts.next()), place).delivery
    0
    """

    def __init__(self) -> None:
        self._incarnation = secrets.token_hex(_INCARNATION_BYTES)
        self._last = 0

    def next(self) -> int:
        """Return a number for another delivery, or for an extension."""
        self._last += 1
        return self._last

    def handle(self, place: str, queue: int, number: int, delivery: int) -> str:
        """Return the handle of a delivery. `place`: of its group and topic."""
        return f"{self._incarnation}-{place}-{queue}-{number}-{delivery}"

    def read(self, handle: str, place: str) -> Receipt:
        """Return the delivery that a handle names at a place.

        Raises:
            ReceiptInvalid: nothing made it.
            ReceiptStale: it was made for another group or topic, whose numbers mean other messages.
        """
        parts = handle.split("-")
        if len(parts) != _PARTS or not all(part.isascii() and part.isdigit() for part in parts[2:]):
            raise ReceiptInvalid
        if parts[1] != place:
            raise ReceiptStale(is_superseded=False)  # in the words for a receipt that is unknown
        queue, number, delivery = (int(part[:_DIGITS_MAX]) for part in parts[2:])
        return Receipt(queue, number, delivery if parts[0] == self._incarnation else 0)
