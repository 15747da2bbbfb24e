"""`twophase status`, `--watch` and shell completion, as an operator types them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.server_process import ServerProcess, branch_service, serving
from twophase.cli.app import app

WAITS = ("--set", "retry_first_ms=600000", "--set", "retry_cap_ms=600000")
runner = CliRunner()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    """A server with four messages.

    Two are prepared, one is submitted and fails, and one is parked.
    """
    async with branch_service() as branch, serving(tmp_path, *WAITS) as made:
        branch.answers["/down"] = 500
        for what, gid in (("prepare", "p1"), ("prepare", "p2"), ("submit", "s1")):
            steps = [{"action": branch.url("/down")}]
            await made.post(what, gid=gid, steps=steps, payloads=["{}"], query_prepared=branch.url("/check"))
        await branch.until_called("/down", "s1")
        await asyncio.to_thread(runner.invoke, app, ["messages", "park", "p2", "--server", url_of(made)])
        yield made


def url_of(server: ServerProcess) -> str:
    return f"http://127.0.0.1:{server.port}"


async def test_a_server_is_shown_at_a_glance(server: ServerProcess) -> None:
    result = await asyncio.to_thread(runner.invoke, app, ["status", "--server", url_of(server)])

    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{url_of(server)} is up, twophase ")
    assert [line.split(", ")[0].split() for line in lines[1:4]] == [
        ["prepared", "2"],
        ["submitted", "1"],
        ["parked", "1"],
    ]
    assert "the oldest for " in lines[1]
    assert lines[4].split() == ["node", "1", "answers"]


async def test_a_status_is_read_by_programs(server: ServerProcess) -> None:
    result = await asyncio.to_thread(runner.invoke, app, ["status", "--json", "--server", url_of(server)])

    found = json.loads(result.output)
    assert (found["prepared"], found["submitted"], found["parked"], found["ready"]) == (2, 1, 1, True)
    assert [(one["node"], one["held"], one["answers"]) for one in found["nodes"]] == [(1, True, True)]
    assert found["oldest_prepared_ms"] <= found["now_ms"]


def test_no_server_is_one_sentence_and_an_exit_code(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "twophase", "status", "--server", "http://127.0.0.1:9"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("No server answers at http://127.0.0.1:9: ")
    assert len(done.stderr.splitlines()) == 2


def test_a_watch_ends_where_no_server_can_ever_answer() -> None:
    done = runner.invoke(app, ["status", "--watch", "--server", "localhost:36789"])

    assert (done.exit_code, done.output.count("not an http:// or https:// address")) == (2, 1)


NOWHERE = ("--server", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["messages", "redirect", "g", "--to", "http://b", *NOWHERE], 3),
        (["messages", "stop", "g", *NOWHERE], 3),
        (["topic", "list", *NOWHERE], 3),
        (["explain", "g", *NOWHERE], 3),
        (["import", "dtm", "redis://127.0.0.1:9", *NOWHERE], 2),
    ],
    ids=lambda one: " ".join(one[:2]) if isinstance(one, list) else "",
)
def test_a_command_without_its_server_says_so_without_a_fate_or_a_number(words: list[str], code: int) -> None:
    result = runner.invoke(app, words)

    assert result.exit_code == code
    assert "http://127.0.0.1:9" in result.output
    assert "Connection refused." in result.output
    assert "--server" in result.output
    for noise in ("Fate", "Errno", "Traceback"):
        assert noise not in result.output


@pytest.mark.parametrize("command", [["status", "--json"], ["messages", "list"]], ids=["status", "list"])
async def test_watch_prints_again_until_ctrl_c_and_ends_cleanly(server: ServerProcess, command: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twophase", *command, "--watch", "--every", "0.5", "--server", url_of(server)),
        stdout=PIPE,
        stderr=PIPE,
    )
    assert process.stdout is not None
    again = b"prepared" if command[0] == "status" else b"gid "
    seen = 0
    async with asyncio.timeout(60):
        while seen < 2:
            seen += again in await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()

    assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize(
    ("words", "completed"),
    [("twophase mess", "messages"), ("twophase messages redi", "redirect"), ("twophase status --wa", "--watch")],
)
def test_the_shell_completes_commands_and_options(tmp_path: Path, words: str, completed: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "twophase"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m twophase "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(twophase --show-completion bash)"\n'
        f"COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}\n"
        '_twophase_completion twophase; echo "${COMPREPLY[@]}"'
    )
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, env=environment, timeout=60
    )

    assert done.stdout.split() == [completed], done.stderr
