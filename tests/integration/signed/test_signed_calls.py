"""A real coordinator signs its calls to real services on every framework.

They refuse every other caller.

The attacks are those of an outsider who reaches a service's routes: a forged check-back would bar a transaction for
ever, and a forged call of a branch would use it up.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import msgspec
import pytest
import sqlalchemy

from tests.integration.signed.running import KEY, Service, destinations, running, signing
from tests.integration.signed.service import GRPC_KINDS, HTTP_KINDS, METHOD
from tests.support.business_databases import new_gid
from tests.support.fake_coordinator import get, post
from tests.support.server_process import ServerProcess, branch_service, serving
from twophase import Message
from twophase.core.probe import PROBE_PATH, ProbeAsked, ProbeShown
from twophase.core.signature import SIGNATURE_HEADER, TOLERANCE_MS, http_text, key_of, signed

KINDS = (*HTTP_KINDS, *GRPC_KINDS)
PROBES_OFF = ("--set", "probe_check_addresses=false", "--set", "retry_first_ms=50", "--set", "check_back_first_ms=50")


def transfer(server: ServerProcess, service: Service, *also: str) -> str:
    """Commit a transaction of the service's database, in this process."""
    engine = sqlalchemy.create_engine(f"sqlite:///{service.file}")
    message = Message(f"http://127.0.0.1:{server.port}").add(service.branch, {"amount": 30})
    for address in also:
        message.add(address, {"amount": 30})
    with message.transaction(engine, check=service.check.partition("?")[0]) as connection:
        connection.execute(sqlalchemy.text("update account set balance = balance - 10"))
    engine.dispose()
    assert message.submitted
    return message.gid


async def prepare(server: ServerProcess, gid: str, check: str) -> None:
    """Prepare a message whose producer has died."""
    fields = {"steps": [{"action": "http://127.0.0.1:9/in"}], "payloads": ["{}"], "timeout_to_fail_ms": 1}
    answer = await server.post("prepare", gid=gid, query_prepared=check, explicit_verdict=True, **fields)
    assert answer.status == 200, answer.body


async def probe(server: ServerProcess, check: str) -> ProbeShown:
    """Have the coordinator probe a check address."""
    answer = await server.ask(post(f"{PROBE_PATH}/probe", msgspec.json.encode(ProbeAsked(check))))
    return msgspec.json.decode(answer.body, type=ProbeShown)


async def first_failure(server: ServerProcess, gid: str) -> Any:
    """Return the first failed call that an operator sees, when there is one."""
    async with asyncio.timeout(60):
        while not (log := await _log(server, gid)):
            await asyncio.sleep(0.02)
    return log[0]


async def _log(server: ServerProcess, gid: str) -> list[Any]:
    shown = msgspec.json.decode((await server.ask(get(f"/api/dtmsvr/query?gid={gid}"))).body)
    return list(shown["transaction"].get("log", []))


@pytest.mark.parametrize("kind", KINDS)
async def test_signed_calls_and_verdicts_go_through_and_an_outsiders_leave_nothing(tmp_path: Path, kind: str) -> None:
    async with running(kind, tmp_path, {"k0": "another secret of the bank", "k1": KEY}) as service:
        gid = new_gid()
        await _attack(service, gid)
        assert (service.rows, service.balance) == ([], 0)
        environment = destinations((service.address, signing(signed_verdicts=True)), ("http://127.0.0.1:9", {}))
        async with serving(tmp_path, *PROBES_OFF, environment=environment) as server:
            delivered = await _in_thread(transfer, server, service)
            await server.until_state(delivered, "succeed")
            await prepare(server, gid, service.check)
            await server.until_state(gid, "failed")
        assert service.balance == 20
        assert [row for row in service.rows if row[0] == gid] == [(gid, "00", "rollback")]
    assert "TP-1010" in service.log
    assert KEY not in service.log


