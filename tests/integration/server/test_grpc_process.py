"""The gRPC port of a real process.

The tests cover the ready line, the drain on SIGTERM, the state after a crash, and the modules that are not loaded.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import grpc.aio
import pytest

from tests.integration.server.test_grpc import Code, Dtm, Refused, message
from tests.support.server_process import ServerProcess, branch_service, serving


def _channel(server: ServerProcess) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(server.ready_line.partition("grpc://")[2].split()[0])


async def test_a_request_under_way_is_answered_before_the_end(tmp_path: Path) -> None:
    async with branch_service() as service, serving(tmp_path, "--grpc-port", "0") as server:
        service.open.clear()
        async with _channel(server) as channel:
            dtm = Dtm(channel)
            under_way = asyncio.ensure_future(dtm.ask("Submit", **message("g", service.url("/in"), wait_result=True)))
            async with asyncio.timeout(60):
                await service.arrived.wait()
            server.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                while await _taken(dtm):
                    await asyncio.sleep(0.02)
            service.open.set()
            assert await under_way == b""
            code, errors = await server.ended()
    assert code == 0, errors
    assert "Traceback" not in errors


async def _taken(dtm: Dtm) -> bool:
    try:
        await dtm.raw("NewGid", b"")
    except Refused as refused:
        # gRPC cancels a call that arrives in the very moment; the next call finds no listener.
        return refused.code is not Code.UNAVAILABLE
    return True


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    async with branch_service() as service:
        service.open.clear()
        async with serving(tmp_path, "--grpc-port", "0") as server, _channel(server) as channel:
            await Dtm(channel).ask("Submit", **message("g", service.url("/in")))
            await server.kill()
        service.open.set()
        async with serving(tmp_path, "--grpc-port", "0") as server:
            await server.until_state("g", "succeed")


async def test_a_taken_port_ends_the_start_in_one_line(tmp_path: Path) -> None:
    async with serving(tmp_path, "--grpc-port", "0") as first:
        port = first.ready_line.partition("grpc://127.0.0.1:")[2].split()[0]
        (tmp_path / "other").mkdir()
        second = await ServerProcess.spawn("--port", "0", "--grpc-port", port, cwd=tmp_path / "other")
        code, errors = await second.ended()
    assert code == 2
    assert f"grpc_port: cannot listen on 127.0.0.1:{port}" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("module", ["twophase", "twophase.server.app", "twophase.cli.app"])
def test_grpc_is_loaded_only_by_who_wants_it(module: str) -> None:
    program = f"import sys, {module}; print([name for name in ('grpc', 'google.protobuf') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"
