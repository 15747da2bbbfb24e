"""Commands and the SDK at a server with TLS that demands a client certificate."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.certificates import Certificates
from tests.support.server_process import ServerProcess, serving
from twophase import AsyncClient, Client
from twophase.barrier import install
from twophase.cli import app as command_line
from twophase.cli.operating.http_api import EXIT_UNREACHABLE
from twophase.dtm_import.target import Target

COMMANDS = [("status",), ("messages", "list"), ("topic", "list"), ("doctor",)]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
async def server(tmp_path: Path, certificates: Certificates) -> AsyncIterator[ServerProcess]:
    async with serving(tmp_path, *certificates.arguments(client_ca=True)) as running:
        yield running


def _url(server: ServerProcess) -> str:
    return f"https://127.0.0.1:{server.port}"


async def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")}
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "twophase", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=inherited | environment,
    )


async def test_commands_take_the_certificates_from_options_and_from_the_environment(
    server: ServerProcess, certificates: Certificates, tmp_path: Path
) -> None:
    certificate, key = (str(file) for file in certificates.client("eve"))
    options = ("--ca", str(certificates.ca), "--client-certificate", certificate, "--client-key", key)
    variables = {
        "TWOPHASE_URL": _url(server),
        "TWOPHASE_CA": str(certificates.ca),
        "TWOPHASE_CLIENT_CERTIFICATE": certificate,
        "TWOPHASE_CLIENT_KEY": key,
    }
    for command in COMMANDS:
        ran = await _run(*command, "--server", _url(server), *options)
        assert (ran.returncode, ran.stderr) == (0, ""), (command, ran.stdout)
    assert (await _run("status", **variables)).returncode == 0
    file = tmp_path / "bank.db"
    connection = sqlite3.connect(file)
    install(connection)
    connection.close()
    clean = ("barrier", "clean", f"sqlite:///{file}", "--coordinator", _url(server))
    cleaned = await _run(*clean, *options)
    assert cleaned.returncode == 0, cleaned.stderr
    untrusted = await _run(*clean)
    assert untrusted.returncode == 3
    assert "its authority is unknown" in untrusted.stderr
    assert "--ca FILE" in untrusted.stderr


async def test_a_command_says_why_there_is_no_trust(server: ServerProcess, certificates: Certificates) -> None:
    ran = await _run("status", "--server", _url(server))
    assert ran.returncode == EXIT_UNREACHABLE
    assert "No TLS connection: 127.0.0.1:" in ran.stderr
    assert "its authority is unknown" in ran.stderr
    assert "--ca FILE" in ran.stderr
    ran = await _run("status", "--server", _url(server), "--ca", str(certificates.ca))
    assert ran.returncode == EXIT_UNREACHABLE
    assert "name one: --client-certificate FILE" in ran.stderr
    ran = await _run("status", "--server", _url(server).replace("https", "http"))
    assert ran.returncode == EXIT_UNREACHABLE
    assert "If it speaks TLS, write https://" in ran.stderr
    ran = await _run("status", "--server", _url(server), "--ca", "no-such-file")
    assert ran.returncode == 1
    assert "ca: no-such-file cannot be used" in ran.stderr


async def test_the_doctor_has_a_line_about_tls(server: ServerProcess) -> None:
    doctor = await _run("doctor", "--server", _url(server))
    assert doctor.returncode == 1
    line = next(line for line in doctor.stdout.splitlines() if "TLS" in line)
    assert line.split()[:2] == ["bad", "TLS"]
    assert "its authority is unknown" in line
    assert "→ Name the PEM file of its authority" in doctor.stdout
    unreadable = await _run("doctor", "--server", _url(server), "--ca", "no-such-file")
    assert "ca: no-such-file cannot be used" in unreadable.stdout


def test_every_command_that_asks_a_server_has_the_options() -> None:
    for command in command_line.COMMANDS:
        built = command_line._load(command)
        for below in getattr(built, "commands", {}).values() or [built]:
            names = {option for parameter in below.params for option in parameter.opts}
            asks = bool(names & {"--server", "--coordinator"})
            assert ({"--ca", "--client-certificate", "--client-key"} <= names) is asks, command.name


async def test_the_sdk_blocking_and_async_and_the_import_reach_it(
    server: ServerProcess, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = certificates.client("orders")
    files = {"ca": certificates.ca, "client_certificate": certificate, "client_key": key}

    def submit() -> None:
        with Client(_url(server), **files) as client:  # type: ignore[arg-type]  # of a dictionary
            client.message("blocking").add("http://127.0.0.1:1/in", {}).submit()

    await asyncio.to_thread(submit)
    async with AsyncClient(_url(server), **files) as client:  # type: ignore[arg-type]  # of a dictionary
        for number in range(3):  # the first one alone, then in groups
            await client.message(f"async-{number}").add("http://127.0.0.1:1/in", {}).submit()
    server.context = certificates.context((certificate, key))
    for gid in ("blocking", "async-0", "async-2"):
        assert await server.state(gid) == "submitted"
    for name, file in (("CA", certificates.ca), ("CLIENT_CERTIFICATE", certificate), ("CLIENT_KEY", key)):
        monkeypatch.setenv(f"TWOPHASE_{name}", str(file))
    await asyncio.to_thread(Target(_url(server)).check)
