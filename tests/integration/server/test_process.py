"""The real process: how it starts, refuses to start, ends, dies and recovers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import resource
import signal
import socket
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from benchmarks.servers.ports import KeptPort
from tests.support.fake_coordinator import get, post
from tests.support.server_process import BranchService, ServerProcess, branch_service, serving
from tests.support.waiting import until
from twophase.core.errors import StoreUnavailable
from twophase.server.app import EXIT_CLEAN, EXIT_CONFIGURATION, EXIT_FENCED, EXIT_STORE, _refuse


def _steps(service: BranchService, *paths: str) -> dict[str, object]:
    return {"steps": [{"action": service.url(path)} for path in paths], "payloads": ["{}"] * len(paths)}


async def _refused(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    server = await ServerProcess.spawn("--port", "0", *arguments, environment=environment, cwd=folder)
    try:
        return await server.ended()
    finally:
        await server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_says_ready_serves_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    async with serving(tmp_path) as server:
        assert server.ready_line.startswith("twophase server ready: http://127.0.0.1:")
        assert (await server.ask(get("/api/ping"))).body == b'{"msg":"pong"}'
        assert (await server.ask(get("/health/ready"))).status == 200
        server.process.send_signal(number)
        code, errors = await server.ended()
    assert code == EXIT_CLEAN
    assert "Traceback" not in errors
    assert (tmp_path / "twophase.db").exists()


async def test_a_second_server_on_the_same_file_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        code, errors = await _refused(tmp_path)
        assert code == EXIT_STORE
        assert errors.startswith("TP-4001: ")
        assert len(errors.splitlines()) == 1
        assert "Traceback" not in errors
        assert (await first.ask(get("/health/ready"))).status == 200


async def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    damaged = b"this is no database" * 1_000
    (tmp_path / "twophase.db").write_bytes(damaged)
    code, errors = await _refused(tmp_path)
    assert code == EXIT_STORE
    assert errors.count("TP-4008") == 1
    assert "Give another file" in errors
    assert "Fate" not in errors
    assert "Traceback" not in errors
    assert (tmp_path / "twophase.db").read_bytes() == damaged


def test_a_database_that_does_not_answer_at_the_start_decides_about_no_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _refuse(StoreUnavailable("db/x: connection refused."), EXIT_STORE) == EXIT_STORE

    told = capsys.readouterr().err
    assert told == (
        "TP-4009: db/x: connection refused."
        " Make sure that the database runs and accepts connections, then start again.\n"
    )


async def test_a_misspelt_setting_is_reported_with_the_one_that_is_meant_and_no_fate(tmp_path: Path) -> None:
    code, errors = await _refused(tmp_path, "--set", "retry_cap=5")

    assert code == EXIT_CONFIGURATION
    assert errors.startswith(
        "TP-7000: retry_cap: there is no such setting (from the command line). Did you mean retry_cap_ms? "
    )
    assert "Fate" not in errors


async def _on_a_terminal(folder: Path, log_format: str) -> list[str]:
    """Return everything that a server prints on a terminal from its start to its end."""
    ours, its = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twophase", "server", "--port", "0"),
        *("--set", "grpc_port=off", "--set", f"log_format={log_format}"),
        stdout=its,
        stderr=its,
        cwd=folder,
        env=environment | {"TWOPHASE_HOTS": "misspelt"},
    )
    os.close(its)
    printed = b""
    while b"server ready" not in printed:
        printed += await asyncio.to_thread(os.read, ours, 65_536)
    process.terminate()
    with contextlib.suppress(OSError):  # a terminal without a process ends by an error
        while more := await asyncio.to_thread(os.read, ours, 65_536):
            printed += more
    os.close(ours)
    assert await process.wait() == EXIT_CLEAN
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.decode()).splitlines()


async def test_on_a_terminal_log_lines_are_text_and_ready_is_reported_once(tmp_path: Path) -> None:
    lines = await _on_a_terminal(tmp_path, "auto")

    assert [line for line in lines if line.startswith("{")] == []
    assert sum("ready" in line for line in lines) == 1
    assert any("is none" in line and "variable=TWOPHASE_HOTS" in line for line in lines)
    assert any("draining" in line for line in lines)


async def test_a_setting_chooses_json_on_a_terminal(tmp_path: Path) -> None:
    lines = await _on_a_terminal(tmp_path, "json")

    assert {"draining", "stopped"} <= {json.loads(line)["event"] for line in lines if line.startswith("{")}


async def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.terminate()
    with sqlite3.connect(tmp_path / "twophase.db") as database:
        database.execute("pragma user_version = 999")
    database.close()
    code, errors = await _refused(tmp_path)
    assert code == EXIT_STORE
    assert "TP-4005" in errors


@pytest.mark.parametrize(
    ("arguments", "environment", "named"),
    [
        (["--store", "oracle://scott:tiger@db/x"], {}, "store"),
        (["--store", "twophase.db"], {}, "store"),
        (["--set", "http_prot=1"], {}, "http_prot"),
        (["--set", "waiting_max=none"], {}, "waiting_max"),
        (["--set", "waiting_max"], {}, "waiting_max"),
        (["--config", "nosuch.toml"], {}, "nosuch.toml"),
        (["--host", "256.0.0.1"], {}, "host"),
        ([], {"TWOPHASE_DRAIN_TIMEOUT_MS": "soon"}, "TWOPHASE_DRAIN_TIMEOUT_MS"),
        ([], {"TWOPHASE_LOG_LEVEL": "loud"}, "log_level"),
    ],
)
async def test_a_setting_that_cannot_work_ends_it_at_once(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], named: str
) -> None:
    code, errors = await _refused(tmp_path, *arguments, environment=environment)
    assert code == EXIT_CONFIGURATION
    assert named in errors
    assert "TP-7000" in errors
    assert "Traceback" not in errors
    assert "tiger" not in errors


async def test_a_port_in_use_is_a_wrong_setting(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, errors = await _refused(tmp_path, "--port", str(taken.getsockname()[1]))
    assert code == EXIT_CONFIGURATION
    assert "http_port" in errors


async def test_settings_come_from_file_environment_and_command_line(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('store = "sqlite:///file.db"\nlog_level = "warning"\n')
    environment = {"TWOPHASE_CONFIG": "settings.toml", "TWOPHASE_STORE": "sqlite:///environment.db"}
    async with serving(tmp_path, environment=environment) as server:
        assert "environment.db" in server.ready_line
    async with serving(tmp_path, "--store", "sqlite:///line.db", environment=environment) as server:
        assert "line.db" in server.ready_line


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o600, False)])
async def test_a_password_in_a_config_file_that_others_read_is_warned_of(
    tmp_path: Path, mode: int, *, warned: bool
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('alert_webhook = "https://me:tiger@alerts.example/"\n')
    file.chmod(mode)
    async with serving(tmp_path, "--config", str(file)) as server:
        _, errors = await server.terminate()
    assert (f"warning: {file} holds a password, and every user of this machine may read it" in errors) is warned
    assert "tiger" not in errors


async def test_a_message_goes_its_whole_way(tmp_path: Path) -> None:
    async with branch_service() as branches, serving(tmp_path) as server:
        message = _steps(branches, "/one", "/two") | {"gid": "g1", "query_prepared": branches.url("/check")}
        assert (await server.post("prepare", **message)).status == 200
        assert await server.state("g1") == "prepared"
        assert (await server.post("submit", **message)).status == 200
        await server.until_state("g1", "succeed")
        assert branches.calls == [("/one", "g1"), ("/two", "g1")]
        assert (await server.post("submit", **message)).status == 409


async def test_a_lost_submit_is_recovered_by_the_check_back(tmp_path: Path) -> None:
    async with branch_service() as branches, serving(tmp_path) as server:
        message = _steps(branches, "/one") | {"query_prepared": branches.url("/check"), "timeout_to_fail_ms": 50}
        branches.answers["/check"] = 200
        assert (await server.post("prepare", gid="committed", **message)).status == 200
        await server.until_state("committed", "succeed")
        branches.answers["/check"] = 409
        assert (await server.post("prepare", gid="rolled-back", **message)).status == 200
        await server.until_state("rolled-back", "failed")
        assert ("/one", "rolled-back") not in branches.calls


async def test_wait_result_tells_how_the_branches_went(tmp_path: Path) -> None:
    async with branch_service() as branches, serving(tmp_path) as server:
        branches.answers |= {"/ongoing": 425, "/refuses": 409, "/breaks": 500}
        statuses = {
            path: (await server.post("submit", gid=path, wait_result=True, **_steps(branches, path))).status
            for path in ("/works", "/ongoing", "/refuses", "/breaks")
        }
        assert statuses == {"/works": 200, "/ongoing": 409, "/refuses": 409, "/breaks": 500}
        assert await server.state("/works") == "succeed"
        assert await server.state("/breaks") == "submitted"


async def test_what_was_acknowledged_before_a_kill_is_delivered_after_a_restart(tmp_path: Path) -> None:
    away = KeptPort()
    steps = {"steps": [{"action": f"http://127.0.0.1:{away.number}/one"}], "payloads": ["{}"]}
    async with serving(tmp_path) as server:
        for number in range(20):
            assert (await server.post("submit", gid=f"g{number}", **steps)).status == 200
        await server.kill()
    async with branch_service(away.number) as branches, serving(tmp_path) as server:
        for number in range(20):
            await server.until_state(f"g{number}", "succeed")
        assert {gid for _, gid in branches.calls} == {f"g{number}" for number in range(20)}


async def test_a_drain_cuts_no_call_and_no_answer(tmp_path: Path) -> None:
    async with branch_service() as branches, serving(tmp_path, "--set", "request_timeout_ms=60000") as server:
        branches.open.clear()
        waiting = asyncio.create_task(server.post("submit", gid="g1", wait_result=True, **_steps(branches, "/slow")))
        async with asyncio.timeout(60):
            await branches.arrived.wait()
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            while await _accepts(server.port):
                await asyncio.sleep(0.01)
        branches.open.set()
        response = await waiting
        assert response.status == 200
        assert response.headers["connection"] == "close"
        assert (await server.ended())[0] == EXIT_CLEAN
    async with serving(tmp_path) as server:
        assert await server.state("g1") == "succeed"
    assert branches.calls == [("/slow", "g1")]


async def test_a_drain_is_bounded(tmp_path: Path) -> None:
    async with (
        branch_service() as branches,
        serving(tmp_path, "--drain-timeout-ms", "300", "--set", "request_timeout_ms=60000") as server,
    ):
        branches.open.clear()
        assert (await server.post("submit", gid="g1", **_steps(branches, "/never"))).status == 200
        async with asyncio.timeout(60):
            await branches.arrived.wait()
        began_s = time.monotonic()
        code, errors = await server.terminate()
        assert code == EXIT_CLEAN
        assert "Traceback" not in errors
        assert time.monotonic() - began_s < 30, "not as long as the call may take"


async def test_a_drain_under_load_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    cut: list[str] = []

    async def load(server: ServerProcess, name: str) -> None:
        client = await server.connect()
        try:
            for number in range(100_000):
                gid = f"{name}-{number}"
                body = b'{"gid":"%b","trans_type":"msg","steps":[{"action":""}],"payloads":[""]}' % gid.encode()
                try:
                    response = await client.ask(post("/api/dtmsvr/submit", body))
                except ConnectionError:
                    if client.hears_half:
                        cut.append(gid)
                    return
                if response.status != 200:
                    assert response.status == 503
                    return
                acknowledged.append(gid)
        finally:
            client.close()

    async with serving(tmp_path) as server:
        clients = [asyncio.create_task(load(server, f"c{number}")) for number in range(16)]
        await until(lambda: len(acknowledged) >= 500)
        code, _ = await server.terminate()
        assert code == EXIT_CLEAN
        await asyncio.gather(*clients)
    assert cut == []
    with sqlite3.connect(tmp_path / "twophase.db") as database:
        known = {gid for (gid,) in database.execute("select gid from message union all select gid from history")}
    database.close()
    assert set(acknowledged) <= known


async def test_a_kill_before_the_request_is_handed_on_stores_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, environment={"TWOPHASE_FAILPOINT": "coordinator.request_parsed"}) as server:
        with pytest.raises(ConnectionError):
            await server.post("submit", gid="g1")
        assert (await server.ended())[0] == -signal.SIGKILL
    async with serving(tmp_path) as server:
        assert await server.state("g1") is None


async def test_a_kill_before_the_acknowledgement_leaves_the_message_stored(tmp_path: Path) -> None:
    async with serving(tmp_path, environment={"TWOPHASE_FAILPOINT": "coordinator.before_acknowledgement"}) as server:
        with pytest.raises(ConnectionError):
            await server.post("prepare", gid="g1")
        assert (await server.ended())[0] == -signal.SIGKILL
    async with serving(tmp_path) as server:
        assert await server.state("g1") == "prepared"


async def test_a_kill_after_the_acknowledgement_comes_after_the_client_has_it(tmp_path: Path) -> None:
    async with serving(tmp_path, environment={"TWOPHASE_FAILPOINT": "coordinator.after_acknowledgement"}) as server:
        assert (await server.post("prepare", gid="g1")).status == 200
        assert (await server.ended())[0] == -signal.SIGKILL
    async with serving(tmp_path) as server:
        assert await server.state("g1") == "prepared"


async def test_a_node_whose_slot_was_taken_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert (await server.post("prepare", gid="g1")).status == 200
        with sqlite3.connect(tmp_path / "twophase.db") as database:
            database.execute("update node set epoch = epoch + 1")
        database.close()
        assert (await server.post("prepare", gid="g2")).status == 503
        code, errors = await server.ended()
    assert code == EXIT_FENCED
    assert "TP-4006" in errors
    assert "Traceback" not in errors


async def test_ten_thousand_idle_connections_are_bounded_and_harm_no_client(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(10_000, hard - 500)
    sockets: list[socket.socket] = []
    try:
        async with serving(
            tmp_path,
            *("--set", f"connections_max={count}", "--set", "connections_per_address_percent=100"),
            *("--set", "idle_timeout_ms=600000"),
        ) as server:
            before_bytes = _resident_bytes(server.process.pid)
            for _ in range(count - 2):
                sockets.append(socket.create_connection(("127.0.0.1", server.port)))
                if len(sockets) % 100 == 0:
                    # The server accepts while the test makes connections; otherwise the kernel's queue would overflow.
                    assert (await server.ask(get("/api/ping", "Connection: close"))).status == 200
            async with asyncio.timeout(60):
                while f"twophase_connections {count - 1}.0" not in await _metrics(server):
                    await asyncio.sleep(0.05)
            assert (await server.post("submit", gid="g1", steps=[{"action": ""}], payloads=[""])).status == 200
            per_connection_bytes = (_resident_bytes(server.process.pid) - before_bytes) / count
            assert per_connection_bytes < 40_000
            sockets.extend(socket.create_connection(("127.0.0.1", server.port)) for _ in range(2))
            assert (await server.ask(get("/api/ping"))).status == 503
            code, _ = await server.terminate()
            assert code == EXIT_CLEAN
    finally:
        for one in sockets:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _metrics(server: ServerProcess) -> str:
    return (await server.ask(get("/metrics"))).body.decode()


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    return True
