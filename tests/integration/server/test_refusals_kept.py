"""Rows of refusals stand after a kill, and a flood of refusals is a few rows.

A server that is killed writes nothing at its end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import method
from tests.support.fake_coordinator import post, prepare
from tests.support.identities import bearer, token_of, write
from tests.support.rocketmq_wire import Wire
from tests.support.server_process import ServerProcess, serving
from twophase.core.audit_chain import ChainCheck
from twophase.core.audit_log import AuditEntry, AuditRow
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.descriptors import SERVICE
from twophase.server.identity import refusals
from twophase.server.identity.refusals import KINDS_MAX
from twophase.server.identity.scopes import Scope


def _options(folder: Path) -> tuple[str, ...]:
    """Return options of a server with tokens, whose store `running` finds."""
    write(folder, "shop", [Scope.PRODUCE])
    return "--store", "sqlite:///store.db", "--tokens", write(folder, "desk", [Scope.OBSERVE])


async def _refused(folder: Path) -> Sequence[AuditRow]:
    """Return the rows of refusals that a server finds, in a chain that is unbroken."""
    async with running(folder, tokens=str(folder / "tokens.toml")) as found:
        rows, head = await found.server.coordinator.audit_chain(0, 1_000)
    assert ChainCheck().page(rows, head) is None
    return [row for row in rows if row.act == "refused"]


async def _by_http(server: ServerProcess) -> None:
    assert (await server.ask(prepare("g", *bearer("desk")))).status == 403


async def _by_another_route(server: ServerProcess) -> None:
    assert (await server.ask(post("/api/twophase/messages/g/stop", b"", *bearer("shop")))).status == 403


async def _by_json_rpc(server: ServerProcess) -> None:
    call = {"jsonrpc": "2.0", "id": "1", "method": "prepare", "params": {"gid": "g", "trans_type": "msg"}}
    answer = await server.ask(post("/api/json-rpc", json.dumps(call).encode(), *bearer("desk")))
    assert json.loads(answer.body)["error"]["data"]["code"] == "TP-1102"


async def _by_grpc(server: ServerProcess, path: str = "/dtmgimp.Dtm/Prepare") -> None:
    target = server.ready_line.partition("grpc://")[2].split()[0]
    metadata = [("authorization", f"Bearer {token_of('desk')}")]
    async with grpc.aio.insecure_channel(target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await method(channel, path)(b"", metadata=metadata, timeout=30)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def _by_another_method(server: ServerProcess) -> None:
    await _by_grpc(server, "/dtmgimp.Dtm/Subscribe")


async def _by_rocketmq(server: ServerProcess, name: str = "SendMessage") -> None:
    target = server.ready_line.partition("rocketmq://")[2].split()[0]
    wire = Wire(target, token_of("desk"))
    assert await wire.first_code(name) == Code.FORBIDDEN
    await wire.close()


async def _by_a_stream_of_rocketmq(server: ServerProcess) -> None:
    await _by_rocketmq(server, "Telemetry")


async def _by_a_poll_of_rocketmq(server: ServerProcess) -> None:
    await _by_rocketmq(server, "ReceiveMessage")


class InTheTest(ServerProcess):
    """The same for a server in the test's own process."""

    def __init__(self, one: Running) -> None:
        self.context = None
        self.port = one.port
        self.ready_line = " ".join(one.server.urls)


DOORS = {
    "/api/dtmsvr/{prepare,submit,abort}": _by_http,
    "/api/twophase/messages/{gid:path}/stop": _by_another_route,
    "json-rpc prepare": _by_json_rpc,
    "/dtmgimp.Dtm/Prepare": _by_grpc,
    "/dtmgimp.Dtm/Subscribe": _by_another_method,
    f"/{SERVICE}/SendMessage": _by_rocketmq,
    f"/{SERVICE}/Telemetry": _by_a_stream_of_rocketmq,
    f"/{SERVICE}/ReceiveMessage": _by_a_poll_of_rocketmq,
}


@pytest.mark.parametrize("target", DOORS)
async def test_a_kill_behind_the_answer_loses_no_first_refusal(tmp_path: Path, target: str) -> None:
    async with serving(tmp_path, *_options(tmp_path), "--grpc-port", "0", "--set", "rocketmq_port=0") as server:
        await DOORS[target](server)
        await server.kill()
    (row,) = await _refused(tmp_path)
    assert (row.target, row.who, row.peer) == (target, "shop" if "stop" in target else "desk", "127.0.0.1")


@pytest.mark.parametrize("target", DOORS)
async def test_an_answer_waits_for_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.setattr(refusals, "WAIT_S_MAX", 3_600.0)
    begun, allowed = asyncio.Event(), asyncio.Event()
    _, _, _, tokens = _options(tmp_path)
    async with running(tmp_path, tokens=tokens, grpc_port=0, rocketmq_port=0) as one:
        write_rows = one.server._refusals._write

        async def held(entries: Sequence[AuditEntry]) -> None:
            begun.set()
            await allowed.wait()
            await write_rows(entries)

        one.server._refusals._write = held
        asking = asyncio.ensure_future(DOORS[target](InTheTest(one)))
        await asyncio.wait_for(begun.wait(), 60)
        early, _ = await asyncio.wait([asking], timeout=0.2)
        allowed.set()
        await asyncio.wait_for(asking, 60)
        assert not early


async def test_a_flood_from_many_addresses_is_bounded_and_its_chain_unbroken(tmp_path: Path) -> None:
    """A minute that ends meanwhile begins the count anew."""
    wanted = 4 * KINDS_MAX

    async def flood(server: ServerProcess, first: int) -> None:
        for at in range(first, wanted, 8):
            local = (f"127.0.{1 + at // 200}.{1 + at % 200}", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=local)
            writer.write(post("/api/twophase/messages/g/stop", b""))
            assert b" 401 " in await reader.readline()
            writer.close()

    async with serving(tmp_path, *_options(tmp_path)) as server:
        async with asyncio.timeout(120):
            await asyncio.gather(*(flood(server, first) for first in range(8)))
        await server.kill()
    rows = await _refused(tmp_path)
    assert KINDS_MAX < len(rows) <= 2 * (KINDS_MAX + 1)
