"""`twophase messages` and `twophase explain` against a real server process.

The commands run as an operator types them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.server_process import BranchService, ServerProcess, branch_service, serving
from twophase.cli.app import app
from twophase.cli.operating import acting, messages

QUICK = ("--set", "retry_first_ms=600000", "--set", "retry_cap_ms=600000")
runner = CliRunner()


class Terminal:
    """A server, the service that its messages call, and an operator at a terminal."""

    def __init__(self, server: ServerProcess, branch: BranchService) -> None:
        self.server = server
        self.branch = branch
        self.url = f"http://127.0.0.1:{server.port}"

    async def type(self, *words: str, answer: str = "", code: int = 0) -> str:
        """Return the output of a command."""
        result = await asyncio.to_thread(runner.invoke, app, [*words, "--server", self.url], input=answer)
        assert result.exit_code == code, f"{result.exit_code}: {result.output}"
        return result.output

    async def submit(self, gid: str, path: str = "/down") -> None:
        """Submit a message, and wait until its branch has been called once."""
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
        """Poll until an explanation contains this text."""
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

    command = f"twophase messages retry-now --server {terminal.url} order-17"
    told = await terminal.until_told("order-17", command)
    assert "order-17 is submitted: 1 branch of 1 yet to succeed" in told
    assert "fails: status 500" in told

    terminal.branch.answers["/down"] = 200
    done = await terminal.type("messages", "retry-now", "order-17", "--reason", "repaired", "--by", "eve")
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


@pytest.mark.parametrize(
    "command",
    [
        ("stop", "--all"),
        ("retry-now", "--all"),
        ("redrive", "--all"),
        ("redirect", "--from", "http://a", "--to", "http://b"),
    ],
    ids=lambda words: words[0],
)
async def test_a_command_that_acts_neither_offers_nor_takes_a_final_state(
    terminal: Terminal, command: tuple[str, ...]
) -> None:
    refused = await terminal.type("messages", *command, "--state", "succeeded", code=2)
    assert "--state succeeded: only messages that are prepared or submitted can be acted on" in refused
    offered = " ".join((await terminal.type("messages", command[0], "--help")).replace("│", " ").split())
    assert "prepared or submitted; may be repeated" in offered
    assert "succeeded or failed" not in offered


async def test_one_message_is_shown(terminal: Terminal) -> None:
    await terminal.submit("order-17")
    await terminal.until_told("order-17", "fails")

    shown = await terminal.type("messages", "show", "order-17")

    assert "submitted" in shown
    assert terminal.branch.url("/down") in shown
    found = json.loads(await terminal.type("messages", "show", "order-17", "--json"))
    assert found["message"]["branches"][0]["payload_bytes"] == 2


async def test_a_stop_asks_before_and_reports_the_producers_answer(terminal: Terminal) -> None:
    await terminal.submit("order-1")
    told = await terminal.type("messages", "stop", "order-1", answer="n\n", code=1)
    effect = "its branches are no longer called, although its transaction is committed"
    assert f"Stop order-1, which is submitted: {effect}?" in told
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


@pytest.mark.parametrize("named", [("order-4",), ("--all", "--state", "prepared", "--gid-prefix", "order-")])
async def test_what_was_prepared_when_the_operator_was_asked_is_not_stopped_once_it_is_submitted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    loop = asyncio.get_running_loop()
    steps = [{"action": terminal.branch.url("/down")}]
    content = {"gid": "order-4", "steps": steps, "payloads": ["{}"], "query_prepared": terminal.branch.url("/check")}
    await terminal.server.post("prepare", **content)

    def submitted_meanwhile(question: str) -> None:
        assert "producer" in question
        submit = terminal.server.post("submit", **content)
        assert asyncio.run_coroutine_threadsafe(submit, loop).result(60).status == 200

    monkeypatch.setattr(messages, "confirm", submitted_meanwhile)
    monkeypatch.setattr(acting, "confirm", submitted_meanwhile)
    told = await terminal.type("messages", "stop", *named, code=1)

    assert "current status 'submitted', cannot stop: it was to be stopped only while it is prepared" in told
    assert await terminal.server.state("order-4") == "submitted"


async def test_a_stop_without_the_producers_verdict_names_the_override(terminal: Terminal) -> None:
    terminal.branch.answers["/check"] = 500
    await terminal.prepare("order-3")
    told = await terminal.type("messages", "stop", "order-3", answer="y\n", code=1)
    assert "without its verdict nothing is stopped?" in told
    assert "twophase messages stop GID --override" in told
    assert await terminal.server.state("order-3") == "prepared"

    told = await terminal.type("messages", "stop", "order-3", "--override", answer="y\n")
    assert "without its verdict it fails, although it may have committed?" in told
    assert await terminal.server.state("order-3") == "failed"
    await terminal.type("messages", "redrive", "order-3", "--override", code=2)


async def test_a_stop_of_what_has_no_check_address_names_neither_a_producer_nor_a_transaction(
    terminal: Terminal,
) -> None:
    steps = [{"action": terminal.branch.url("/in")}, {"action": terminal.branch.url("/down")}]
    plain = {"steps": steps, "payloads": ["{}", "{}"]}
    await terminal.server.post("submit", gid="plain", **plain)
    await terminal.until_told("plain", "Succeeded so far: 01.")
    await terminal.server.post("prepare", gid="silent", **plain)

    asked = [
        await terminal.type("messages", "stop", *words, answer="n\n", code=1)
        for words in (["plain"], ["silent"], ["silent", "--override"])
    ]

    effects = [
        "Stop plain, which is submitted: the remaining branches are no longer called?",
        "Stop silent, which is prepared: no producer can be asked, so nothing is stopped?",
        "Stop silent, which is prepared: no producer can be asked, and it fails, although its transaction may have ",
    ]
    assert all(effect in told for effect, told in zip(effects, asked, strict=True)), asked


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


async def test_a_message_with_a_wrong_address_is_redirected_and_delivered(terminal: Terminal) -> None:
    terminal.branch.answers["/no-such-path"] = 404
    await terminal.submit("order-1", "/no-such-path")
    old, new = terminal.branch.url("/no-such-path"), terminal.branch.url("/in")
    words = ("messages", "redirect", "order-1", "--to", new, "--reason", "a wrong path", "--by", "eve")

    tried = await terminal.type(*words, "--dry-run")
    assert tried == f"order-1, branch 01: {old} -> {new}\n1 would be redirected: a dry run, nothing is changed.\n"
    assert "redirected" not in await terminal.type("explain", "order-1")

    assert await terminal.type(*words) == f"order-1, branch 01: {old} -> {new}\n1 redirected.\n"
    told = await terminal.until_told("order-1", "has succeeded")
    assert f"Branch 01 ({old}) was redirected by eve: a wrong path; now {new}, at " in told
    shown = json.loads(await terminal.type("messages", "show", "order-1", "--json"))["message"]["branches"][0]
    assert (shown["url"], shown["sent_to"], shown["done"]) == (new, old, True)
    refused = await terminal.type(*words, code=1)
    assert refused.startswith("TP-2001: current status 'succeeded', cannot redirect.")


async def test_a_redirect_of_parked_messages_says_that_they_wait_for_a_redrive(terminal: Terminal) -> None:
    old, new = terminal.branch.url("/down"), terminal.branch.url("/elsewhere")
    for gid in ("order 1", "order 2"):
        await terminal.submit(gid)
        await terminal.type("messages", "park", gid)

    told = await terminal.type("messages", "redirect", "order 1", "--to", new)
    command = "twophase messages redrive 'order 1'"
    assert told.endswith(f"1 redirected.\norder 1 is parked until it is redriven: {command}\n")
    told = await terminal.type("messages", "redirect", "--from", terminal.branch.url("/"), "--to", old, "--yes")
    assert told.endswith("2 of them are parked until they are redriven: twophase messages redrive\n")
    assert json.loads(await terminal.type("messages", "redirect", "order 1", "--to", new, "--json"))[0]["moves"]
    await terminal.type("messages", "redrive", "order 1")
    await terminal.until_told("order 1", "has succeeded")


async def test_all_that_go_to_an_address_are_redirected_after_a_confirmation(terminal: Terminal) -> None:
    terminal.branch.answers["/down/in"] = 500
    gids = [f"order-{number}" for number in range(3)]
    for gid in gids:
        await terminal.submit(gid, "/down/in")
    await terminal.submit("elsewhere", "/down")
    old, new = terminal.branch.url("/down/"), terminal.branch.url("/")
    words = ("messages", "redirect", "--from", old, "--to", new)

    asked = await terminal.type(*words, answer="n\n", code=1)
    example = f"order-2 ({old}in -> {new}in)"
    assert f"Redirect 3 unfinished messages, such as {example}, from {old} to {new}?" in asked
    tried = await terminal.type(*words, "--dry-run", "--gid-prefix", "order-0")
    assert "1 would be redirected" in tried
    assert (await terminal.type(*words, "--yes")).endswith("3 redirected.\n")
    assert await terminal.type(*words, "--yes") == f"No unfinished message goes to {old}.\n"
    assert json.loads(await terminal.type(*words, "--yes", "--json")) == []
    for gid in gids:
        await terminal.server.until_state(gid, "succeed")
    assert await terminal.server.state("elsewhere") == "submitted"


async def test_a_wrong_check_address_is_redirected_and_goes_on_naming_its_database(terminal: Terminal) -> None:
    wrong = "http://127.0.0.1:9/check?barrier=7f"
    steps = [{"action": terminal.branch.url("/in")}]
    await terminal.server.post(
        "prepare", gid="order-1", steps=steps, payloads=["{}"], query_prepared=wrong, timeout_to_fail_ms=1
    )
    await terminal.until_told("order-1", "gave no verdict")

    right = terminal.branch.url("/check")
    words = ("messages", "redirect", "--check", "--from", "http://127.0.0.1:9/check", "--to", right)
    told = await terminal.type(*words, "--yes", "--reason", "OWN_URL was wrong")

    assert f"order-1, check-back: {wrong} -> {right}?barrier=7f" in told
    told = await terminal.until_told("order-1", "has succeeded")
    assert f"The check address ({wrong}) was redirected by " in told


async def test_an_address_that_no_prepare_could_bring_is_refused_before_a_question(terminal: Terminal) -> None:
    await terminal.submit("order-1")
    down = terminal.branch.url("/down")

    async def refused(to: str, *words: str) -> str:
        return await terminal.type("messages", "redirect", "--from", down, "--to", to, *words, code=1)

    assert "'gid'" in await refused("http://b/in?gid=x")
    assert "TP-1000: to: " in await refused("nowhere:80/in")
    assert "not a topic" in await refused("topic://rates")
    assert "?" not in (told := await refused("http://[b/in")), told
    assert await terminal.server.state("order-1") == "submitted"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["order-1"], "--to: the new address is missing."),
        (["--to", "http://b"], "Name a message, or say --from URL"),
        (["--branch", "01", "--to", "http://b"], "--branch needs the message's gid"),
        (["order-1", "--check", "--branch", "01", "--to", "http://b"], "--check does not concern a branch"),
    ],
)
def test_a_redirect_that_does_not_say_what_is_meant_says_what_is_missing(words: list[str], told: str) -> None:
    result = runner.invoke(app, ["messages", "redirect", *words])

    assert (result.exit_code, told in result.output) == (2, True), result.output


async def test_payloads_are_shown_only_where_they_are_asked_for(terminal: Terminal) -> None:
    steps = [{"action": terminal.branch.url("/down")}]
    await terminal.server.post("submit", gid="order-1", steps=steps, payloads=['{"name":"Zoë\\u001b"}'])

    assert "Zoë" not in await terminal.type("messages", "show", "order-1")
    assert "Zoë" not in await terminal.type("messages", "show", "order-1", "--json")
    assert "Zoë" not in await terminal.type("messages", "list", "--json")
    shown = await terminal.type("messages", "show", "order-1", "--payload")
    assert shown.endswith('Payload of branch 01, 21 bytes:\n{"name":"Zoë\\u001b"}\n')
    found = json.loads(await terminal.type("messages", "show", "order-1", "--payload", "--json"))
    assert found["message"]["branches"][0]["payload"] == '{"name":"Zoë\\u001b"}'


async def test_what_is_final_is_refused_before_a_question_and_people_read_succeeded(terminal: Terminal) -> None:
    await terminal.submit("done", "/in")
    await terminal.server.until_state("done", "succeed")
    await terminal.submit("order-1")

    assert await terminal.type("messages", "stop", "done", code=1) == (
        "done has succeeded: it is final, and cannot be stopped.\n"
    )
    told = await terminal.type("messages", "stop", "done", "order-1", answer="y\n", code=1)
    assert told.startswith("done has succeeded: it is final, and cannot be stopped.\nStop order-1, which is submitted")
    assert told.endswith("1 stopped, 1 refused.\n")
    assert " succeeded " in await terminal.type("messages", "list", "--state", "succeeded")


async def test_all_that_match_are_stopped_after_one_question(terminal: Terminal) -> None:
    for number in range(3):
        await terminal.submit(f"order-{number}")
    await terminal.submit("done", "/in")
    down = terminal.branch.url("/down")

    assert "name a filter" in await terminal.type("messages", "stop", "--all", code=2)
    tried = await terminal.type("messages", "stop", "--all", "--destination", down, "--dry-run")
    assert tried.splitlines()[-1] == "Stop 3 unfinished messages: a dry run, nothing is changed."
    asked = await terminal.type("messages", "stop", "--all", "--destination", down, answer="n\n", code=1)
    assert "Stop 3 unfinished messages, such as order-2: producers of prepared ones are asked first" in asked
    assert await terminal.type("messages", "stop", "--all", "--destination", down, "--yes") == "3 stopped.\n"
    assert await terminal.server.state("order-0") == "failed"


async def test_some_of_many_may_be_refused(terminal: Terminal) -> None:
    await terminal.submit("order-1")

    told = await terminal.type("messages", "retry-now", "nobody", "order-1", code=1)

    assert "TP-2004: no message 'nobody' found" in told
    assert "1 tried as soon as it may be, 1 refused." in told


async def test_each_refusal_of_many_names_its_message(terminal: Terminal) -> None:
    for gid in ("done-1", "done-2"):
        await terminal.submit(gid, "/in")
        await terminal.server.until_state(gid, "succeed")
    refusal = (
        "TP-2001: current status 'succeeded', cannot redrive. Run `twophase explain {0}` to see its state, and why.\n"
    )

    told = await terminal.type("messages", "redrive", "done-1", "done-2", code=1)
    assert told == "".join(f"{gid}: {refusal.format(gid)}" for gid in ("done-1", "done-2")) + (
        "0 redriven, 2 refused.\n"
    )
    assert await terminal.type("messages", "redrive", "done-1", code=1) == refusal.format("done-1")


async def test_what_is_typed_wrong_is_reported_with_what_would_be_right(terminal: Terminal) -> None:
    assert "TP-2004" in await terminal.type("explain", "nobody", code=1)
    assert "Name messages, or use --all" in await terminal.type("messages", "redrive", code=2)
    assert "Name messages, or use --all" in await terminal.type("messages", "redrive", "g", "--all", code=2)
    assert "is no time" in await terminal.type("messages", "list", "--created-after", "yesterday", code=2)
    await terminal.type("messages", "list", "--state", "", code=0)
    assert "prepared, submitted, succeeded, failed" in await terminal.type("messages", "list", "--state", "x", code=2)


async def test_without_a_server_the_next_command_is_reported(tmp_path: Path) -> None:
    words = ["messages", "list", "--server", "http://127.0.0.1:9"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "twophase", *words, stdout=PIPE, stderr=PIPE, cwd=tmp_path
    )
    async with asyncio.timeout(30):
        out, error = await process.communicate()

    assert (process.returncode, out) == (3, b"")
    assert b"No server answers at http://127.0.0.1:9" in error
    assert b"twophase server" in error


async def test_what_is_no_twophase_server_is_reported_in_a_sentence() -> None:
    async def explain(server: str, code: int = 3) -> str:
        result = await asyncio.to_thread(runner.invoke, app, ["explain", "g", "--server", server])
        assert result.exit_code == code
        return result.output

    async def begin_as_grpc(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")  # closing with something unread would reset the connection
        writer.write(b"\x00\x00\x18\x04\x00\x00\x00\x00\x00")
        writer.close()

    other = await asyncio.start_server(begin_as_grpc, "127.0.0.1", 0)
    async with other:
        port = other.sockets[0].getsockname()[1]
        assert "is it the gRPC port?" in await explain(f"http://127.0.0.1:{port}")
    assert "is no address" in await explain("http://127.0.0.1:36 789", 2)
    told = await explain("http://eve:hunter2@127.0.0.1:36789", 2)
    assert "user name" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("command", ["list", "show", "stop", "park", "redrive", "redirect", "retry-now"])
def test_help_has_examples(command: str) -> None:
    told = runner.invoke(app, ["messages", command, "--help"]).output

    assert f"twophase messages {command}" in told.partition("Examples:")[2]
