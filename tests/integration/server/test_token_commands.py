"""Commands and the SDK send their token.

It comes from `--token-file`, from `TWOPHASE_TOKEN`, or as an argument.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.identities import token_of, write
from tests.support.server_process import ServerProcess, serving
from twophase.cli import app as command_line
from twophase.client.clients import AsyncClient
from twophase.core.errors import CoordinatorUnreachable, Forbidden, QuotaExceeded, Unauthenticated
from twophase.dtm_import.found import Subscriber, Topic
from twophase.dtm_import.target import Target
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Quota

COMMANDS = [
    ("status",),
    ("messages", "list"),
    ("topic", "list"),
    ("explain", "g"),
    ("messages", "park", "g"),
    ("messages", "redirect", "g", "--to", "http://127.0.0.1:2/in"),
]


def _run(
    server: ServerProcess, *arguments: str, token: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")}
    return subprocess.run(
        [sys.executable, "-m", "twophase", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=inherited | {"TWOPHASE_URL": f"http://127.0.0.1:{server.port}"} | environment,
    )


def _token_file(folder: Path, name: str) -> Path:
    file = folder / f"{name}.token"
    file.write_text(token_of(name) + "\n")
    file.chmod(0o600)
    return file


async def test_commands_need_the_token_and_take_it_from_a_file_or_a_variable(tmp_path: Path) -> None:
    tokens = write(tmp_path, "eve", list(Scope))
    file = _token_file(tmp_path, "eve")
    async with serving(tmp_path, "--tokens", tokens) as server:
        async with AsyncClient(f"http://127.0.0.1:{server.port}", token=token_of("eve")) as client:
            await client.message("g").add("http://127.0.0.1:1/in", {}).submit()
        for command in COMMANDS:
            without = _run(server, *command)
            assert without.returncode != 0
            assert Unauthenticated.code in without.stderr, f"{command}: {without.stderr}"
        for command in COMMANDS:
            ran = _run(server, *command, "--token-file", str(file))
            assert ran.returncode == 0, f"{command}: {ran.stderr}"
        ran = _run(server, "status", TWOPHASE_TOKEN=token_of("eve"))
        assert ran.returncode == 0, ran.stderr
        doctor = _run(server, "doctor", "--token-file", str(file))
        assert doctor.returncode == 0, doctor.stdout
        assert _run(server, "doctor").returncode == 1


async def test_a_redirect_by_a_token_that_may_only_act_is_no_refusal(tmp_path: Path) -> None:
    """Such a token cannot see that a message is parked."""
    tokens = write(tmp_path, "eve", [Scope.PRODUCE, Scope.OPERATE])
    file = _token_file(tmp_path, "eve")
    async with serving(tmp_path, "--tokens", tokens) as server:
        async with AsyncClient(f"http://127.0.0.1:{server.port}", token=token_of("eve")) as client:
            await client.message("g").add("http://127.0.0.1:1/in", {}).submit()
        words = ("messages", "redirect", "g", "--to", "http://127.0.0.1:2/in", "--token-file", str(file))
        ran = await asyncio.to_thread(_run, server, *words)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("1 redirected.\n")


async def test_a_token_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    tokens = write(tmp_path, "eve", list(Scope))
    file = _token_file(tmp_path, "eve")
    file.chmod(0o644)
    async with serving(tmp_path, "--tokens", tokens) as server:
        ran = _run(server, "status", "--token-file", str(file))
    assert ran.returncode != 0
    assert f"others may read {file}" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_every_command_that_asks_a_server_has_the_option() -> None:
    for one in command_line.COMMANDS:
        for command in _leaves(command_line._load(one)):
            options = {option for parameter in command.params for option in parameter.opts}
            asks = bool(options & {"--server", "--coordinator"})
            assert ("--token-file" in options) is asks, command.name


def _leaves(command: Any) -> list[Any]:
    below = getattr(command, "commands", {})
    return [leaf for one in below.values() for leaf in _leaves(one)] if below else [command]


@pytest.mark.parametrize("scheme", ["http", "grpc"])
async def test_the_sdk_reads_the_refusals_of_tokens(tmp_path: Path, scheme: str) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], quota=Quota(waiting_messages=1))
    write(tmp_path, "eve", [Scope.OBSERVE])
    async with serving(tmp_path, "--tokens", tokens, "--grpc-port", "0") as server:
        url = next(one for one in server.ready_line.split() if one.startswith(scheme))
        for token, refusal in ((None, Unauthenticated), (token_of("eve"), Forbidden)):
            async with AsyncClient(url, token=token) as client:
                with pytest.raises(refusal):
                    await client.message().add("http://127.0.0.1:1/in", {}).submit()
        async with AsyncClient(url, token=token_of("orders")) as client:
            await client.message().add("http://127.0.0.1:1/in", {}).submit()
            with pytest.raises(QuotaExceeded):
                await client.message().add("http://127.0.0.1:1/in", {}).submit()


async def test_the_sdk_takes_the_token_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    async with serving(tmp_path, "--tokens", tokens) as server:
        monkeypatch.setenv("TWOPHASE_TOKEN", token_of("orders"))
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            await client.message().add("http://127.0.0.1:1/in", {}).submit()


async def test_an_import_and_a_cleaning_send_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = write(tmp_path, "admin", [Scope.ADMIN, Scope.PRODUCE])
    async with serving(tmp_path, "--tokens", tokens) as server:
        url = f"http://127.0.0.1:{server.port}"
        with pytest.raises(CoordinatorUnreachable, match="answered 401") as refused:
            await asyncio.to_thread(Target(url).check)
        assert "`twophase token add` makes one" in refused.value.remedy
        topic = Topic("paid", (Subscriber("http://127.0.0.1:1/in"),))
        with pytest.raises(CoordinatorUnreachable, match="scope observe or topics") as refused:
            await asyncio.to_thread(Target(url, authorization=f"Bearer {token_of('admin')}").missing, topic)
        assert "Use a token that allows it" in refused.value.remedy
        await asyncio.to_thread(Target(url, authorization=f"Bearer {token_of('admin')}").check)
        database = f"sqlite:///{tmp_path / 'bank.db'}"
        assert _run(server, "barrier", "install", database).returncode == 0
        clean = ("barrier", "clean", database, "--coordinator", url)
        assert _run(server, *clean).returncode == 3
        cleaned = _run(server, *clean, "--token-file", str(_token_file(tmp_path, "admin")))
        assert cleaned.returncode == 0, cleaned.stderr
