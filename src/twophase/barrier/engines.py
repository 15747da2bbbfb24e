"""The types of engines, and of the handles that they give to the application.

Nothing here runs. An engine is recognized by its shape, not by its library's class. A class of a library that is not
installed is `Any` for a type checker, and an overload that takes `Any` hides every overload behind it. Only handles are
named by their classes.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import asyncpg
    from django.db.backends.base.base import BaseDatabaseWrapper

    DjangoHandle: TypeAlias = BaseDatabaseWrapper
    AsyncpgHandle: TypeAlias = asyncpg.Connection

H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)


class SqlalchemyEngine(Protocol[H_co]):
    """SQLAlchemy's Engine gives a Connection."""

    def connect(self) -> H_co: ...

    def begin(self) -> AbstractContextManager[H_co]: ...


class ScopedSession(Protocol[H_co]):
    """SQLAlchemy's scoped_session gives the Session of its scope."""

    def __call__(self, **options: Any) -> H_co: ...

    def begin_nested(self) -> AbstractContextManager[object]: ...

    def remove(self) -> None: ...


class SqlalchemyHandle(Protocol[H_co]):
    """SQLAlchemy's Connection or Session gives itself."""

    def __enter__(self) -> H_co: ...

    def begin_nested(self) -> AbstractContextManager[object]: ...

    def in_transaction(self) -> bool: ...


class Sqlite3Connection(Protocol[H_co]):
    """A connection of sqlite3 gives itself."""

    def __enter__(self) -> H_co: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def total_changes(self) -> int: ...


class PsycopgConnection(Protocol[H_co]):
    """A connection of psycopg 3 gives itself."""

    def __enter__(self) -> H_co: ...

    def pipeline(self) -> AbstractContextManager[object]: ...


class PymysqlConnection(Protocol[H_co]):
    """A connection of PyMySQL gives itself."""

    def __enter__(self) -> H_co: ...

    def begin(self) -> None: ...

    def show_warnings(self) -> Any: ...

    def write_packet(self, payload: Any) -> Any: ...


class AsyncSqlalchemyEngine(Protocol[H_co]):
    """SQLAlchemy's AsyncEngine gives an AsyncConnection."""

    def connect(self) -> H_co: ...

    def begin(self) -> AbstractAsyncContextManager[H_co]: ...


class AsyncSqlalchemyHandle(Protocol[H_co]):
    """SQLAlchemy's AsyncConnection or AsyncSession gives itself."""

    async def __aenter__(self) -> H_co: ...

    def begin_nested(self) -> AbstractAsyncContextManager[object]: ...

    def in_transaction(self) -> bool: ...


class AiosqliteConnection(Protocol[H_co]):
    """A connection of aiosqlite gives itself."""

    async def __aenter__(self) -> H_co: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def total_changes(self) -> int: ...


class AsyncPsycopgConnection(Protocol[H_co]):
    """An asynchronous connection of psycopg 3 gives itself."""

    async def __aenter__(self) -> H_co: ...

    def pipeline(self) -> AbstractAsyncContextManager[object]: ...


class AsyncpgPool(Protocol):
    """asyncpg's Pool gives one of its connections."""

    def acquire(self) -> Any: ...

    def get_idle_size(self) -> Any: ...


class AsyncpgConnection(Protocol):
    """A connection of asyncpg gives itself."""

    def get_server_pid(self) -> Any: ...

    def is_in_transaction(self) -> Any: ...


class AsyncpgLent(Protocol):
    """A connection that asyncpg's Pool lends.

    It gives itself; its methods are made when asyncpg is imported.
    """

    _con: Any
    _holder: Any


Blocking: TypeAlias = (
    SqlalchemyEngine[H]
    | ScopedSession[H]
    | SqlalchemyHandle[H]
    | Sqlite3Connection[H]
    | PsycopgConnection[H]
    | PymysqlConnection[H]
)
"""An engine for blocking code whose handle is an `H`; a Django alias is a `str`."""

Asynchronous: TypeAlias = (
    AsyncSqlalchemyEngine[H] | AsyncSqlalchemyHandle[H] | AiosqliteConnection[H] | AsyncPsycopgConnection[H]
)
"""An engine for asyncio whose handle is an `H`."""

Asyncpg: TypeAlias = AsyncpgPool | AsyncpgConnection | AsyncpgLent
"""An engine for asyncio whose handle is a connection of asyncpg.

Its overload is the first: without stubs a type checker finds every attribute in a lent connection, so every shape.
"""
