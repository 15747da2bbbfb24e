"""A service with a wrong check address is warned before anything fails.

A real server probes a real application.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import msgspec
import pytest
import sqlalchemy
from flask import Flask
from werkzeug.serving import make_server

from benchmarks.servers.ports import KeptPort
from tests.integration.server.test_observability import _scrape
from tests.integration.server.webhook import sink
from tests.support.fake_coordinator import get, post
from tests.support.http_server import served
from tests.support.server_process import ServerProcess, serving
from twophase import Message
from twophase.barrier import install
from twophase.coordinator.maintenance.probing import AGAIN_MS, FIRST_MS
from twophase.core.probe import PROBE_PATH, ProbeAsked, ProbeShown, ShownAddresses
from twophase.integrations.flask import check_blueprint
from twophase.integrations.grpc import check_handler


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[sqlalchemy.Engine]:
    """A producer's database."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'bank.db'}")
    install(engine)
    yield engine
    engine.dispose()


@contextlib.contextmanager
def running(app: Flask) -> Iterator[str]:
    """Run an application behind a port of its own; yields its address."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    with served(server):
        yield f"http://127.0.0.1:{server.port}"


def transfer(server: str, service: str, engine: sqlalchemy.Engine) -> None:
    """Send a message as a service does."""
    message = Message(server).add(f"{service}/in", {})
    with message.transaction(engine, check=f"{service}/twophase/check"):
        pass


async def test_a_service_without_the_route_is_reported_within_a_minute(tmp_path: Path, bank: sqlalchemy.Engine) -> None:
    app = Flask("without a check-back route")
    app.post("/in")(lambda: "")
    assert FIRST_MS + AGAIN_MS < 60_000
    async with sink() as hook, serving(tmp_path, "--set", f"alert_webhook={hook.url()}") as server:
        with running(app) as service:
            await asyncio.to_thread(transfer, f"http://127.0.0.1:{server.port}", service, bank)
            alert = await hook.until(lambda alert: alert["event"] == "check-address-failing")
            seen = await _scrape(server)
            _, errors = await server.terminate()
    address = f"{service}/twophase/check"
    assert (alert["target"], alert["gid"]) == (address, "")
    assert "status 404" in alert["error"]
    assert (seen["twophase_check_addresses{}"], seen["twophase_check_addresses_failing{}"]) == (1, 1)
    assert seen["twophase_probes_total{result=not_a_route}"] == 2
    lines = [msgspec.json.decode(line) for line in errors.splitlines() if line.startswith("{")]
    [line] = [line for line in lines if line.get("target") == address]
    assert (line["level"], line["state"]) == ("warning", "not_a_route")
    assert "Serve the check-back route" in line["remedy"]


async def test_the_server_probes_an_address_on_request_and_shows_those_it_knows(
    tmp_path: Path, bank: sqlalchemy.Engine
) -> None:
    app = Flask("with a check-back route")
    app.post("/in")(lambda: "")
    app.register_blueprint(check_blueprint(bank, lock_timeout=0.7))
    async with serving(tmp_path) as server:
        with running(app) as service:
            address = f"{service}/twophase/check"
            there = await _probe(server, f"{address}?barrier=another")
            unnamed = await _probe(server, address)
            nothing = await _probe(server, f"{service}/nothing")
            own = f"http://127.0.0.1:{server.port}{PROBE_PATH}/probe"
            itself = await server.ask(post(f"{PROBE_PATH}/probe", msgspec.json.encode({"url": own})))
            no_tls = await _probe(server, address.replace("http://", "https://"))
            refused = await server.ask(post(f"{PROBE_PATH}/probe", b'{"url":"queue://bank"}'))
            await asyncio.to_thread(transfer, f"http://127.0.0.1:{server.port}", service, bank)
            shown = msgspec.json.decode((await server.ask(get(PROBE_PATH))).body, type=ShownAddresses)
    assert (there.state, there.well, there.address) == ("wrong_database", False, address)
    assert (unnamed.state, unnamed.well, unnamed.lock_timeout_ms) == ("ready", True, 700)
    assert abs(unnamed.database_now_ms - unnamed.now_ms) < 60_000
    assert (nothing.state, no_tls.state, refused.status) == ("not_a_route", "unreachable", 400)
    assert (itself.status, msgspec.json.decode(itself.body)["code"]) == (400, "TP-1005")
    assert "SSL" in no_tls.message or "TLS" in no_tls.message, no_tls.message
    assert [(one.address, one.failing) for one in shown.addresses] == [(address, False)]


async def test_a_grpc_handler_is_probed_and_a_missing_one_is_found(tmp_path: Path, bank: sqlalchemy.Engine) -> None:
    handlers = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    handlers.add_generic_rpc_handlers((check_handler(bank),))
    kept = KeptPort()  # no other program listens there when the service has stopped
    assert handlers.add_insecure_port(f"127.0.0.1:{kept.number}") == kept.number
    address = f"grpc://127.0.0.1:{kept.number}"
    handlers.start()
    async with serving(tmp_path) as server:
        there = await _probe(server, f"{address}/twophase.Producer/Check")
        another = await _probe(server, f"{address}/twophase.Producer/Check?barrier=another")
        missing = await _probe(server, f"{address}/bank.Bank/Check")
        handlers.stop(None).wait()
        gone = await _probe(server, f"{address}/twophase.Producer/Check")
    kept.release()
    states = [one.state for one in (there, another, missing, gone)]
    assert states == ["ready", "wrong_database", "not_a_route", "unreachable"]


async def _probe(server: ServerProcess, url: str) -> ProbeShown:
    reply = await server.ask(post(f"{PROBE_PATH}/probe", msgspec.json.encode(ProbeAsked(url))))
    return msgspec.json.decode(reply.body, type=ProbeShown)


async def test_a_service_with_its_route_is_probed_and_nothing_is_written(
    tmp_path: Path, bank: sqlalchemy.Engine
) -> None:
    app = Flask("with a check-back route")
    app.post("/in")(lambda: "")
    app.register_blueprint(check_blueprint(bank))
    async with serving(tmp_path) as server:
        with running(app) as service:
            await asyncio.to_thread(transfer, f"http://127.0.0.1:{server.port}", service, bank)
            async with asyncio.timeout(60):
                while "twophase_probes_total{result=ready}" not in (seen := await _scrape(server)):
                    await asyncio.sleep(0.02)
    assert (seen["twophase_check_addresses{}"], seen["twophase_check_addresses_failing{}"]) == (1, 0)
    with contextlib.closing(sqlite3.connect(tmp_path / "bank.db")) as connection:
        assert connection.execute("select reason from barrier").fetchall() == [("msg",)]
