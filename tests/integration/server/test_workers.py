"""`twophase server --workers N` runs several processes on one port.

Each is a node of the shared store.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.servers.database import Database
from tests.support.fake_coordinator import get
from tests.support.server_process import BranchService, ServerProcess, branch_service, serving
from tests.support.waiting import until
from twophase.rocketmq_wire.codes import Permission
from twophase.rocketmq_wire.descriptors import SERVICE, kind

pytestmark = pytest.mark.postgres
_PATIENCE_S = 60.0
_MESSAGES = 40
_LEASE_MS = 600_000
"""Longer than any test: nothing comes back by adoption."""


@pytest.fixture
async def server(tmp_path: Path, postgres_database: Database) -> AsyncIterator[ServerProcess]:
    settings = ("--workers", "2", "--store", postgres_database.dsn, "--set", f"lease_ms={_LEASE_MS}")
    async with serving(tmp_path, *settings) as running:
        yield running


@pytest.fixture
async def branch() -> AsyncIterator[BranchService]:
    async with branch_service() as service:
        yield service


def _steps(branch: BranchService) -> dict[str, Any]:
    return {
        "steps": [{"action": branch.url("/in")}],
        "payloads": ["{}"],
        "query_prepared": branch.url("/check"),
    }


def _runs(pid: int) -> bool:
    """Return False for a process that has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def _metrics(server: ServerProcess) -> dict[str, dict[str, float]]:
    """Return samples: name, then labels as text, then value."""
    text = (await server.ask(get("/metrics"))).body.decode()
    samples: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


async def _until_two_answer(server: ServerProcess) -> dict[str, dict[str, float]]:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            samples = await _metrics(server)
            if samples["twophase_workers"][""] == 2 and len(samples["twophase_node"]) == 2:
                return samples
            await asyncio.sleep(0.05)


async def _until_finished(server: ServerProcess, messages: int) -> dict[str, dict[str, float]]:
    """Return the samples in which all workers have counted this many.

    Each counts after its commit.
    """
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            samples = await _until_two_answer(server)
            if sum(samples.get("twophase_messages_finished_total", {}).values()) >= messages:
                assert sum(samples["twophase_messages_finished_total"].values()) == messages
                return samples


async def test_messages_are_delivered_whichever_worker_a_request_reaches(
    server: ServerProcess, branch: BranchService
) -> None:
    """Prepare and submit often meet different workers: each is a new connection."""
    assert "2 workers" in server.ready_line
    for number in range(_MESSAGES):
        gid = f"order-{number}"
        assert (await server.post("prepare", gid=gid, **_steps(branch))).status == 200
        assert (await server.post("submit", gid=gid, **_steps(branch))).status == 200
    for number in range(_MESSAGES):
        await branch.until_called("/in", f"order-{number}")
        await server.until_state(f"order-{number}", "succeed")
    assert len({gid for path, gid in branch.calls if path == "/in"}) == _MESSAGES
    samples = await _until_finished(server, _MESSAGES)
    nodes = samples["twophase_node"]
    assert set(nodes) == {"worker=1", "worker=2"}
    assert len(set(nodes.values())) == 2
    assert samples["twophase_messages"]["state=prepared"] == 0
    assert samples["twophase_ready"][""] == 1


@pytest.mark.parametrize("kills", [pytest.param(1, id="once"), pytest.param(3, id="and while it starts")])
async def test_a_killed_worker_is_started_again_and_loses_no_message(
    server: ServerProcess, branch: BranchService, kills: int
) -> None:
    """The messages of a worker wait for no lease.

    That includes a worker whose successors are killed while they start.
    """
    before = server.workers
    assert len(before) == 2
    branch.open.clear()
    gids = [f"order-{number}" for number in range(10)]
    for gid in gids:
        assert (await server.post("submit", gid=gid, **_steps(branch))).status == 200
    killed: set[int] = set()
    victim = min(before)
    async with asyncio.timeout(_PATIENCE_S):
        while len(killed) < kills:
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
            while not (successors := server.workers - before - killed):
                await asyncio.sleep(0.005)
            (victim,) = successors
    branch.open.set()
    await _until_two_answer(server)
    for gid in gids:
        await server.until_state(gid, "succeed")


async def test_sigterm_drains_every_worker(server: ServerProcess, branch: BranchService) -> None:
    branch.open.clear()
    for number in range(10):
        assert (await server.post("submit", gid=f"order-{number}", **_steps(branch))).status == 200
    await branch.until_called("/in", "order-0")
    workers = server.workers
    asyncio.get_running_loop().call_later(0.2, branch.open.set)
    code, errors = await server.terminate()
    assert code == 0, errors
    assert not any(map(_runs, workers))