@pytest.mark.parametrize("kind", ["fastapi", "grpc"])
async def test_a_coordinator_without_the_key_decides_nothing_and_one_with_it_goes_on(tmp_path: Path, kind: str) -> None:
    async with running(kind, tmp_path, {"k1": KEY}) as service:
        gid = new_gid()
        async with serving(tmp_path, *PROBES_OFF) as server:
            delivered = await _in_thread(transfer, server, service)
            await prepare(server, gid, service.check)
            called, asked = await first_failure(server, delivered), await first_failure(server, gid)
            assert (called["status"], asked["status"], asked["result"]) == (401, 401, "unknown")
            assert [await server.state(delivered), await server.state(gid)] == ["submitted", "prepared"]
            assert {row[0] for row in service.rows} == {delivered}
            probed = await probe(server, service.check)
            assert (probed.state, "key" in probed.remedy) == ("not_a_route", True)
            assert service.balance == -10
            await server.terminate()
        environment = destinations((service.address, signing()), ("http://127.0.0.1:9", {}))
        async with serving(tmp_path, *PROBES_OFF, environment=environment) as server:
            await server.until_state(delivered, "succeed")
            await server.until_state(gid, "failed")
            assert (await probe(server, service.check)).state == "ready"
        assert service.balance == 20


async def test_signed_and_plain_services_get_the_calls_of_one_message(tmp_path: Path) -> None:
    async with (
        running("flask", tmp_path, {"k1": KEY}) as signed_one,
        running("fastapi", tmp_path, None) as unverified,
        branch_service() as plain,
    ):
        entries = [(one, signing()) for one in (signed_one.address, unverified.address, plain.url("/in"))]
        environment = destinations(*entries, (plain.url("/free"), {}))
        async with serving(tmp_path, *PROBES_OFF, environment=environment) as server:
            also = (unverified.branch, plain.url("/in"), plain.url("/free"))
            gid = await _in_thread(transfer, server, signed_one, *also)
            await server.until_state(gid, "succeed")
        assert (signed_one.balance, unverified.balance) == (20, 30)
        assert plain.calls == [("/in", gid), ("/free", gid)]
        assert [SIGNATURE_HEADER in head for head in plain.heads] == [True, False]


@pytest.mark.parametrize("kind", ["fastapi", "grpc"])
async def test_a_verdict_that_is_not_signed_counts_as_none(tmp_path: Path, kind: str) -> None:
    async with running(kind, tmp_path, None) as service:
        gid = new_gid()
        environment = destinations((service.address, signing(signed_verdicts=True)), ("http://127.0.0.1:9", {}))
        async with serving(tmp_path, *PROBES_OFF, environment=environment) as server:
            await prepare(server, gid, service.check)
            first = await first_failure(server, gid)
            assert (first.get("status", 0), first["result"]) == (0, "unknown")
            assert first["error"].startswith("unsigned: ")
            assert await server.state(gid) == "prepared"


async def test_headers_of_a_destination_go_with_its_calls_and_stand_nowhere_else(tmp_path: Path) -> None:
    async with branch_service() as plain:
        entry = (plain.url("/in"), {"headers": {"Authorization": "env:BANK_KEY"}, "in_flight": 2})
        async with serving(tmp_path, *PROBES_OFF, environment=destinations(entry)) as server:
            steps = {"steps": [{"action": plain.url("/in")}], "payloads": ["{}"]}
            plain.answers["/in"] = 500
            headers = {"authorization": "the message's", "x-tenant": "7"}
            assert (await server.post("submit", gid="g", branch_headers=headers, **steps)).status == 200
            await plain.until_called("/in", "g")
            plain.answers.clear()
            await server.until_state("g", "succeed")
            shown = (await server.ask(get("/api/dtmsvr/query?gid=g"))).body
            _, log = await server.terminate()
    assert plain.heads[0].count("authorization: ") == 1
    assert f"authorization: {KEY}\r\n" in plain.heads[0]
    assert "x-tenant: 7\r\n" in plain.heads[0]
    assert KEY not in log
    assert KEY.encode() not in shown + _stored(tmp_path)


def _stored(folder: Path) -> bytes:
    """Return everything that the coordinator has written."""
    return b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())


