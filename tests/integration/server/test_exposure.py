"""A server refuses an address that is not loopback.

It serves one where it knows its clients, or where its operator opens it on purpose.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.running import running
from tests.servers.database import Database
from tests.support.fake_coordinator import Client, get, post
from tests.support.identities import bearer, token_of, write
from tests.support.server_process import ServerProcess, serving
from tests.support.waiting import until
from twophase.server.app import EXIT_CONFIGURATION
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import changing

LINES = [
    "  twophase token add NAME --scope produce --tokens tokens.toml",
    "  set tls_client_ca",
    "  start with --allow-anonymous",
]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_an_open_address_is_refused_with_the_three_lines_that_mend_it(tmp_path: Path, host: str) -> None:
    server = await ServerProcess.spawn("--host", host, "--port", "0", cwd=tmp_path)
    code, errors = await server.ended()
    assert code == EXIT_CONFIGURATION
    assert errors.startswith(f"TP-7000: host: other machines reach {host}")
    assert [line[: len(begin)] for line, begin in zip(errors.splitlines()[1:], LINES, strict=True)] == LINES
    assert not (tmp_path / "twophase.db").exists()


@pytest.mark.postgres
async def test_workers_refuse_it_too(tmp_path: Path, postgres_database: Database) -> None:
    arguments = ("--host", "0.0.0.0", "--port", "0", "--workers", "2", "--store", postgres_database.dsn)
    server = await ServerProcess.spawn(*arguments, cwd=tmp_path)
    code, errors = await server.ended()
    assert code == EXIT_CONFIGURATION
    assert LINES[2] in errors


async def test_who_lets_everybody_in_is_warned_once_and_sees_it_in_a_metric(tmp_path: Path) -> None:
    server = await ServerProcess.spawn("--host", "0.0.0.0", "--port", "0", "--allow-anonymous", cwd=tmp_path)
    try:
        assert server.process.stdout is not None
        ready = (await server.process.stdout.readline()).decode()
        server.port = int(ready.split("http://0.0.0.0:")[1].split()[0])
        metrics = await server.ask(get("/metrics"))
        assert b"\ntwophase_anonymous 1.0" in metrics.body
        server.process.send_signal(signal.SIGTERM)
        _, errors = await server.ended()
    finally:
        await server.kill()
    assert errors.count("allow_anonymous is set") == 1


@pytest.mark.parametrize("settings", [{}, {"allow_anonymous": True}, {"host": "localhost"}])
async def test_loopback_needs_nothing(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with running(tmp_path, **settings) as server:
        assert not server.server.metrics.anonymous


async def test_with_tokens_an_open_address_is_served_to_those_who_have_one(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    async with running(tmp_path, host="0.0.0.0", tokens=tokens) as server:
        assert not server.server.metrics.anonymous


def _revoke(file: str, name: str) -> None:
    with changing(Path(file)) as entries:
        entries[:] = [entry for entry in entries if entry.name != name]


def _let_read(file: str, mode: int) -> None:
    Path(file).chmod(mode)


async def _statuses(server: ServerProcess, *names: str) -> list[int]:
    return [(await server.ask(get("/api/dtmsvr/newGid", *bearer(name)))).status for name in names]


async def _until_logged(server: ServerProcess, text: str, times: int = 1) -> None:
    assert server.process.stderr is not None
    for _ in range(times):
        while text not in (line := (await server.process.stderr.readline()).decode()):
            assert line, f"{text!r} is logged"


async def test_the_file_is_read_again_at_sighup(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    async with serving(tmp_path, "--tokens", tokens) as server:
        body = b'{"gid":"g","trans_type":"msg","steps":[],"payloads":[]}'
        client = await server.connect()
        submit = post("/api/dtmsvr/submit", body, *bearer("orders"))
        assert (await client.ask(submit)).status == 200
        write(tmp_path, "stock", [Scope.PRODUCE])
        _revoke(tokens, "orders")
        assert await _statuses(server, "orders", "stock") == [200, 401]
        server.process.send_signal(signal.SIGHUP)
        await _until_logged(server, "the tokens were read again")
        assert await _statuses(server, "orders", "stock") == [401, 200]
        assert (await client.ask(submit)).status == 401
        client.close()


async def test_a_file_that_cannot_be_read_again_leaves_the_tokens_in_force(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    async with serving(tmp_path, "--tokens", tokens) as server:
        _let_read(tokens, 0o644)
        server.process.send_signal(signal.SIGHUP)
        await _until_logged(server, "the earlier ones stay in force")
        assert await _statuses(server, "orders") == [200]


@pytest.mark.postgres
async def test_every_worker_reads_the_file_again(tmp_path: Path, postgres_database: Database) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    arguments = ("--workers", "2", "--store", postgres_database.dsn, "--tokens", tokens)
    async with serving(tmp_path, *arguments) as server:
        write(tmp_path, "stock", [Scope.PRODUCE])
        _revoke(tokens, "orders")
        server.process.send_signal(signal.SIGHUP)
        await _until_logged(server, "the tokens were read again", times=2)
        for _ in range(20):  # the kernel spreads the connections over the workers
            assert await _statuses(server, "orders", "stock") == [401, 200]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
async def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    _let_read(tokens, mode)
    server = await ServerProcess.spawn("--port", "0", "--tokens", tokens, cwd=tmp_path)
    code, errors = await server.ended()
    assert code == EXIT_CONFIGURATION
    assert f"others may read {tokens}" in errors
    assert f"chmod 600 {tokens}" in errors
    assert token_of("orders") not in errors


async def test_tokens_and_anonymous_clients_exclude_each_other(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    server = await ServerProcess.spawn("--port", "0", "--tokens", tokens, "--allow-anonymous", cwd=tmp_path)
    code, errors = await server.ended()
    assert code == EXIT_CONFIGURATION
    assert "allow_anonymous" in errors


async def test_a_request_under_way_at_sighup_leaves_no_revoked_token_behind(tmp_path: Path) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    body = b'{"gid":"g","trans_type":"msg","steps":[],"payloads":[]}'
    async with running(tmp_path, tokens=tokens) as one:
        client = Client(*await asyncio.open_connection("127.0.0.1", one.port))
        submit = post("/api/dtmsvr/submit", body, *bearer("orders"))
        head = submit[: -len(body)]
        await client.send(head)
        await until(lambda: any(connection.reading for connection in one.server.listener.port.state.connections))  # type: ignore[union-attr]
        _revoke(tokens, "orders")
        one.server.reread()
        assert (await client.ask(body)).status == 401
        assert (await client.ask(submit)).status == 401
        assert (await client.ask(submit)).status == 401
        client.close()
