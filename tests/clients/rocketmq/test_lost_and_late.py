"""Answers that are lost, and decisions that come late.

A real broker delivers twice in these situations, or loses messages. The clients are RocketMQ's official ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.rocketmq.conftest import Proxied
from tests.clients.rocketmq.languages import Command
from tests.clients.rocketmq.programs import PATIENCE_S, Failed, program
from tests.clients.rocketmq.serving import Serving, serving
from tests.support.rocketmq_wire import HALF, Wire, message, resource
from tests.support.waiting import until
from twophase.rocketmq_wire.codes import Code, Resolution, Source

TOPIC = "orders"
QUICK: Final = ("--set", "check_back_first_ms=50", "--set", "check_back_cap_ms=200")
"""Short intervals between two questions."""
REPEAT_HALVES: Final = frozenset({"python", "java", "go"})
"""The languages whose client sends a half message again when no answer comes."""


async def test_a_check_that_is_answered_after_the_commit_delivers_nothing_more(
    server: Serving, proxied: Proxied
) -> None:
    client, proxy = proxied
    for late, code in (("commit", Code.OK), ("rollback", Code.INVALID_TRANSACTION_ID)):
        before = await server.bodies(TOPIC)
        asked = len(client.heard("asked", "producer"))
        await client.do("answer", name="producer", answer="hold")
        half = (await client.do("transact", name="producer", topic=TOPIC, body=late, end=[]))["message_id"]
        await client.until("asked", "producer", asked + 1)
        committed = await client.do("finish", name="producer", message_id=half, end=["commit"])
        assert committed["errors"] == [0]
        assert await server.bodies(TOPIC) == [*before, late]

        await client.do("answer", name="producer", answer=late)
        (first, *others) = await until(lambda: proxy.ended(half)[1:] and proxy.ended(half), PATIENCE_S)  # noqa: B023
        assert first == Code.OK
        assert set(others) == {code}
        assert await server.bodies(TOPIC) == [*before, late]


async def test_a_half_message_that_comes_twice_is_one_message(server: Serving, proxied: Proxied) -> None:
    """The proxy repeats it for every client.

    Node.js's never does so itself, as the next test shows.
    """
    client, proxy = proxied
    proxy.faults.append("repeat")
    committed = await client.do("transact", name="producer", topic=TOPIC, body="paid", end=["commit"])
    assert committed["errors"] == [0]
    assert proxy.sent() == [committed["message_id"]] * 2
    assert await server.halves() == {}
    assert await server.bodies(TOPIC) == ["paid"]

    proxy.faults.append("repeat")
    rolled_back = await client.do("transact", name="producer", topic=TOPIC, body="void", end=["rollback"])
    assert rolled_back["errors"] == [0]
    assert await server.halves() == {}
    assert await server.bodies(TOPIC) == ["paid"]


async def test_a_half_message_whose_answer_is_lost_is_committed_once(
    server: Serving, proxied: Proxied, command: Command
) -> None:
    """Node.js's client does not send it again.

    So the send has failed for its user, and a check decides.
    """
    client, proxy = proxied
    proxy.faults.append("lose")
    sends = client.do("transact", name="producer", topic=TOPIC, body="paid", end=["commit"])
    if command.language in REPEAT_HALVES:
        assert (await sends)["errors"] == [0]
    else:
        with pytest.raises(Failed):
            await sends
        await client.until("asked", "producer", 1)
    await until(lambda: server.bodies(TOPIC), PATIENCE_S)
    assert len(proxy.sent()) == (2 if command.language in REPEAT_HALVES else 1)
    assert len(set(proxy.sent())) == 1
    assert await server.halves() == {}
    assert await server.bodies(TOPIC) == ["paid"]


async def test_a_message_whose_answer_is_lost_is_sent_again_and_comes_once(server: Serving, proxied: Proxied) -> None:
    client, proxy = proxied
    proxy.faults.append("lose")
    sent = await client.do("send", name="producer", topic=TOPIC, body="paid")
    assert proxy.sent() == [sent["message_id"]] * 2
    assert await server.bodies(TOPIC) == ["paid"]


@pytest.mark.long
async def test_half_messages_wait_for_a_producer_that_is_away_for_longer_than_all_checks(
    command: Command, tmp_path: Path
) -> None:
    """It does not answer before it dies, so that no check counts against its messages."""
    bodies = ["one", "two", "three"]
    async with serving(tmp_path, *QUICK) as server:
        await server.start()
        async with program(command, server.address, tmp_path) as dies:
            await dies.do("producer", name="producer", topics=[TOPIC], answer="hold")
            halves = [await dies.do("transact", name="producer", topic=TOPIC, body=body, end=[]) for body in bodies]
            await dies.kill()
        await _let_all_checks_pass(server)
        waiting = [half for half in (await server.halves()).values() if half.topic == TOPIC]
        assert [(half.situation, half.answers) for half in waiting] == [("away", 0)] * len(bodies)
        assert await server.bodies(TOPIC) == []

        async with program(command, server.address, tmp_path) as back:
            await back.do("push", name="consumer", group="billing", topic=TOPIC)
            await back.do("producer", name="producer", topics=[TOPIC])
            consumed = await back.until("consumed", "consumer", len(bodies))
        assert sorted(one["message_id"] for one in consumed) == sorted(half["message_id"] for half in halves)
        assert sorted(await server.bodies(TOPIC)) == sorted(bodies)
        assert [half for half in (await server.halves()).values() if half.topic == TOPIC] == []


async def _let_all_checks_pass(server: Serving) -> None:
    """Return when a message was sent, was asked about 15 times, and is parked."""
    wire = Wire(server.address)
    stream = await wire.settle(topics=("clock",))
    clock = (await wire.ask("SendMessage", messages=[message("clock", topic="clock", **HALF)])).entries[0]

    async def is_parked() -> bool:
        half = (await server.halves())[clock.transaction_id]
        return (half.situation, half.answers) == ("parked", half.answers_max)

    answering = asyncio.ensure_future(_say_unknown(wire, stream))
    try:
        await until(is_parked, 2 * PATIENCE_S)
    finally:
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering
        stream.cancel()
        await wire.close()


async def _say_unknown(wire: Wire, stream: Any) -> None:
    """Answer every question of a stream with "unknown"."""
    while True:
        question = (await stream.read()).recover_orphaned_transaction_command
        if question.transaction_id:
            await wire.ask(
                "EndTransaction",
                topic=resource("clock"),
                message_id=question.message.system_properties.message_id,
                transaction_id=question.transaction_id,
                resolution=Resolution.UNSPECIFIED,
                source=Source.SERVER_CHECK,
            )
