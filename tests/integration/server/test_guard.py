"""Addresses that the coordinator does not connect to.

The message waits, and its log says why. A whole server with real calls; only the name service is the test's.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import pytest
import structlog.testing

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc_branches import Bank
from tests.integration.server.webhook import sink
from tests.support.scripted_server import OK, answering
from tests.support.scripted_server import serving as scripted
from twophase.coordinator.state.active_message import Reply
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.core.options import Options
from twophase.destinations.base import Answer, Call
from twophase.destinations.grpc import GrpcDestination
from twophase.http_client.guard import Guard
from twophase.server.app import Server
from twophase.server.settings import Settings
from twophase.server.workers.metrics import MetricsExchange


def _names(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every name have these addresses."""

    def resolve(host: str, port: object, **_: object) -> list[tuple[object, ...]]:
        family = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(family[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


async def _submit(one: Running, gid: str, url: str, protocol: str = "http") -> Reply:
    reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    one.server.coordinator.submit(Message(gid, (Branch(url, b"{}"),), "", Options(), protocol), reply.set_result)
    return await reply


@pytest.mark.parametrize("scheme", ["http", "grpc"])
async def test_a_branch_whose_name_leads_to_a_metadata_service_waits_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    _names(monkeypatch, "169.254.169.254")
    async with running(tmp_path) as one:
        await _submit(one, "g", f"{scheme}://rebound.example:80/bank.Bank/In")
        view = await one.until_logged("g")
        assert view.state is State.SUBMITTED
        assert view.log[0].error == (
            f"destination_refused: {scheme.replace('grpc', 'http')}://rebound.example:80:"
            " 169.254.169.254 is a link-local address, which is never called"
        )


async def test_a_check_back_to_a_refused_address_decides_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as one:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        message = Message("g", (Branch("http://127.0.0.1:1/in", b"{}"),), "http://169.254.169.254/check", Options())
        one.server.coordinator.prepare(message, reply.set_result)
        assert (await reply).error is None
        one.advance(40_000)
        view = await one.until_logged("g")
        assert view.state is State.PREPARED
        assert "destination_refused: " in view.log[0].error


async def test_the_ports_of_other_workers_are_the_coordinators_own(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(
        store=f"sqlite:///{tmp_path / 'store.db'}", http_port=0, grpc_port="off", rocketmq_port=port, workers=3
    )
    server = Server(settings, exchange=MetricsExchange(str(tmp_path), 2))
    try:
        await server.start()
        reasons = [server._guard.why_not("127.0.0.1", port + number) for number in (-2, -1, 0, 1, 2)]
    finally:
        await server.stop()
    assert [bool(reason) for reason in reasons] == [False, True, True, True, False]


async def test_a_branch_cannot_call_the_coordinator_itself(tmp_path: Path) -> None:
    async with running(tmp_path, grpc_port=0) as one:
        for number, url in enumerate(one.server.urls):
            path = "api/dtmsvr/newGid" if url.startswith("http") else "dtmgimp.Dtm/NewGid"
            await _submit(one, f"g{number}", f"{url}/{path}")
            assert "is the coordinator's own" in (await one.until_logged(f"g{number}")).log[0].error
        assert len(one.server.urls) == 2


async def test_a_request_with_a_refused_ip_address_is_refused_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as one, httpx.AsyncClient(base_url=one.server.urls[0]) as http:
        for url in (
            "http://169.254.169.254/in",
            "http://[::ffff:169.254.169.254]/in",
            "grpc://169.254.169.254:80/a.B/C",
            f"{one.server.urls[0]}/api/dtmsvr/newGid",
        ):
            request = {"gid": "g", "trans_type": "msg", "steps": [{"action": url}], "payloads": ["{}"]}
            answer = await http.post("/api/dtmsvr/submit", json=request)
            assert (answer.status_code, answer.json()["code"]) == (400, "TP-1005")
            subscribed = await http.get("/api/dtmsvr/subscribe", params={"topic": "rates", "url": url})
            assert subscribed.json()["code"] == "TP-1005"


@pytest.mark.parametrize("private", [True, False])
async def test_a_loopback_branch_is_called_unless_private_addresses_are_refused(tmp_path: Path, private: bool) -> None:
    async with scripted(answering(OK)).running() as bank, running(tmp_path, private_destinations=private) as one:
        await _submit(one, "g", f"http://localhost:{bank.port}/in")
        if private:
            await one.until("g", State.SUCCEEDED)
        else:
            assert "private_destinations is false" in (await one.until_logged("g")).log[0].error
        assert len(bank.requests) == private


async def test_an_alert_does_not_reach_a_refused_address(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logged:
        async with (
            sink() as hook,
            running(
                tmp_path,
                private_destinations=False,
                alert_webhook=hook.url().replace("127.0.0.1", "localhost"),
                alert_after=1,
            ) as one,
        ):
            await _submit(one, "g", "http://127.0.0.1:9/in")
            async with asyncio.timeout(60):
                while not (failed := [line for line in logged if line.get("result") == "failed"]):
                    await asyncio.sleep(0.01)
            assert hook.alerts == []
    assert "destination_refused: " in failed[0]["what"]


async def test_a_name_with_an_allowed_address_is_called_there(monkeypatch: pytest.MonkeyPatch) -> None:

    bank = Bank()
    await bank.start()
    _names(monkeypatch, "169.254.1.1", "::1", "127.0.0.1")
    destination = GrpcDestination(guard=Guard())
    try:
        heard: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        url = f"grpc://bank-b.example:{bank.port}/bank.Bank/In"
        destination.call(Call(url, (("branch_id", "01"), ("gid", "g")), b"", (), 20_000), heard.set_result)
        assert (await heard).status == 200
        assert all("169.254" not in target for target in destination.connected)
    finally:
        await destination.stop()
        await bank.stop()