async def test_a_key_is_replaced_while_both_sides_run(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text(f"{KEY}\n")
    async with running("fastapi", tmp_path, {"k1": KEY}) as service:
        entry = (service.address, {"key": f"file:{file}", "key_id": "k1"})
        async with serving(tmp_path, *PROBES_OFF, environment=destinations(entry)) as server:
            await server.until_state(await _in_thread(transfer, server, service), "succeed")
            file.write_text("another secret than the service's")
            await _reread(server, "the destinations were read again")
            refused = await _in_thread(transfer, server, service)
            assert (await first_failure(server, refused))["status"] == 401
            file.unlink()
            await _reread(server, "the earlier ones stay in force")
            file.touch(mode=0o600)
            file.write_text(KEY)
            await _reread(server, "the destinations were read again")
            await server.until_state(refused, "succeed")
    assert service.balance == 40


async def _reread(server: ServerProcess, line: str) -> None:
    """Send SIGHUP, and wait for this line in the log."""
    assert server.process.stderr is not None
    server.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(60):
        while line not in (await server.process.stderr.readline()).decode():
            pass


async def _attack(service: Service, gid: str) -> None:
    """Call the service's routes as an outsider, who knows everything but the key."""
    check = {"barrier": service.identity, "branch_id": "00", "gid": gid, "op": "msg", "trans_type": "msg"}
    branch = {"branch_id": "01", "gid": gid, "op": "action", "trans_type": "msg"}
    if service.address.startswith("grpc"):
        await _attack_grpc(service, check, branch)
        return
    async with httpx.AsyncClient(base_url=service.address) as http:
        for headers in _forged(http, "GET", "/twophase/check", check, b""):
            answer = await http.get("/twophase/check", params=check, headers=headers)
            assert (answer.status_code, answer.headers.get("x-twophase-verdict")) == (401, None), answer.text
            assert answer.json()["code"] == "TP-1010"
        body = b'{"amount":0}'
        for headers in _forged(http, "POST", "/in/me", branch, body):
            sent = [*headers, ("content-type", "application/json")]
            answer = await http.post("/in/me", params=branch, content=body, headers=sent)
            assert (answer.status_code, answer.json()["code"]) == (401, "TP-1010")


def _forged(http: httpx.AsyncClient, method: str, path: str, query: dict[str, str], body: bytes) -> list[Any]:
    """Return headers of forged calls.

    They are unsigned, of another secret, too old, of another body and path, and doubled.
    """
    url = http.build_request(method, path, params=query).url
    target, now_ms = url.raw_path.decode(), time.time_ns() // 1_000_000
    good, bad = key_of("k1", KEY), key_of("k1", "guessed, and not right")

    def header(key: Any, signed_ms: int, target: str, body: bytes) -> tuple[str, str]:
        return SIGNATURE_HEADER, signed(key, signed_ms, http_text(signed_ms, method, target, "", body))

    right = header(good, now_ms, target, body)
    return [
        [],
        [(SIGNATURE_HEADER, "v1")],
        [header(bad, now_ms, target, body)],
        [header(good, now_ms - TOLERANCE_MS - 60_000, target, body)],
        [header(good, now_ms, f"{target}&x=1", body)],
        [header(good, now_ms, target.replace(path, "/elsewhere"), body)],
        [header(good, now_ms, target, b'{"amount":30}')],
        [right, right],
        [right, ("x-twophase-oldest", "1")],
    ]


async def _attack_grpc(service: Service, check: dict[str, str], branch: dict[str, str]) -> None:
    async with grpc.aio.insecure_channel(service.address.removeprefix("grpc://")) as channel:
        for method, query in (("/twophase.Producer/Check", check), (METHOD, branch)):
            call: Callable[..., Any] = channel.unary_unary(method)
            metadata = [(f"dtm-{name}" if name != "barrier" else "twophase-barrier", query[name]) for name in query]
            for headers in ((), ((SIGNATURE_HEADER, "v1"),), ((SIGNATURE_HEADER, f"v1,kid=k1,t=1,s={'A' * 43}="),)):
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await call(b'{"amount":0}', metadata=(*metadata, *headers), timeout=60)
                assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
                assert "x-twophase-verdict" not in dict(raised.value.trailing_metadata() or ())


async def _in_thread(function: Callable[..., str], *arguments: Any) -> str:
    return await asyncio.to_thread(function, *arguments)