@pytest.mark.parametrize("starting", [False, True], ids=["waits to be started again", "starts again"])
async def test_sigterm_while_a_killed_worker_is_replaced_is_a_clean_end(
    server: ServerProcess, *, starting: bool
) -> None:
    before = server.workers
    victim = min(before)
    killed: set[int] = set()
    async with asyncio.timeout(_PATIENCE_S):
        for _ in range(3):  # each time the pause before the next start is longer
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
            while victim in server.workers:
                await asyncio.sleep(0.005)
            if len(killed) == 3 and not starting:
                break
            while not (successors := server.workers - before - killed):
                await asyncio.sleep(0.005)
            (victim,) = successors
    code, errors = await server.terminate()
    assert code == 0, errors


async def test_workers_end_when_their_supervisor_is_killed(server: ServerProcess) -> None:
    workers = server.workers
    server.process.kill()
    await until(lambda: not any(map(_runs, workers)))


async def test_each_log_line_names_its_worker(tmp_path: Path, postgres_database: Database) -> None:
    server = await ServerProcess.spawn(
        "--port", "0", "--workers", "2", "--store", postgres_database.dsn, "--set", "log_format=json", cwd=tmp_path
    )
    await server.until_ready()
    _, errors = await server.terminate()
    ready = [line for line in errors.splitlines() if '"ready"' in line]
    assert sorted(re.findall(r'"worker":(\d)', "".join(ready))) == ["1", "2"]


async def test_sqlite_is_refused_with_the_reason(tmp_path: Path) -> None:
    server = await ServerProcess.spawn("--port", "0", "--workers", "2", cwd=tmp_path)
    code, errors = await server.ended()
    assert code == 2
    assert "workers: 2 processes cannot serve a SQLite store" in errors
    assert not (tmp_path / "twophase.db").exists()


async def test_a_first_worker_that_is_killed_while_it_starts_is_named(
    tmp_path: Path, postgres_database: Database
) -> None:
    worker_alone = "'twophase.server.workers' in sys.orig_argv"
    (tmp_path / "sitecustomize.py").write_text(f"import os, sys\nif {worker_alone}: os.kill(os.getpid(), 9)")
    arguments = ("--port", "0", "--workers", "2", "--store", postgres_database.dsn)
    server = await ServerProcess.spawn(*arguments, environment={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    code, errors = await server.ended()
    assert (code, "the first worker ended before it was ready" in errors) == (1, True), errors


async def test_a_taken_port_is_refused_once(tmp_path: Path, postgres_database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        server = await ServerProcess.spawn(
            "--port", str(port), "--workers", "2", "--store", postgres_database.dsn, cwd=tmp_path
        )
        code, errors = await server.ended()
    assert code == 2
    assert errors.count(f"cannot listen on 127.0.0.1:{port}") == 1


async def test_a_store_that_cannot_be_opened_is_reported_once(tmp_path: Path, postgres_database: Database) -> None:
    url = postgres_database.dsn.replace(f"/{postgres_database.name}", "/absent")
    server = await ServerProcess.spawn("--port", "0", "--workers", "2", "--store", url, cwd=tmp_path)
    code, errors = await server.ended()
    assert code == 2, errors
    assert errors.count('database "absent" does not exist') == 1, errors
    assert "Traceback" not in errors


async def test_each_worker_has_a_port_for_rocketmqs_clients_and_routes_name_all(
    tmp_path: Path, postgres_database: Database
) -> None:
    first = _two_free_ports()
    ports = ("--set", f"rocketmq_port={first}", "--set", "grpc_port=off")
    async with serving(tmp_path, "--workers", "2", "--store", postgres_database.dsn, *ports) as running:
        assert f"rocketmq://127.0.0.1:{first}" in running.ready_line
        found: list[set[int]] = []
        async with asyncio.timeout(_PATIENCE_S):
            while found != [{first, first + 1}] * 2:
                found = [{port for port, _ in await _route(asked)} for asked in (first, first + 1)]
        owners = [
            [port for port, permission in await _route(asked) if permission == Permission.READ_WRITE]
            for asked in (first, first + 1)
        ]
        assert owners[0] == owners[1]
        assert len(owners[0]) == 1


async def _route(port: int) -> list[tuple[int, int]]:
    """Return (port, permission) of a topic's queues, as one worker names them."""
    request = kind("QueryRouteRequest")(topic=kind("Resource")(name="orders")).SerializeToString()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary(
            f"/{SERVICE}/QueryRoute", response_deserializer=kind("QueryRouteResponse").FromString
        )
        answer = await call(request, metadata=[("x-mq-client-id", "look")], wait_for_ready=True, timeout=_PATIENCE_S)
    return [(one.broker.endpoints.addresses[0].port, one.permission) for one in answer.message_queues]


def _two_free_ports() -> int:
    """Return the first of two free ports in a row."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            number: int = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", number + 1))
            except OSError:
                continue
            return number
