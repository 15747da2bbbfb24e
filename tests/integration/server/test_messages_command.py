"""`twophase messages` and `twophase explain` against a real server process, as an operator types them."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.integration.server.process import BranchService, ServerProcess, branch_service, serving
from twophase.cli.app import app

QUICK = ("--set", "retry_first_ms=600000", "--set", "retry_cap_ms=600000")
runner = CliRunner()


class Terminal:
    """A server, what its messages call, and somebody at a terminal."""

    def __init__(self, server: ServerProcess, branch: BranchService) -> None:
        self.server = server
        self.branch = branch
        self.url = f"http://127.0.0.1:{server.port}"

    async def type(self, *words: str, answer: str = "", code: int = 0) -> str:
        """What a command prints."""
        result = await asyncio.to_thread(runner.invoke, app, [*words, "--server", self.url], input=answer)
        assert result.exit_code == code, f"{result.exit_code}: {result.output}"
        return result.output

    async def submit(self, gid: str, path: str = "/down") -> None:
        """A submitted message whose branch has been called once."""
        steps = [{"action": self.branch.url(path)}]
        check = self.branch.url("/check")
        response = await self.server.post("submit", gid=gid, steps=steps, payloads=["{}"], query_prepared=check)
        assert response.status == 200
        await self.branch.until_called(path, gid)

    async def prepare(self, gid: str) -> None:
        steps = [{"action": self.branch.url("/in")}]
        check = self.branch.url("/check")
        await self.server.post("prepare", gid=gid, steps=steps, payloads=["{}"], query_prepared=check)

    async def until_told(self, gid: str, text: str) -> str:
        """Poll until an explanation says this."""
        async with asyncio.timeout(60):
            while text not in (told := await self.type("explain", gid)):
                await asyncio.sleep(0.05)
        return told


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    async with branch_service() as branch, serving(tmp_path, *QUICK) as server:
        branch.answers["/down"] = 500
        yield Terminal(server, branch)


async def test_a_message_that_fails_is_explained_and_unblocked(terminal: Terminal) -> None:
    await terminal.submit("order-17")

    told = await terminal.until_told("order-17", "fails: status 500")
    assert "order-17 is submitted: 1 branch of 1 yet to succeed" in told
    command = f"twophase messages retry-now order-17 --server {terminal.url}"
    assert command in told

    terminal.branch.answers["/down"] = 200
    done = await terminal.type(*command.split()[1:4], "--reason", "repaired", "--by", "eve")
    assert done == "order-17 is tried as soon as it may be; its state is submitted. See: twophase explain order-17\n"
    told = await terminal.until_told("order-17", "has succeeded")
    assert "Tried now by eve: repaired, at " in told


async def test_messages_are_listed_and_paged(terminal: Terminal) -> None:
    for number in range(3):
        await terminal.prepare(f"order-{number}")
    await terminal.submit("mail", "/down")

    table = await terminal.type("messages", "list", "--gid-prefix", "order-", "--created-after", "1h")
    assert [line.split()[0] for line in table.splitlines()] == ["gid", "order-2", "order-1", "order-0"]
    assert "prepared" in table.splitlines()[1]
    page = await terminal.type("messages", "list", "--limit", "3", "--gid-prefix", "order-", "--state", "prepared")
    assert "more" not in page
    page = await terminal.type("messages", "list", "--limit", "2")
    position = page.splitlines()[-1].rpartition("--position ")[2]
    rest = await terminal.type("messages", "list", "--position", position, "--json")
    assert [one["gid"] for one in json.loads(rest)["messages"]] == ["order-0", "mail"]
    assert await terminal.type("messages", "list", "--parked") == "No message fits.\n"


async def test_one_message_is_shown(terminal: Terminal) -> None:
    await terminal.submit("order-17")
    await terminal.until_told("order-17", "fails")

    shown = await terminal.type("messages", "show", "order-17")

    assert "submitted" in shown
    assert terminal.branch.url("/down") in shown
    found = json.loads(await terminal.type("messages", "show", "order-17", "--json"))
    assert found["message"]["branches"][0]["payload_bytes"] == 2


async def test_a_stop_asks_before_and_says_what_the_producer_said(terminal: Terminal) -> None:
    await terminal.submit("order-1")
    told = await terminal.type("messages", "stop", "order-1", answer="n\n", code=1)
    assert "Stop order-1, which is submitted: its transaction is committed" in told
    assert told.endswith("Nothing is changed.\n")
    assert await terminal.server.state("order-1") == "submitted"

    await terminal.type("messages", "stop", "order-1", "--reason", "cancelled", "--by", "eve", answer="y\n")
    assert await terminal.server.state("order-1") == "failed"
    assert "An operator decided it at " in (told := await terminal.type("explain", "order-1"))
    assert "stopped by eve: cancelled" in told

    await terminal.prepare("order-2")
    told = await terminal.type("messages", "stop", "order-2", answer="n\n", code=1)
    assert "Stop order-2, which is prepared: its producer is asked first" in told
    told = await terminal.type("messages", "stop", "order-2", "--yes", code=1)
    assert told.startswith("TP-2001: current status 'submitted', cannot stop: its producer has committed.")


async def test_everything_parked_is_redriven_after_a_confirmation(terminal: Terminal) -> None:
    gids = [f"order-{number}" for number in range(5)]
    for gid in gids:
        await terminal.submit(gid)
    assert await terminal.type("messages", "park", *gids, "--reason", "a fault") == "5 parked.\n"
    terminal.branch.answers["/down"] = 200
    destination = terminal.branch.url("/down")

    asked = await terminal.type("messages", "redrive", "--all", "--destination", destination, answer="n\n", code=1)
    assert "Redrive 5 parked messages, such as order-4?" in asked
    assert await terminal.type("messages", "redrive", "--all", "--destination", "http://elsewhere", "--yes") == (
        "0 redriven.\n"
    )
    done = await terminal.type("messages", "redrive", "--all", "--destination", destination, "--yes")

    assert "5 redriven." in done
    for gid in gids:
        await terminal.server.until_state(gid, "succeed")


async def test_some_of_many_may_be_refused(terminal: Terminal) -> None:
    await terminal.submit("order-1")

    told = await terminal.type("messages", "retry-now", "nobody", "order-1", code=1)

    assert "TP-2004: no message 'nobody' found" in told
    assert "1 tried as soon as it may be, 1 refused." in told


async def test_what_is_typed_wrong_is_told_with_what_would_be_right(terminal: Terminal) -> None:
    assert "TP-2004" in await terminal.type("explain", "nobody", code=1)
    assert "Name messages, or say --all" in await terminal.type("messages", "redrive", code=2)
    assert "Name messages, or say --all" in await terminal.type("messages", "redrive", "g", "--all", code=2)
    assert "is no time" in await terminal.type("messages", "list", "--created-after", "yesterday", code=2)
    assert "prepared, submitted, succeed, failed" in await terminal.type("messages", "list", "--state", "x", code=1)


async def test_without_a_server_the_next_command_is_told(tmp_path: Path) -> None:
    words = ["messages", "list", "--server", "http://127.0.0.1:9"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "twophase", *words, stdout=PIPE, stderr=PIPE, cwd=tmp_path
    )
    async with asyncio.timeout(30):
        out, error = await process.communicate()

    assert (process.returncode, out) == (3, b"")
    assert b"No server answers at http://127.0.0.1:9" in error
    assert b"twophase server" in error


async def test_what_is_no_twophase_server_is_told_in_a_sentence() -> None:
    async def explain(server: str) -> str:
        result = await asyncio.to_thread(runner.invoke, app, ["explain", "g", "--server", server])
        assert result.exit_code == 3
        return result.output

    async def begin_as_grpc(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")  # what is closed with something unread resets the connection
        writer.write(b"\x00\x00\x18\x04\x00\x00\x00\x00\x00")
        writer.close()

    other = await asyncio.start_server(begin_as_grpc, "127.0.0.1", 0)
    async with other:
        port = other.sockets[0].getsockname()[1]
        assert "is it the gRPC port?" in await explain(f"http://127.0.0.1:{port}")
    assert "is no address" in await explain("http://127.0.0.1:36 789")
    told = await explain("http://eve:hunter2@127.0.0.1:36789")
    assert "user name" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("command", ["list", "show", "stop", "park", "redrive", "retry-now"])
def test_help_has_examples(command: str) -> None:
    told = runner.invoke(app, ["messages", command, "--help"]).output

    assert f"twophase messages {command}" in told.partition("Examples:")[2]
