"""Receipts of deliveries: the handles by which consumers name what they have.

A handle counts in the process that made it; consumers take it as it is.
"""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from twophase.core.errors import ReceiptInvalid

_PARTS: Final = 4
_DIGITS_MAX: Final = 20
_INCARNATION_BYTES: Final = 6


class Receipt(NamedTuple):
    """A delivery, as a handle names it.

    `number`: of the entry in its queue. `delivery`: 0 for one of another process.
    """

    queue: int
    number: int
    delivery: int


class Receipts:
    """The receipts of one process.

    >>> receipts = Receipts()
    >>> receipts.read(receipts.handle(2, 17, receipts.next()))
    Receipt(queue=2, number=17, delivery=1)
    >>> Receipts().read(receipts.handle(2, 17, receipts.next())).delivery
    0
    """

    def __init__(self) -> None:
        self._incarnation = secrets.token_hex(_INCARNATION_BYTES)
        self._last = 0

    def next(self) -> int:
        """Return a number for another delivery, or for an extension."""
        self._last += 1
        return self._last

    def handle(self, queue: int, number: int, delivery: int) -> str:
        """Return the handle of a delivery."""
        return f"{self._incarnation}-{queue}-{number}-{delivery}"

    def read(self, handle: str) -> Receipt:
        """Return the delivery that a handle names.

        Raises:
            ReceiptInvalid: nothing made it.
        """
        parts = handle.split("-")
        if len(parts) != _PARTS or not all(part.isascii() and part.isdigit() for part in parts[1:]):
            raise ReceiptInvalid
        queue, number, delivery = (int(part[:_DIGITS_MAX]) for part in parts[1:])
        return Receipt(queue, number, delivery if parts[0] == self._incarnation else 0)
