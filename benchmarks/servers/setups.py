"""The stores and servers that a benchmark starts; `--setup` names them.

Each lives in a directory of its own on a real disk, with every setting at its default: durable, fsync on.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.servers.postgres import Postgres, postgres
from benchmarks.servers.processes import Process
from benchmarks.servers.started import Scheme, Started, coordinator, directory_on_disk
from twophase.core.errors import ConfigurationError

STORE_DATABASE: Final = "coordinator"
BUSINESS_DATABASE: Final = "business"


class Store(msgspec.Struct, frozen=True):
    """A store that no server uses yet, or that none uses any more."""

    kind: str
    url: str
    execute: Callable[[str], None]
    """Run SQL on it, past any server; for seeding."""
    processes: tuple[Process, ...] = ()
    business_url: str = ""

    @contextlib.contextmanager
    def served(self, settings: Sequence[str] = (), scheme: Scheme = Scheme.HTTP) -> Iterator[Started]:
        """Run a server on it until the block ends."""
        with coordinator(self.kind, self.url, settings, scheme) as started:
            processes = (*started.processes, *self.processes)
            yield msgspec.structs.replace(started, processes=processes, business_url=self.business_url)


@contextlib.contextmanager
def sqlite_store(parent: Path | None = None) -> Iterator[Store]:
    """Yield a SQLite file."""
    with directory_on_disk(parent) as directory:
        file = directory / "bench.db"
        yield Store("sqlite", f"sqlite:///{file}", lambda sql: _execute(file, sql))


def _execute(file: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.executescript(sql)


@contextlib.contextmanager
def postgres_store(parent: Path | None = None) -> Iterator[Store]:
    """Yield a database in a PostgreSQL of its own, with one for applications."""
    with postgres(parent) as server:
        yield store_in(server, STORE_DATABASE, server.create(BUSINESS_DATABASE))


def store_in(server: Postgres, name: str, business_url: str = "") -> Store:
    """Return a new database of a running PostgreSQL."""
    url = server.create(name)
    return Store("postgres", url, lambda sql: server.execute(name, sql), (server.process,), business_url)


Stores = Callable[[Path | None], AbstractContextManager[Store]]
SETUPS: Final[dict[str, Stores]] = {"sqlite": sqlite_store, "postgres": postgres_store}


def store(kind: str, parent: Path | None = None) -> AbstractContextManager[Store]:
    """Return a new store.

    Raises:
        ConfigurationError: no such kind.
    """
    if kind not in SETUPS:
        raise ConfigurationError(f"--setup {kind}: {' or '.join(SETUPS)} is possible.", remedy="Choose one of these.")
    return SETUPS[kind](parent)


@contextlib.contextmanager
def set_up(
    kind: str, parent: Path | None = None, scheme: Scheme = Scheme.HTTP, settings: Sequence[str] = ()
) -> Iterator[Started]:
    """Run the server on a new store; raises as `store`."""
    with store(kind, parent) as made, made.served(settings, scheme) as started:
        yield started
