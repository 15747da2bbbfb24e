"""With a list of destinations, nothing else is accepted, and nothing else called."""

from __future__ import annotations

from pathlib import Path

import httpx
import msgspec
import pytest

from tests.integration.server.running import running
from tests.support.scripted_server import OK, answering, serving
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import State
from twophase.server.app import Server
from twophase.server.destinations import AllowedDestination
from twophase.server.settings import Settings


def _request(gid: str, url: str, **fields: object) -> dict[str, object]:
    return {"gid": gid, "trans_type": "msg", "steps": [{"action": url}], "payloads": ["{}"]} | fields


async def test_every_door_refuses_an_address_that_is_not_listed(tmp_path: Path) -> None:
    async with serving(answering(OK)).running() as bank:
        allowed = (AllowedDestination("bank", f"{bank.url}/in"),)
        async with (
            running(tmp_path, destinations=allowed) as one,
            httpx.AsyncClient(base_url=one.server.urls[0]) as http,
        ):
            other = f"{bank.url}/inner"
            for wrong in (_request("g", other), _request("g", f"{bank.url}/in", query_prepared=other)):
                refused = await http.post("/api/dtmsvr/submit", json=wrong)
                assert (refused.status_code, refused.json()["code"]) == (400, "TP-1005")
            call = {"jsonrpc": "2.0", "id": "1", "method": "submit", "params": _request("g", other)}
            assert (await http.post("/api/json-rpc", json=call)).json()["error"]["data"]["code"] == "TP-1005"
            refused = await http.get("/api/dtmsvr/subscribe", params={"topic": "rates", "url": other})
            assert refused.json()["code"] == "TP-1005"
            assert (await http.post("/api/dtmsvr/submit", json=_request("well", f"{bank.url}/in/7"))).status_code == 200
            await one.until("well", State.SUCCEEDED)
            assert await one.server.coordinator.query("g") is None
            assert len(bank.requests) == 1


async def test_what_was_stored_before_the_list_waits_and_is_not_called(tmp_path: Path) -> None:
    async with serving(answering(OK)).running() as bank:
        async with running(tmp_path) as before, httpx.AsyncClient(base_url=before.server.urls[0]) as http:
            later = _request("g", f"{bank.url}/in", delay_ms=60_000)
            assert (await http.post("/api/dtmsvr/submit", json=later)).status_code == 200
        allowed = (AllowedDestination("other", "http://bank-c"),)
        async with running(tmp_path, destinations=allowed) as one:
            one.advance(120_000)
            view = await one.until_logged("g")
            assert view.state is State.SUBMITTED
            assert view.log[0].error.startswith("destination_refused: ")
            assert bank.requests == []


def test_a_webhook_that_is_not_listed_stops_the_start(tmp_path: Path) -> None:
    settings = Settings(
        store=f"sqlite:///{tmp_path / 'store.db'}",
        alert_webhook="http://hooks/in",
        destinations=(AllowedDestination("bank", "http://bank-b"),),
    )
    with pytest.raises(ConfigurationError, match=r"alert_webhook: .*destination_refused"):
        Server(settings)
    Server(msgspec.structs.replace(settings, destinations=(AllowedDestination("hooks", "http://hooks"),)))
