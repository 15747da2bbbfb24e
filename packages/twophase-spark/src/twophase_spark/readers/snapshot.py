"""One snapshot of one database for one task, as Arrow batches.

They come through ADBC where it is installed, else through the driver. Both ways run the same statement in the same kind
of transaction (read only, one snapshot from its first statement to its last) and give the same batches; ADBC fills
Arrow's memory in C, a driver makes every value a Python object first.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from twophase.core.errors import CannotRead, ConfigurationError
from twophase_spark.locations import Location
from twophase_spark.readers.database import BUSY_SECONDS_MAX, CONNECT_SECONDS_MAX, open_database, reported

AUTO, ADBC, PYTHON = "auto", "adbc", "python"
ROWS_PER_BATCH = 65_536
BYTES_PER_BATCH = 1024 * 1024
"""Bytes of a batch of PostgreSQL, whose driver would otherwise collect 16 MiB."""
ADBC_MODULES = {"sqlite": "adbc_driver_sqlite", "postgresql": "adbc_driver_postgresql"}

Types = Mapping[str, pa.DataType]
Run = Callable[[str, Types], Iterator[pa.RecordBatch]]
"""Runs a statement.

`Types`: of columns whose type a driver's values may not show (all null, for one).
"""


def has_adbc(engine: str) -> bool:
    """Return True when the ADBC driver of an engine is installed here."""
    module = ADBC_MODULES.get(engine)
    return module is not None and importlib.util.find_spec(module) is not None


@contextlib.contextmanager
def open_snapshot(location: Location, driver: str, snapshot: str = "", *, typed: bool = True) -> Iterator[Run]:
    """Open a snapshot of the database at `location`, for the block's time.

    Arguments:
        driver: auto, adbc or python.
        snapshot: of PostgreSQL only, what pg_export_snapshot() returned elsewhere; empty for one of its own.
        typed: the columns hold one type each and no nulls but of whole numbers; SQLite's ADBC driver needs that,
            because it takes a column's type from the first rows.

    Raises:
        CannotRead: no such database, no such driver, or the snapshot is gone.
    """
    assert not snapshot or location.engine == "postgresql", "refused where the place was looked up"
    possible = location.engine in ADBC_MODULES and (typed or location.engine != "sqlite")
    if driver == ADBC and not possible:
        raise ConfigurationError(f"Option driver: there is no ADBC for this table of {location.engine}; use auto.")
    if driver != PYTHON and possible and (driver == ADBC or has_adbc(location.engine)):
        with _adbc(location, snapshot) as run:
            yield run
    else:
        with _driver(location, snapshot) as run:
            yield run


@contextlib.contextmanager
def _driver(location: Location, snapshot: str) -> Iterator[Run]:
    with open_database(location, snapshot=snapshot) as database:

        def run(statement: str, types: Types) -> Iterator[pa.RecordBatch]:
            for names, lot in database.named_lots(statement):
                columns = zip(*lot, strict=True)
                with reported(location):
                    arrays = [of_type(values, types.get(name)) for name, values in zip(names, columns, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=names)

        yield run


def of_type(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    """Return a driver's values as an array of a type; None for the type they have.

    SQLite keeps a fraction in a column of whole numbers, and Arrow would cut it off.

    Raises:
        ArrowInvalid, ArrowTypeError: a value is not of this type.
    """
    if kind is None or not pa.types.is_integer(kind):
        return pa.array(values, kind)
    made = pa.array(values)
    return made if made.type == kind else made.cast(kind)


@contextlib.contextmanager
def _adbc(location: Location, snapshot: str) -> Iterator[Run]:
    with contextlib.ExitStack() as stack:
        with reported(location):
            connection = stack.enter_context(_CONNECT[location.engine](location))
            for statement in _first_statements(location.engine, snapshot):
                with connection.cursor() as cursor:
                    cursor.execute(statement)

        def run(statement: str, _: Types) -> Iterator[pa.RecordBatch]:
            with reported(location), connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**_BATCHES[location.engine])
                cursor.execute(statement)
                for batch in cursor.fetch_record_batch():
                    if batch.num_rows:
                        yield batch

        yield run


_BATCHES = {
    "sqlite": {"adbc.sqlite.query.batch_rows": str(ROWS_PER_BATCH)},
    "postgresql": {"adbc.postgresql.batch_size_hint_bytes": str(BYTES_PER_BATCH)},
}


def _first_statements(engine: str, snapshot: str) -> list[str]:
    if engine == "sqlite":
        return [f"pragma busy_timeout = {BUSY_SECONDS_MAX * 1000}"]
    own = "set transaction isolation level repeatable read read only"
    return [own, f"set transaction snapshot '{snapshot}'"] if snapshot else [own]


def _adbc_sqlite(location: Location) -> Any:
    from pathlib import Path  # noqa: PLC0415

    from adbc_driver_sqlite import dbapi  # noqa: PLC0415 -- an extra

    if not Path(location.path).is_file():
        raise CannotRead(f"{location.role} {location.name}: there is no file {location.path}.")
    return dbapi.connect(f"file:{quote(location.path)}?mode=ro")


def _adbc_postgresql(location: Location) -> Any:
    from adbc_driver_postgresql import dbapi  # noqa: PLC0415 -- an extra

    bound = "" if "connect_timeout=" in location.url else f"connect_timeout={CONNECT_SECONDS_MAX}"
    joint = "&" if "?" in location.url else "?"
    return dbapi.connect(f"{location.url}{joint}{bound}" if bound else location.url)


_CONNECT: dict[str, Callable[[Location], Any]] = {"sqlite": _adbc_sqlite, "postgresql": _adbc_postgresql}
