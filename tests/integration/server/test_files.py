"""The files that a server writes hold payloads: they are its user's alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_process import serving


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir() if file.is_file()}


def _let_read(path: Path, mode: int) -> None:
    path.chmod(mode)


async def test_the_store_its_log_and_its_lock_are_the_users_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert (await server.post("prepare", gid="g", query_prepared="http://127.0.0.1:1/c")).status == 200
        modes = _modes(tmp_path)
    assert len(modes) >= 4, "the store, its log, its index, its lock"
    assert set(modes.values()) == {0o600}


async def test_a_store_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert "may read the store" not in (await server.terminate())[1]
    _let_read(tmp_path / "twophase.db", 0o644)
    for folder, warned in ((0o755, True), (0o700, False)):
        _let_read(tmp_path, folder)
        async with serving(tmp_path) as server:
            assert ("may read the store" in (await server.terminate())[1]) is warned


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (("token", "add", "shop", "--scope", "produce", "--tokens", "tokens.toml"), "tokens.toml"),
        (("migrate", "--store", "sqlite:///store.db"), "store.db"),
        (("barrier", "install", "sqlite:///bank.db"), "bank.db"),
    ],
    ids=lambda part: part if isinstance(part, str) else " ".join(part[:2]),
)
def test_what_a_command_writes_is_its_users_alone(tmp_path: Path, command: tuple[str, ...], written: str) -> None:
    subprocess.run([sys.executable, "-m", "twophase", *command], cwd=tmp_path, check=True, capture_output=True)
    modes = _modes(tmp_path)
    assert written in modes
    assert set(modes.values()) == {0o600}, modes
