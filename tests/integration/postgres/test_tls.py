"""TLS to the database.

The certificate must be trusted and name the host when the URL asks for it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
import trustme

from tests.integration.postgres.refusals import refusal
from tests.servers.database import Database
from tests.servers.plugin import running
from tests.servers.postgres import CERTIFIED, PostgresServer
from tests.support.items import flush, prepare
from twophase.core.errors import ConfigurationError, StoreDenied
from twophase.stores.postgres import PostgresStore

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_server(authority: trustme.CA) -> Iterator[PostgresServer]:
    """A server that speaks TLS only; its certificate names localhost, not 127.0.0.1."""
    with running(PostgresServer(certificate=authority.issue_cert("localhost"), clients=authority)) as server:
        yield server


@pytest.fixture
def database(tls_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Database]:
    name = f"tls_{abs(hash(request.node.name))}"
    yield tls_server.create_database(name)
    tls_server.drop_database(name)


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path) -> Path:
    """The file of the authority that signed the server's certificate."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """The file of another authority."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    return tmp_path / "other.pem"


def _by_name(database: Database) -> str:
    return database.dsn.replace("127.0.0.1", "localhost")


@contextlib.asynccontextmanager
async def _store(url: str) -> AsyncIterator[None]:
    """Run a store that works."""
    store = PostgresStore(url, outage_wait_ms=30_000)
    await store.start()
    try:
        assert (await flush(store, prepare("g"))).refused == {}
        assert await store.get("g") is not None
        yield
    finally:
        await store.stop()


def _encrypted(database: Database) -> set[bool]:
    """Return the values of `ssl` over the twophase server's connections."""
    with psycopg.connect(database.dsn) as connection:
        found = connection.execute(
            "select ssl from pg_stat_ssl join pg_stat_activity using (pid) "
            "where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchall()
    return {ssl for (ssl,) in found}


@pytest.mark.parametrize("mode", ["", "?sslmode=prefer", "?sslmode=require"])
async def test_without_verification_the_wire_is_encrypted(database: Database, mode: str) -> None:
    async with _store(database.dsn + mode):
        assert _encrypted(database) == {True}


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
async def test_the_right_authority_and_name_are_accepted(database: Database, trusted: Path, mode: str) -> None:
    url = f"{_by_name(database)}?sslmode={mode}&sslrootcert={trusted}"
    async with _store(url):
        assert _encrypted(database) == {True}


async def test_verify_ca_does_not_ask_for_the_name(database: Database, trusted: Path) -> None:
    async with _store(f"{database.dsn}?sslmode=verify-ca&sslrootcert={trusted}"):
        assert _encrypted(database) == {True}


async def test_verify_full_refuses_another_name(database: Database, trusted: Path) -> None:
    error = await refusal(f"{database.dsn}?sslmode=verify-full&sslrootcert={trusted}")

    assert isinstance(error, ConfigurationError)
    assert "certificate" in error.message


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
async def test_an_unknown_authority_is_refused(database: Database, stranger: Path, mode: str) -> None:
    error = await refusal(f"{_by_name(database)}?sslmode={mode}&sslrootcert={stranger}")

    assert isinstance(error, ConfigurationError)
    assert "certificate" in error.message


@pytest.fixture
def certified(database: Database) -> Iterator[str]:
    """The URL of a role that logs in by a certificate, without one."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(f"create role {CERTIFIED} login".encode())
        connection.execute(f"grant create on schema public to {CERTIFIED}".encode())
        yield f"postgresql://{CERTIFIED}@127.0.0.1:{database.port}/{database.name}?sslmode=require"
        connection.execute(f"drop owned by {CERTIFIED}; drop role {CERTIFIED}".encode())


async def test_a_certificate_of_the_client_s_own_lets_it_in(
    certified: str, authority: trustme.CA, tmp_path: Path
) -> None:
    own = authority.issue_cert(common_name=CERTIFIED)
    own.private_key_pem.write_to_path(tmp_path / "own.key")
    own.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")

    assert isinstance(await refusal(certified), StoreDenied)
    async with _store(f"{certified}&sslcert={tmp_path / 'own.pem'}&sslkey={tmp_path / 'own.key'}"):
        pass


async def test_a_file_of_authorities_that_is_not_there_is_named(tmp_path: Path, database: Database) -> None:
    error = await refusal(f"{_by_name(database)}?sslmode=verify-full&sslrootcert={tmp_path / 'none.pem'}")

    assert "none.pem" in error.message


async def test_no_tls_towards_a_server_that_demands_it_is_refused(database: Database) -> None:
    error = await refusal(f"{database.dsn}?sslmode=disable")

    assert isinstance(error, StoreDenied)
    assert re.search("no encryption|SSL off", error.message), "so PostgreSQL says it since 14, and before"


async def test_tls_from_a_server_that_has_none_is_refused(postgres_database: Database) -> None:
    error = await refusal(f"{postgres_database.dsn}?sslmode=require")

    assert isinstance(error, ConfigurationError)
    assert "SSL" in error.message
