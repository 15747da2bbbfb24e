"""A server that is killed: what its clients do, and what they lose."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.clients.rocketmq.conftest import Start
from tests.clients.rocketmq.languages import Command
from tests.clients.rocketmq.programs import PATIENCE_S, Failed, Program, program
from tests.clients.rocketmq.serving import Serving, serving
from tests.support.identities import token_of, write
from tests.support.waiting import until
from twophase.server.identity.scopes import Scope

TOPIC = "orders"
# Go's client notices a broken stream after up to five minutes, and no server can hurry it.
notices_soon = pytest.mark.parametrize("command", ["python", "node", "java"], indirect=True)


async def test_what_was_committed_or_waits_survives_kill_9(server: Serving, start: Start) -> None:
    program = await start()
    await program.do("producer", name="producer", topics=[TOPIC], answer="unknown")
    await program.do("transact", name="producer", topic=TOPIC, body="one", end=["commit"])
    half = await program.do("transact", name="producer", topic=TOPIC, body="two", end=[])
    await server.kill()
    await server.start()
    # No client repeats a decision by itself, and its connection takes a moment to be there again. Go's hides the error.
    async with asyncio.timeout(PATIENCE_S):
        while await server.bodies(TOPIC) != ["one", "two"]:
            await program.do("finish", name="producer", message_id=half["message_id"], end=["commit"])


async def test_a_delayed_message_survives_kill_9_and_comes_once(server: Serving, start: Start) -> None:
    program = await start()
    await program.do("producer", name="producer", topics=[TOPIC])
    await program.do("send", name="producer", topic=TOPIC, body="later", delay_ms=2_000)
    await server.kill()
    await server.start()
    await until(lambda: server.bodies(TOPIC), PATIENCE_S)
    await server.kill()
    await server.start()
    assert await server.bodies(TOPIC) == ["later"]


async def test_a_push_consumer_goes_on_after_kill_9_and_gets_nothing_again(server: Serving, start: Start) -> None:
    program = await start()
    await program.do("producer", name="producer", topics=[TOPIC])
    await program.do("push", name="push", group="billing", topic=TOPIC)
    await program.do("transact", name="producer", topic=TOPIC, body="before", end=["commit"])
    await program.until("consumed", "push", 1)
    await until(lambda: server.stored_as_done("billing", TOPIC) == 1, PATIENCE_S)
    await server.kill()
    await server.start()
    async with asyncio.timeout(PATIENCE_S):
        while True:  # an application sends again while the connection is not there
            with contextlib.suppress(Failed):
                await program.do("send", name="producer", topic=TOPIC, body="after")
                break
    await program.until("consumed", "push", 2)
    await until(lambda: server.stored_as_done("billing", TOPIC) >= 2, PATIENCE_S)
    consumed = [one["body"] for one in program.heard("consumed", "push")]
    assert (consumed.count("before"), set(consumed)) == (1, {"before", "after"})


@pytest.mark.long
@notices_soon
async def test_a_producer_is_asked_again_after_a_restart(server: Serving, start: Start) -> None:
    program = await start()
    await program.do("producer", name="producer", topics=[TOPIC], answer="unknown")
    await program.do("transact", name="producer", topic=TOPIC, body="paid", end=[])
    await program.until("asked", "producer", 1)
    await server.kill()
    await program.do("answer", name="producer", answer="commit")
    before = len(program.heard("asked", "producer"))
    await server.start()
    questions = await program.until("asked", "producer", before + 1)
    assert questions[-1]["answer"] == "commit"


async def test_a_client_with_a_token_is_served_and_one_with_a_wrong_secret_is_not(
    command: Command, tmp_path: Path
) -> None:
    tokens = write(tmp_path, "shop", [Scope.PRODUCE, Scope.CONSUME])
    async with serving(tmp_path, "--tokens", tokens) as server:
        await server.start()
        token = token_of("shop")
        async with program(command, server.address, tmp_path, token, token) as trusted:
            await _send(trusted, "paid")
            await trusted.do("simple", name="consumer", group="billing", topic=TOPIC, wait_s=20)
            (message,) = (await trusted.do("receive", name="consumer"))["messages"]
            assert message["body"] == "paid"
        async with program(command, server.address, tmp_path, token, "wrong") as stranger:
            with pytest.raises(Failed):
                await _send(stranger, "forged")
        assert await server.bodies(TOPIC, token) == ["paid"]


async def _send(program: Program, body: str) -> None:
    await program.do("producer", name="producer", topics=[TOPIC])
    await program.do("send", name="producer", topic=TOPIC, body=body)
