"""A store that cannot be used.

The process reports it in words and ends with its code; nothing acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.small_disk import fill, remount, small_disk
from tests.support.fake_coordinator import get
from tests.support.server_process import ServerProcess, serving
from twophase.server.app import EXIT_CLEAN, EXIT_STORE

DISK_BYTES = 6 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 6 MiB; a server started there keeps its store on it."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


async def _refused(folder: Path) -> str:
    """Start a server that must end by itself because of its store.

    Returns the line that it printed for the person who started it.
    """
    server = await ServerProcess.spawn("--port", "0", cwd=folder)
    try:
        code, errors = await server.ended()
    finally:
        await server.kill()
    assert code == EXIT_STORE
    assert "Traceback" not in errors
    return errors.splitlines()[-1]


async def test_a_read_only_disk_ends_the_start(disk: Path) -> None:
    async with serving(disk) as server:
        assert (await server.post("prepare", gid="g1")).status == 200
        await server.terminate()
    remount(disk, "ro")

    told = await _refused(disk)

    assert "TP-4003" in told
    assert "twophase.db" in told
    assert "Give the server's user write permission" in told
    remount(disk, "rw")
    async with serving(disk) as server:
        assert await server.state("g1") == "prepared"


async def test_a_full_disk_ends_the_start(disk: Path) -> None:
    ballast = fill(disk)

    told = await _refused(disk)

    assert "TP-4004" in told
    assert "Free space" in told
    ballast.unlink()
    async with serving(disk) as server:
        assert (await server.post("prepare", gid="g1")).status == 200


async def test_a_store_that_was_cut_short_ends_the_start_and_is_left_as_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for number in range(20):
            assert (await server.post("prepare", gid=f"g{number}", **_payload(5_000))).status == 200
        await server.terminate()
    store = tmp_path / "twophase.db"
    whole = store.read_bytes()
    store.write_bytes(whole[: len(whole) // 2])

    told = await _refused(tmp_path)

    assert "TP-4002" in told
    assert store.read_bytes() == whole[: len(whole) // 2]


async def test_a_disk_that_fills_up_refuses_requests_and_the_server_lives_on(disk: Path) -> None:
    (disk / "ballast").write_bytes(bytes(DISK_BYTES // 2))
    async with serving(disk) as server:
        acknowledged: list[str] = []
        for number in range(2 * DISK_BYTES // 100_000):
            response = await server.post("prepare", gid=f"g{number}", **_payload(100_000))
            if response.status != 200:
                break
            acknowledged.append(f"g{number}")

        assert response.status == 503
        assert response.headers["retry-after"]
        assert msgspec.json.decode(response.body)["code"] == "TP-4004"
        assert len(acknowledged) > 5
        assert (await server.ask(get("/health/live"))).status == 200

        (disk / "ballast").unlink()

        assert (await server.post("prepare", gid="room again")).status == 200
        assert await server.state(f"g{len(acknowledged)}") is None
        assert (await server.terminate())[0] == EXIT_CLEAN
    async with serving(disk) as server:
        assert [gid for gid in acknowledged if await server.state(gid) != "prepared"] == []


def _payload(size_bytes: int) -> dict[str, Any]:
    return {"steps": [{"action": "http://127.0.0.1:1/in"}], "payloads": ["x" * size_bytes]}
