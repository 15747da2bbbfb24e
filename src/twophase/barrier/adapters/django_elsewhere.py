"""Writes that a block's code sends to another Django database than its own.

A router (`DATABASE_ROUTERS`), `using=` or another alias' cursor may do so, and so does any use of the ORM in a block
whose transaction is not Django's. Such a write would stay when the block is rolled back, and could be lost when it
commits, so it is refused before it is executed (I1, I6). Reads are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from twophase.barrier.written import writes
from twophase.core.errors import OutsideTransaction

_SETTING: Final = "TWOPHASE_OTHER_DATABASES"


class Elsewhere:
    """The refusal of writes on every alias of this thread but the block's.

    It ends when it is released. It is an `execute_wrapper` of their connections. In a block inside a block, the inner
    one's alias counts.
    """

    def __init__(self, own: BaseDatabaseWrapper | None) -> None:
        """Begin to refuse.

        Arguments:
            own: the connection of the block; None where the block has none of Django's.
        """
        self._own = own
        self._outer = [] if own is None else [one for one in own.execute_wrappers if isinstance(one, Elsewhere)]
        self._others = [one for one in _connections() if one is not own and one.alias not in _allowed()]
        self._released = False
        for wrapper in self._outer:
            assert own is not None, "it has the wrappers"
            own.execute_wrappers.remove(wrapper)
        for other in self._others:
            other.execute_wrappers.append(self)

    def __call__(self, execute: Callable[..., Any], sql: Any, params: Any, many: Any, context: Any) -> Any:
        """Execute a statement of another alias; raises OutsideTransaction if it writes."""
        other = context["connection"]
        if not self._released and writes(_text(sql, other)):
            own = "on no alias of Django's" if self._own is None else f"on the database {self._own.alias!r}"
            where = "on what the block or function is given" if self._own is None else f"to {self._own.alias!r}"
            raise OutsideTransaction(
                f"the block's transaction is {own}, and its code writes to {other.alias!r}. The statement was not "
                "executed.",
                remedy=f"Write {where}: look at DATABASE_ROUTERS and `using=`. Or open the transaction on "
                f"{other.alias!r}. Where a write may stay although the block fails, such as a log, name its alias in "
                f"the setting {_SETTING}.",
            )
        return execute(sql, params, many, context)

    def release(self) -> None:
        """Allow everything again; a second call does nothing."""
        if self._released:
            return
        self._released = True
        for other in self._others:
            if self in other.execute_wrappers:
                other.execute_wrappers.remove(self)
        if self._own is not None:
            self._own.execute_wrappers[:0] = [one for one in self._outer if not one._released]  # noqa: SLF001 -- its kind


def refuse_all_but(handle: Any) -> Elsewhere | None:
    """Refuse writes on every alias of this thread.

    If the block's handle is a connection of Django's, its transaction refuses them already. Without settings there is
    no alias.
    """
    if isinstance(handle, BaseDatabaseWrapper) or not settings.configured:
        return None
    return Elsewhere(None)


def _connections() -> Iterator[BaseDatabaseWrapper]:
    """Return this thread's connections, one for each alias; none is opened by that."""
    for alias in connections:
        try:
            yield connections[alias]
        except (ImproperlyConfigured, ImportError):
            continue  # its driver is not installed here, so nothing can be written there


def _allowed() -> tuple[str, ...]:
    named = getattr(settings, _SETTING, None) or ()
    return (named,) if isinstance(named, str) else tuple(named)


def _text(sql: Any, connection: BaseDatabaseWrapper) -> str:
    if isinstance(sql, str):
        return sql
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    as_string = getattr(sql, "as_string", None)  # psycopg's composed statements
    return str(sql) if as_string is None else str(as_string(connection.connection))
