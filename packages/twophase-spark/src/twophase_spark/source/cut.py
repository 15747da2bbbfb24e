"""One cut over several tables: all reads with it see one moment.

It holds for any number of jobs. PostgreSQL keeps a snapshot open and lends it to other connections by name. SQLite
cannot lend one, so it is copied: the copy is made in one step of its backup interface and is gone with the block.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from twophase.core.errors import ConfigurationError
from twophase_spark.locations import Location
from twophase_spark.readers.database import open_database
from twophase_spark.source.options.address import locate


@contextlib.contextmanager
def consistent_cut(url: str) -> Iterator[dict[str, str]]:
    """Yield options that make several reads see one moment, for the block's time.

    Arguments:
        url: as option `url`: env:NAME, file:PATH, or a URL without password.

    Example:
        with consistent_cut("env:STORE_URL") as cut:
            live = spark.read.format("twophase").options(**cut).option("table", "message").load()
            final = spark.read.format("twophase").options(**cut).option("table", "history").load()
            live.unionByName(final, allowMissingColumns=True).write.parquet("cut")

    DataFrames are lazy: a job that needs the cut must run inside the block.

    Raises:
        ConfigurationError: the database can give no such cut (MySQL), or `url` carries a password.
        CannotRead: it cannot be reached.
    """
    location = locate(url, "source")
    if location.engine == "postgresql":
        with open_database(location) as database:
            database.execute("set local idle_in_transaction_session_timeout = 0")
            [(name,)] = database.rows("select pg_export_snapshot()")
            yield {"url": url, "snapshot": str(name)}
    elif location.engine == "sqlite":
        with tempfile.TemporaryDirectory(prefix="twophase-cut-") as folder:
            yield {"url": f"sqlite:///{_copied(location, Path(folder) / 'cut.db')}"}
    else:
        raise ConfigurationError("MySQL and MariaDB lend no snapshot; read the table with partitions=1, which is one.")


def _copied(location: Location, copy: Path) -> Path:
    with open_database(location) as database, contextlib.closing(sqlite3.connect(copy)) as target:
        database.copy_to(target)
    return copy
