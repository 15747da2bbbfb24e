"""Names of datasets, by OpenLineage's rules for databases and files.

A namespace is the server, a name the table in it. Logins, passwords and parameters of a URL are in neither. The rules
have none for SQLite: its file is the namespace.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from twophase_spark.locations import Location, Role

_PORTS = {"postgresql": "5432", "mysql": "3306"}
_SCHEMES = {"postgresql": "postgres", "mysql": "mysql"}
_COORDINATOR_TABLES = ("message", "history")
_SCHEMA = "public"


class Name(NamedTuple):
    """The namespace and the name of a dataset."""

    namespace: str
    name: str


def names_of(location: Location) -> tuple[Name, ...]:
    """Return the names of the tables that an audit reads there.

    >>> from twophase_spark.locations import parse_coordinator, parse_named
    >>> names_of(parse_named(Role.PRODUCER, "a=postgresql://me:secret@db/bank?sslmode=require#pay.barrier"))
    (Name(namespace='postgres://db:5432', name='bank.pay.barrier'),)
    >>> [name.name for name in names_of(parse_coordinator("mysql://me@db:3307/twophase"))]
    ['twophase.message', 'twophase.history']
    """
    tables = _COORDINATOR_TABLES if location.role is Role.COORDINATOR else (location.table,)
    return tuple(_name(location, table) for table in tables)


def name_of_place(place: Path | str) -> Name:
    """Return the name of a folder on this machine, or of a place in an object store.

    >>> name_of_place("s3://bucket/audits/findings"), name_of_place(Path("/data/findings"))
    (Name(namespace='s3://bucket', name='audits/findings'), Name(namespace='file', name='/data/findings'))
    """
    parts = urlsplit(str(place))
    if "://" in str(place) and parts.scheme != "file":
        return Name(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.strip("/"))
    return Name("file", str(Path(parts.path if parts.scheme == "file" else place).absolute()))


def _name(location: Location, table: str) -> Name:
    if location.engine == "sqlite":
        return Name(f"sqlite://{Path(location.path).absolute()}", table)
    parts = urlsplit(location.url)
    namespace = f"{_SCHEMES[location.engine]}://{_authority(parts.netloc, _PORTS[location.engine])}"
    database = unquote(parts.path.lstrip("/"))
    if "." in table and location.engine == "mysql":  # its schemas are databases
        return Name(namespace, table)
    schema = f"{_SCHEMA}." if location.engine == "postgresql" and "." not in table else ""
    return Name(namespace, f"{database}.{schema}{table}")


def _authority(netloc: str, port: str) -> str:
    """Return HOST:PORT without a login; of several hosts, the first.

    >>> _authority("me:p@w@[::1]", "5432"), _authority("db-1,db-2:5433", "5432"), _authority("", "5432")
    ('[::1]:5432', 'db-1:5432', 'localhost:5432')
    """
    host = netloc.rpartition("@")[2].partition(",")[0] or "localhost"
    return host if ":" in host.rpartition("]")[2] else f"{host}:{port}"
