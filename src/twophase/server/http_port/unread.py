"""The answers that a client has not taken yet, in the budget of bytes.

An answer of megabytes waits in memory while its client reads nothing, so one client with many connections could fill
the memory with them. An answer counts from the time it is made until the transport has passed it on.

Invariant: the account keeps the answer under way and those that wait in the transport.
"""

from __future__ import annotations

from twophase.http_client.byte_budget import Account


class UnreadAnswers:
    """The answers of one connection.

    Arguments:
        account: of the connection, for its answers alone.

    >>> from twophase.http_client.byte_budget import MEBIBYTE, ByteBudget
    >>> unread = UnreadAnswers(ByteBudget(10 * MEBIBYTE).account("192.0.2.1"))
    >>> unread.keep(5 * MEBIBYTE), unread.written(waits=True), unread.keep(5 * MEBIBYTE)
    (True, None, False)
    >>> unread.drained()
    >>> unread.keep(5 * MEBIBYTE)
    True
    """

    __slots__ = ("_account", "_answer", "_gone", "_waiting")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._answer = 0
        self._waiting = 0
        self._gone = False

    def keep(self, size: int) -> bool:
        """Count the answer under way, of `size` bytes; False when there is no room for it.

        Safe to repeat for the same answer. Without a client there is nothing to count.
        """
        if self._gone:
            return True
        if not self._account.keep(self._waiting + size):
            return False
        self._answer = size
        return True

    def written(self, *, waits: bool) -> None:
        """Note that the answer is written; `waits`: the transport could not pass it on."""
        self._waiting = self._waiting + self._answer if waits else 0
        self._answer = 0
        self._account.keep(self._waiting)

    def drained(self) -> None:
        """Note that the transport has passed on what was written."""
        self._waiting = 0
        self._account.keep(self._answer)

    def forget(self) -> None:
        """Count nothing any more: the client has gone."""
        self._gone = True
        self._account.release()
