"""Open blocks, and what their code writes beside them.

A block's code may write on a SQLAlchemy connection or session of its own, or on a Django alias. Such a write would stay
when the block is rolled back, come again with each call of a branch, or be lost although the message is delivered. So
it is refused (I1, I2, I6). Reads are not. A block is known to the code that runs in its context, which threads and
tasks that it starts may have too.

A block ends with its owner, too: an exception of a signal's handler may have cut its own end off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import ReferenceType, ref

if TYPE_CHECKING:
    from twophase.barrier.adapters.django_elsewhere import Elsewhere
    from twophase.core.errors import OutsideTransaction

_current: Final[ContextVar[ReferenceType[Block] | None]] = ContextVar("twophase_block", default=None)


def watched() -> bool:
    """Return True where a library is loaded whose writes can be seen."""
    return "sqlalchemy" in sys.modules or "django.db" in sys.modules


def open_blocks() -> Iterator[Block]:
    """Yield the open blocks of this context, the innermost first."""
    reference = _current.get()
    while reference is not None and (block := reference()) is not None:
        if block.is_open:
            yield block
        reference = block.outer


class Block:
    """The time in which the application's code runs in a transaction.

    Arguments:
        handle: what the code executes its statements on.
    """

    __slots__ = ("__weakref__", "_elsewhere", "handle", "handled", "is_open", "lost", "outer", "sessions")

    def __init__(self, handle: Any) -> None:
        """Refuse writes beside the handle from now on."""
        self.handle = handle
        self.is_open = True
        self.handled: Final = id(sys.exc_info()[1])
        """The id of the error that is handled around the block, or of None."""
        outer = next(open_blocks(), None)
        self.outer = None if outer is None else ref(outer)
        self.sessions: dict[int, Any] = {}
        """SQLAlchemy's sessions that the code has begun to use, by their ids.

        The handle is not among them.
        """
        self.lost: OutsideTransaction | None = None
        """The error of a session that the code has closed with unwritten changes."""
        self._elsewhere: Elsewhere | None = None
        if "sqlalchemy" in sys.modules:
            from twophase.barrier.adapters import sqlalchemy_beside  # noqa: PLC0415 -- an extra

            sqlalchemy_beside.watch()
        if "django.db" in sys.modules:
            from twophase.barrier.adapters import django_elsewhere  # noqa: PLC0415 -- an extra

            self._elsewhere = django_elsewhere.refuse_all_but(handle)
        _current.set(ref(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, seen: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a branch's block; raises OutsideTransaction, as `end` returns it.

        A branch's error becomes an answer. So a framework ends its dependencies as after a success, and one of them
        may commit its session.
        """
        outside = self.end(seen, keep_unwritten=seen is not None)
        if outside is not None:
            raise outside

    def end(self, seen: BaseException | None, *, keep_unwritten: bool = False) -> OutsideTransaction | None:
        """Allow everything again, except to write refused changes of a session.

        Arguments:
            seen: what the code raised.
            keep_unwritten: refuse later what sessions hold although the code raised.

        Returns:
            The error of a block that ended well, and left or closed a session with unwritten changes. They would be
            lost, or written behind the commit.
        """
        self.is_open = False
        reference = _current.get()
        if reference is not None and reference() is self:
            _current.set(self.outer)
        if self._elsewhere is not None:
            self._elsewhere.release()
        sessions, self.sessions = self.sessions, {}
        outside = None if seen is not None else self.lost
        if sessions and (keep_unwritten or seen is None):
            from twophase.barrier.adapters import sqlalchemy_beside  # noqa: PLC0415 -- an extra

            unwritten = sqlalchemy_beside.keep_unwritten(self.handle, sessions.values())
            outside = (outside or unwritten) if seen is None else None
        self.handle = None
        return outside
