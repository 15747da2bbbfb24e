"""Servers with their store, started for a benchmark: what `--setup` names.

Each lives in a directory of its own on a real disk, with every setting at its default: durable, fsync on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from twophase.bench.postgres import postgres
from twophase.bench.started import Started, coordinator, directory_on_disk
from twophase.core.errors import ConfigurationError

STORE_DATABASE: Final = "coordinator"
BUSINESS_DATABASE: Final = "business"


@contextlib.contextmanager
def sqlite_server(parent: Path | None = None, settings: Sequence[str] = ()) -> Iterator[Started]:
    """The server on SQLite."""
    with (
        directory_on_disk(parent) as directory,
        coordinator("sqlite", f"sqlite:///{directory}/bench.db", settings) as started,
    ):
        yield started


@contextlib.contextmanager
def postgres_server(parent: Path | None = None, settings: Sequence[str] = ()) -> Iterator[Started]:
    """The server on a PostgreSQL of its own, which also has a database for applications."""
    with postgres(parent) as database:
        store_url, business_url = database.create(STORE_DATABASE), database.create(BUSINESS_DATABASE)
        with coordinator("postgres", store_url, settings) as started:
            processes = (*started.processes, database.process)
            yield msgspec.structs.replace(started, processes=processes, business_url=business_url)


Setup = Callable[[Path | None], AbstractContextManager[Started]]
SETUPS: Final[dict[str, Setup]] = {"sqlite": sqlite_server, "postgres": postgres_server}


def set_up(kind: str, parent: Path | None = None) -> AbstractContextManager[Started]:
    """The server on a store started for it.

    Raises:
        ConfigurationError: no such store.
    """
    if kind not in SETUPS:
        raise ConfigurationError(f"--setup {kind}: {' or '.join(SETUPS)} is possible.", remedy="Choose one of these.")
    return SETUPS[kind](parent)
