"""The fixtures: one server of each kind a run, and a fresh database for each test.

All workers share a server. The first worker that needs one starts it under a file lock and leaves its address in the
run's directory; the others attach. The controlling process stops the servers at the end; if it is killed, their
guardians do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tests.servers.database import Address, Database
from tests.servers.mariadb import MariadbServer
from tests.servers.missing import not_tested
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.server import DatabaseServer, ServerUnavailable, short_temporary_directory, stop_guardian

AnyServer = TypeVar("AnyServer", bound=DatabaseServer)
_RUN = pytest.StashKey["_Run"]()
RUN_VARIABLE = "TWOPHASE_TEST_RUN"
"""The environment variable with the run's directory.

By it the processes that a test starts find the run's servers.
"""


class _Run(msgspec.Struct, frozen=True):
    """The values on which all processes of one test run agree."""

    directory: str
    controller_pid: int


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """Agree on the run's directory; it is made when the first server needs it."""
    if _is_worker(config):
        config.stash[_RUN] = msgspec.json.decode(config.workerinput["twophase_run"], type=_Run)  # type: ignore[attr-defined]
    else:
        name = f"tp-{os.getpid()}-{secrets.token_hex(4)}"
        config.stash[_RUN] = _Run(str(Path(short_temporary_directory()) / name), os.getpid())
    os.environ[RUN_VARIABLE] = config.stash[_RUN].directory


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the run's directory to an xdist worker."""
    node.workerinput["twophase_run"] = msgspec.json.encode(node.config.stash[_RUN]).decode()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what was started, once, in the controlling process."""
    run = config.stash.get(_RUN, None)
    if run is None or _is_worker(config):
        return
    directory = Path(run.directory)
    for file in directory.glob("*.address"):
        stop_guardian(msgspec.json.decode(file.read_bytes(), type=Address))
    shutil.rmtree(directory, ignore_errors=True)


def _shared(server: DatabaseServer, run: _Run) -> DatabaseServer:
    """Return the run's server of this kind; the first process starts it."""
    directory = Path(run.directory)
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    address, failure = directory / f"{server.kind}.address", directory / f"{server.kind}.unavailable"
    with (directory / f"{server.kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if address.exists():
            return server.attach(msgspec.json.decode(address.read_bytes(), type=Address))
        if failure.exists():
            not_tested(server.part, failure.read_text())
        try:
            server.start()
        except ServerUnavailable as error:
            failure.write_text(str(error))
            not_tested(server.part, str(error))
        address.write_bytes(msgspec.json.encode(server.address))
    return server


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> PostgresServer:
    """The run's PostgreSQL."""
    run = request.config.stash[_RUN]
    server = PostgresServer(Path(run.directory), run.controller_pid)
    _shared(server, run)
    return server


@pytest.fixture(scope="session")
def mariadb_server(request: pytest.FixtureRequest) -> MariadbServer:
    """The run's MariaDB."""
    run = request.config.stash[_RUN]
    server = MariadbServer(Path(run.directory), run.controller_pid)
    _shared(server, run)
    return server


@pytest.fixture(scope="session")
def redis_server(request: pytest.FixtureRequest) -> RedisServer:
    """The run's Redis."""
    run = request.config.stash[_RUN]
    server = RedisServer(Path(run.directory), run.controller_pid)
    _shared(server, run)
    return server


@contextlib.contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """Run a server of a test's own for the block's time.

    When this machine has none, the summary names it.
    """
    try:
        server.start()
    except ServerUnavailable as error:
        not_tested(server.part, str(error))
    try:
        yield server
    finally:
        server.stop()


def _fresh(server: DatabaseServer) -> Iterator[Database]:
    name = f"test_{secrets.token_hex(6)}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[Database]:
    """A fresh PostgreSQL database."""
    yield from _fresh(postgres_server)


@pytest.fixture
def redis_database(redis_server: RedisServer) -> Iterator[Database]:
    """A prefix of keys in the run's Redis, used by this test alone."""
    yield from _fresh(redis_server)


@pytest.fixture
def mariadb_database(mariadb_server: MariadbServer) -> Iterator[Database]:
    """A fresh MariaDB database."""
    yield from _fresh(mariadb_server)
