"""The commands for queues, groups, halves and letters, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.rocketmq_wire import HALF, PATIENCE_S, TOPIC, Wire, message, resource
from tests.support.server_process import ServerProcess, serving
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.descriptors import kind

_MAIN = "from twophase.cli.app import main; main()"
NOBODY = "http://127.0.0.1:1"
PORT = ("--set", "rocketmq_port=0")


def run(server: ServerProcess | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    url = server if isinstance(server, str) else f"http://127.0.0.1:{server.port}"
    return subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"TWOPHASE_URL": url, "http_proxy": NOBODY, "PATH": ""},
    )


async def said(server: ServerProcess, *arguments: str) -> str:
    done = await asyncio.to_thread(run, server, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), arguments
    return done.stdout


async def shown(server: ServerProcess, *arguments: str) -> Any:
    return json.loads(await said(server, *arguments, "--json"))


async def refused(server: ServerProcess, *arguments: str) -> str:
    done = await asyncio.to_thread(run, server, *arguments)
    assert done.returncode == 1, done
    return done.stderr


@contextlib.asynccontextmanager
async def wired(server: ServerProcess) -> AsyncIterator[Wire]:
    found = re.search(r"rocketmq://(127\.0\.0\.1:\d+)", server.ready_line)
    assert found is not None, server.ready_line
    wire = Wire(found[1])
    yield wire
    await wire.close()


def delivered(parts: list[Any]) -> list[Any]:
    return [part.message for part in parts if part.WhichOneof("content") == "message"]


async def done_with(wire: Wire, one: Any, method: str = "AckMessage") -> None:
    """Acknowledge a message, or give it up."""
    handle, id_ = one.system_properties.receipt_handle, one.system_properties.message_id
    fields: dict[str, Any] = {"group": resource("billing"), "topic": resource(TOPIC)}
    if method == "AckMessage":
        entry = kind("AckMessageEntry")(message_id=id_, receipt_handle=handle)
        assert await wire.code(method, entries=[entry], **fields) == Code.OK
    else:
        assert await wire.code(method, receipt_handle=handle, message_id=id_, **fields) == Code.OK


async def test_a_topics_life_from_the_command_line(tmp_path: Path) -> None:
    async with serving(tmp_path, "--set", "queues_made_on_use=false") as server:
        assert "twophase queues create NAME" in await said(server, "queues", "list")
        sent: dict[str, Any] = {"steps": [{"action": "queue://orders?tag=paid"}], "payloads": ["{}"]}
        assert b"there is no topic 'orders'" in (await server.post("submit", gid="g1", **sent)).body

        would = await said(server, "queues", "create", "orders", "--queues", "2", "--dry-run")
        assert would.startswith("orders: would be made: ")
        assert "no topics" in await said(server, "queues", "list")
        made = await said(server, "queues", "create", "orders", "--queues", "2", "--kinds", "normal", "--reason", "new")
        assert made.startswith("orders: made: ")
        assert (await server.post("submit", gid="g1", **sent)).status == 200
        fifo = [{"action": "queue://orders?kind=fifo&group=a"}]
        assert b"no message of kind 'fifo'" in (await server.post("submit", gid="g2", steps=fifo, payloads=["{}"])).body

        changed = await said(server, "queues", "change", "queue://orders", "--queues", "4", "--kinds", "normal,fifo")
        assert changed.startswith("orders: changed from ")
        assert "can only grow" in await refused(server, "queues", "change", "orders", "--queues", "3")
        assert "TP-1020" in await refused(server, "queues", "change", "nosuch", "--queues", "3")

        (topic,) = (await shown(server, "queues", "list"))["topics"]
        assert (topic["name"], topic["queues"], topic["kinds"]) == ("orders", 4, ["normal", "fifo"])
        heads, row = (await said(server, "queues", "list")).splitlines()
        assert heads.split()[:3] == ["TOPIC", "QUEUES", "MESSAGES"]
        assert row.split()[:3] == ["orders", "4", "1"]
        text = await said(server, "queues", "show", "orders")
        assert text.startswith("queue://orders: 4 queues, takes normal, fifo, keeps messages as long as history.")

        why = await refused(server, "queues", "remove", "orders", "--yes")
        assert "TP-2021: topic 'orders' has messages that are not done (no group reads it)" in why
        removed = await shown(server, "queues", "remove", "orders", "--override", "--yes", "--reason", "over")
        assert (removed["messages"], removed["undone"]) == (1, 1)
        assert "TP-1020" in await refused(server, "queues", "show", "orders")
        log = await said(server, "log", "list")
        for act in ("define-topic", "empty-topic", "remove-topic"):
            assert act in log


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    """A server with four messages.

    The group billing has done one, and given up one.
    """
    async with serving(tmp_path, *PORT) as made, wired(made) as wire:
        for number in "1234":
            sent = message(number, f"body of {number}".encode(), properties={"shop": "7"})
            assert await wire.code("SendMessage", messages=[sent]) == Code.OK
        first, second = delivered(await wire.receive(batch_size=2))
        await done_with(wire, first)
        await done_with(wire, second, "ForwardMessageToDeadLetterQueue")
        yield made


async def test_the_lag_of_a_group_is_shown_in_status_and_metrics_too(server: ServerProcess) -> None:
    (group,) = (await shown(server, "groups", "list"))["groups"]
    (lag,) = group["lags"]
    assert (group["name"], group["letters"], lag["topic"], lag["lag"], lag["next_number"]) == (
        "billing",
        1,
        TOPIC,
        2,
        2,
    )
    text = await said(server, "groups", "show", "billing")
    assert "a message is a dead letter after 17 deliveries; pauses between deliveries: 1, 5, 10" in text
    assert "2 of 4" in text
    assert "queue      billing of orders: 2 not done, 0 in progress" in await said(server, "status")
    assert (await shown(server, "status"))["queues"][0]["lag"] == 2
    scraped = (await server.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")).body.decode()
    assert 'twophase_queue_lag{group="billing",topic="orders"} 2.0' in scraped
    assert 'twophase_queue_behind{group="billing",topic="orders"} 0.0' in scraped
    assert 'twophase_halves_unanswered{age="1m"} 0.0' in scraped


async def test_the_settings_of_a_group_from_the_command_line(server: ServerProcess) -> None:
    changed = await said(server, "groups", "change", "billing", "--deliveries", "3", "--pauses", "1,2.5")
    assert '"attempts_max":3,"backoff_ms":[1000,2500]' in changed
    assert "it was so already" in await said(server, "groups", "change", "billing", "--deliveries", "3")
    assert "TP-1020" in await refused(server, "groups", "change", "nosuch", "--deliveries", "3")
    assert (await said(server, "groups", "create", "late", "--dry-run")).startswith("late: would be made: ")
    wrong = await asyncio.to_thread(run, server, "groups", "change", "billing", "--pauses", "soon")
    assert (wrong.returncode, wrong.stderr) == (2, "--pauses: 'soon' is not a list of seconds, such as 1,10,60.\n")


async def test_a_group_is_reset_and_removed(tmp_path: Path, server: ServerProcess) -> None:
    reset = ("groups", "reset", "billing", "orders")
    dry = await said(server, *reset, "--to", "earliest", "--dry-run")
    assert dry.splitlines()[1].split() == ["0", "2", "0", "2", "0"]
    assert dry.endswith("A dry run, nothing is changed.\n")
    assert (await shown(server, *reset, "--to", "1h", "--yes", "--reason", "again"))["queues"][0]["repeated"] == 2
    async with wired(server) as wire:
        again = delivered(await wire.receive())
        assert [one.system_properties.message_id for one in again] == ["1", "2", "3", "4"]
        await done_with(wire, again[0])
    assert (await shown(server, *reset, "--to", "latest", "--yes"))["queues"][0]["skipped"] == 3
    assert "is no time" in (await asyncio.to_thread(run, server, *reset, "--to", "soon")).stderr
    assert "reset-group" in await said(server, "log", "list")

    why = await refused(server, "groups", "remove", "billing", "--override", "--yes")
    assert "TP-2021: a consumer of group 'billing' has asked" in why
    assert "wait for 60 s. Do what the message says" in why
    await server.terminate()
    async with serving(tmp_path, *PORT) as again_up:  # nobody has asked this process
        assert (await shown(again_up, "groups", "remove", "billing", "--dry-run"))["positions"] == 1
        assert (await said(again_up, "groups", "remove", "billing", "--yes")).startswith("billing: removed, with 0 ")
        assert "There are no groups." in await said(again_up, "groups", "list")


async def test_dead_letters_are_listed_and_sent_again_with_an_edit(tmp_path: Path, server: ServerProcess) -> None:
    (letter,) = (await shown(server, "letters", "list", "billing"))["letters"]
    assert (letter["message_id"], letter["topic"], letter["properties"]) == ("2", TOPIC, {"shop": "7"})
    assert "body" not in letter
    assert "0: body of 2" in await said(server, "letters", "list", "billing", "--payload")
    assert "has no dead letters from number 1 on" in await said(server, "letters", "list", "billing", "--from", "1")
    assert "there is no group 'shipping'" in await refused(server, "letters", "list", "shipping")
    assert "there is no group 'shipping'" in await refused(server, "letters", "redrive", "shipping", "--all", "--yes")
    await said(server, "groups", "create", "shipping")
    assert "has no dead letters." in await said(server, "letters", "list", "shipping")
    assert (await shown(server, "letters", "redrive", "shipping", "--all"))["letters"] == []
    file = tmp_path / "fixed.json"
    file.write_bytes(b'{"fixed":true}')
    redrive = ("letters", "redrive", "billing")
    dry = await said(server, *redrive, "--all", "--dry-run")
    assert "would be sent" in dry

    edit = ("--body-file", str(file), "--set", "currency=EUR", "--unset", "shop", "--reason", "wrong currency")
    assert " sent" in await said(server, *redrive, "0", *edit)

    assert "sent before" in await said(server, *redrive, "0")
    assert "no dead letter that was not redriven" in await said(server, *redrive, "--all", "--yes")
    missing = await asyncio.to_thread(run, server, *redrive, "7")
    assert (missing.returncode, "there is no such letter" in missing.stdout) == (1, True)
    async with wired(server) as wire:
        fixed = [one for one in delivered(await wire.receive()) if one.system_properties.message_id == "2"]
    assert [(one.body, dict(one.user_properties)) for one in fixed] == [(b'{"fixed":true}', {"currency": "EUR"})]
    log = await said(server, "log", "list", "--json")
    assert "properties changed: shop, currency" in log
    assert "fixed" not in log


async def test_a_half_message_and_a_message_of_a_queue_are_explained(server: ServerProcess) -> None:
    assert "No half message waits." in await said(server, "halves", "list")
    async with wired(server) as wire:
        short = kind("google.protobuf.Duration")(seconds=1)
        half = message("h", orphaned_transaction_recovery_duration=short, **HALF)
        gid = (await wire.ask("SendMessage", messages=[half])).entries[0].transaction_id
        async with asyncio.timeout(PATIENCE_S):
            while (await shown(server, "halves", "list"))["halves"][0]["situation"] != "away":
                await asyncio.sleep(0.1)
        text = await said(server, "halves", "list", "--situation", "away")
        assert gid in text
        assert "no producer of 'orders' is connected to this node" in text
        assert (await shown(server, "halves", "list", "--situation", "asked"))["halves"] == []
        text = await said(server, "explain", gid)
        assert "No producer of 'orders' is connected to this node." in text
        assert "As soon as a producer of 'orders' connects, it is asked." in text

        fields = {"topic": resource(TOPIC), "transaction_id": gid}
        assert await wire.code("EndTransaction", resolution=1, **fields) == Code.OK
        text = await said(server, "explain", gid)
        assert "Branch 01 is number 4 of orders, queue 0." in text
        assert "Group billing has not done number 4 of orders, queue 0: the group is behind: 2 messages" in text
        assert "twophase groups show" in text


@pytest.mark.parametrize("command", ["queues", "groups", "halves", "letters"])
def test_every_command_has_examples(command: str) -> None:
    listed = run(NOBODY, command, "list", "--help")
    assert "Examples:" in listed.stdout
    assert f"twophase {command} list" in listed.stdout


def test_names_are_completed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MAIN],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"_TWOPHASE_COMPLETE": "complete_bash", "COMP_WORDS": "twophase ha", "COMP_CWORD": "1", "PATH": ""},
    )
    assert done.stdout.split() == ["halves"]
