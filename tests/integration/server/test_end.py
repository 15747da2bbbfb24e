"""The end of the process: it comes in time, whatever hangs or fails."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.support.fake_coordinator import post
from tests.support.scripted_server import Peer
from tests.support.scripted_server import serving as scripted
from tests.support.server_process import ServerProcess, branch_service, serving
from twophase.server.app import EXIT_CLEAN
from twophase.server.ending import EXIT_OVERDUE

_DRAIN_MS = 3_000
_MESSAGES = 2_000
_CONNECTIONS = 50


def _with_code(folder: Path, code: str) -> dict[str, str]:
    """Return the environment of a server that executes this code at its start."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


SLOW_NAMES = """
import socket, time
resolve = socket.getaddrinfo

def getaddrinfo(host, *more, **named):
    if str(host).endswith(".slow.test"):
        time.sleep(600)
    return resolve(host, *more, **named)

socket.getaddrinfo = getaddrinfo
"""
HANGING_DISK = """
import sqlite3, time

def connect(*arguments, **named):
    print("opening", flush=True)
    time.sleep(600)

sqlite3.connect = connect
"""
HANGING_THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()"


async def test_names_that_hang_delay_no_other_and_not_the_end(tmp_path: Path) -> None:
    async with (
        branch_service() as service,
        serving(tmp_path, "--set", "drain_timeout_ms=500", environment=_with_code(tmp_path, SLOW_NAMES)) as server,
    ):
        for number in range(40):
            url = f"http://a{number}.slow.test/in"
            assert (await server.post("submit", gid=f"g{number}", steps=[{"action": url}], payloads=[""])).status == 200
        url = service.url("/in").replace("127.0.0.1", "localhost")
        assert (await server.post("submit", gid="well", steps=[{"action": url}], payloads=["{}"])).status == 200
        await server.until_state("well", "succeed")
        started_s = time.monotonic()
        code, errors = await server.terminate()
    assert code == EXIT_CLEAN
    assert "did not end in time" not in errors
    assert time.monotonic() - started_s < 30


async def test_a_server_whose_threads_hang_ends_within_its_drain_limit_and_a_little(tmp_path: Path) -> None:
    environment = _with_code(tmp_path, HANGING_THREAD)
    async with serving(tmp_path, "--set", "drain_timeout_ms=500", environment=environment) as server:
        code, errors = await server.terminate()
    assert code == EXIT_OVERDUE
    assert "the server did not end in time, and is ended" in errors


async def test_thousands_of_mixed_failures_do_not_delay_the_end(tmp_path: Path) -> None:
    async def never_answer(peer: Peer) -> None:
        await peer.closed()

    async def answer_half(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await peer.closed()

    async def answer_nonsense(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"nonsense\r\n\r\n")
        peer.close()

    quick = {"retry_first_ms": 20, "retry_cap_ms": 100, "check_back_first_ms": 20, "check_back_cap_ms": 100}
    options = [part for item in quick.items() for part in ("--set", "{}={}".format(*item))]
    async with (
        scripted(never_answer).running() as silent,
        scripted(answer_half).running() as half,
        scripted(answer_nonsense).running() as nonsense,
        branch_service() as refusing,
        serving(
            tmp_path, "--set", f"drain_timeout_ms={_DRAIN_MS}", *options, environment=_with_code(tmp_path, SLOW_NAMES)
        ) as server,
    ):
        refusing.answers["/in"] = 500
        origins = [
            *(silent.url, half.url, nonsense.url, refusing.url("")),
            *("http://127.0.0.1:1", "https://127.0.0.1:1", "grpc://127.0.0.1:1", silent.url.replace("http", "https")),
            *("http://{}.of-{}.slow.test", "http://a.of-{}.invalid"),
        ]
        clients = [await server.connect() for _ in range(_CONNECTIONS)]
        for first, client in enumerate(clients):
            await client.send(b"".join(_failing(number, origins) for number in range(first, _MESSAGES, _CONNECTIONS)))
        for client in clients:
            answers = await client.responses(_MESSAGES // _CONNECTIONS)
            client.close()
            assert {one.status for one in answers} == {200}
        await refusing.until_called("/in", "g6")
        began_s = time.monotonic()
        code, errors = await server.terminate()
        took_s = time.monotonic() - began_s
    assert code == EXIT_CLEAN, errors[-2000:]
    assert "Traceback" not in errors
    assert took_s < _DRAIN_MS / 1000 + 20, "not as long as names and calls hang"


def _failing(number: int, origins: list[str]) -> bytes:
    """Return a submit, or a prepare that is checked back at once."""
    url = origins[number // 2 % len(origins)].format(number, number)
    path = "/x.Y/Z" if url.startswith("grpc") else "/in"
    message: dict[str, Any] = {"gid": f"g{number}", "trans_type": "msg", "request_timeout": 60}
    if number % 2:
        what, fields = "prepare", {"steps": [], "payloads": [], "query_prepared": f"{url}{path}", "timeout_to_fail": 1}
    else:
        what, fields = "submit", {"steps": [{"action": f"{url}{path}"}], "payloads": ["{}"]}
    return post(f"/api/dtmsvr/{what}", msgspec.json.encode(message | fields))


async def test_a_start_that_hangs_ends_within_the_drain_limit_and_a_little(tmp_path: Path) -> None:
    server = await ServerProcess.spawn(
        *("--port", "0", "--set", "drain_timeout_ms=500"),
        environment=_with_code(tmp_path, HANGING_DISK),
        cwd=tmp_path,
    )
    try:
        assert server.process.stdout is not None
        async with asyncio.timeout(60):
            assert await server.process.stdout.readline() == b"opening\n"
        code, errors = await server.terminate()
    finally:
        await server.kill()
    assert code == EXIT_OVERDUE
    assert "the server did not end in time, and is ended" in errors


async def test_a_fenced_server_whose_threads_hang_ends_within_its_drain_limit_and_a_little(tmp_path: Path) -> None:
    environment = _with_code(tmp_path, HANGING_THREAD)
    async with serving(tmp_path, "--set", "drain_timeout_ms=500", environment=environment) as server:
        with sqlite3.connect(tmp_path / "twophase.db") as database:
            database.execute("update node set epoch = epoch + 1")
        database.close()
        assert (await server.post("prepare", gid="g")).status == 503
        code, errors = await server.ended()
    assert code == EXIT_OVERDUE
    assert "TP-4006" in errors
    assert "the server did not end in time, and is ended" in errors


async def test_a_log_without_a_reader_stops_no_message_and_not_the_end(tmp_path: Path) -> None:
    quick = ("--set", "retry_first_ms=20", "--set", "retry_cap_ms=40")
    async with branch_service() as branch, serving(tmp_path, *quick) as server:
        branch.answers["/in"] = 500
        server.stop_reading_errors()
        await server.post("submit", gid="g", steps=[{"action": branch.url("/in")}], payloads=["{}"])
        await branch.until_called("/in", "g", times=3)
        branch.answers["/in"] = 200
        await server.until_state("g", "succeed")
        assert (await server.terminate())[0] == EXIT_CLEAN
