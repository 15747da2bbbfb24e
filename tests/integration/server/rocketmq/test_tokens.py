"""The tokens of RocketMQ's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.identities import token_of, write
from tests.support.rocketmq_port import Serving, serving
from tests.support.rocketmq_wire import (
    GROUP,
    HALF,
    METHODS,
    PATIENCE_S,
    TOPIC,
    Wire,
    message,
    packed,
    resource,
    seconds,
    settings_command,
)
from tests.support.waiting import until
from twophase.coordinator.state.active_message import Owner
from twophase.core.queue_message import QueueMessage
from twophase.rocketmq_wire.codes import ClientType, Code
from twophase.rocketmq_wire.descriptors import SERVICE, kind
from twophase.server.identity.gate import Gate
from twophase.server.identity.scopes import Scope, scopes_of
from twophase.server.identity.tokens import Quota


@pytest.mark.parametrize("method", METHODS)
async def test_a_method_is_open_to_its_scopes_alone(closed: Serving, method: str) -> None:
    needed = scopes_of(f"/{SERVICE}/{method}")
    assert needed
    for scope in Scope:
        wire = Wire(closed, token_of(scope))
        refused = await wire.first_code(method) == Code.FORBIDDEN
        assert refused is (scope not in needed), scope
        await wire.close()


@pytest.mark.parametrize(
    ("token", "secret"), [("", None), ("tp_unknown", None), (token_of("produce"), "wrong"), (token_of("produce"), "")]
)
async def test_wrong_credentials_are_refused(closed: Serving, token: str, secret: str | None) -> None:
    wire = Wire(closed, token, secret)
    for method in METHODS:
        assert await wire.first_code(method) == Code.UNAUTHORIZED
    await wire.close()


async def test_a_bearer_token_is_one_here_too(closed: Serving) -> None:
    wire = Wire(closed)
    wire.metadata[-1] = ("authorization", f"Bearer {token_of('produce')}")
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    wire.metadata[-1] = ("authorization", "MQv2-HMAC-SHA1 nonsense")
    assert await wire.code("SendMessage", messages=[message()]) == Code.UNAUTHORIZED
    await wire.close()


async def test_the_owner_of_a_message_is_the_tokens(closed: Serving) -> None:
    wire = Wire(closed, token_of("produce"))
    await wire.ask("SendMessage", messages=[message(), message("2")])
    await wire.ask("SendMessage", messages=[message("3", **HALF)])
    assert {owner.name for owner in closed.queues.owners if owner is not None} == {"produce"}
    await wire.close()


async def test_nobody_is_asked_about_another_owners_message(closed: Serving) -> None:
    eve, own = Wire(closed, token_of("other")), Wire(closed, token_of("produce"))
    eves = await eve.settle()
    await own.ask("SendMessage", messages=[message(**HALF)])
    stream = await own.settle()
    async with asyncio.timeout(PATIENCE_S):
        assert (await stream.read()).HasField("recover_orphaned_transaction_command")
    (half,) = closed.queues.halves.values()
    assert [half.producers in client.producers for client in closed.queues.clients] == [False, True]
    eves.cancel()
    await eve.close()
    await own.close()


async def test_a_client_does_not_end_the_polls_of_another_owners_client(closed: Serving) -> None:
    eve, own = Wire(closed, token_of("other")), Wire(closed, token_of("consume"))
    polling = asyncio.ensure_future(own.receive(long_polling_timeout=seconds(3600)))
    assert closed.port is not None
    sessions = closed.port._sessions._known
    async with asyncio.timeout(PATIENCE_S):
        while not any(one._polls for one in sessions.values()):
            await asyncio.sleep(0.01)
        await eve.ask("NotifyClientTermination")
        assert [len(one._polls) for one in sessions.values() if one._polls] == [1]
        await own.ask("NotifyClientTermination")
        await polling
    await eve.close()
    await own.close()


async def test_a_token_names_the_topics_that_it_may_send_to(closed: Serving) -> None:
    wire = Wire(closed, token_of("bound"))
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    assert await wire.code("SendMessage", messages=[message(topic="orders2")]) == Code.FORBIDDEN
    assert await wire.code("QueryRoute", topic=resource("orders2")) == Code.FORBIDDEN
    await wire.close()


async def test_each_entry_of_an_acknowledgement_counts_as_a_request(tmp_path: Path) -> None:
    tokens = write(tmp_path, "slow", [Scope.CONSUME], quota=Quota(requests_per_s=4))
    entries = [kind("AckMessageEntry")(receipt_handle=str(number)) for number in range(4)]
    asked = {"entries": entries, "group": resource(GROUP), "topic": resource(TOPIC)}
    async with serving(Gate(tokens), check_s=0.05) as one:
        wire = Wire(one, token_of("slow"))
        codes = [await wire.code("AckMessage", **asked) for _ in range(2)]
        await wire.close()
    assert codes == [Code.INTERNAL_SERVER_ERROR, Code.TOO_MANY_REQUESTS]


async def test_a_token_that_is_revoked_during_a_long_poll_gets_nothing(closed: Serving, tmp_path: Path) -> None:
    wire = Wire(closed, token_of("consume"))
    polling = asyncio.ensure_future(wire.receive(long_polling_timeout=seconds(3600)))
    assert closed.port is not None
    sessions = closed.port._sessions._known
    async with asyncio.timeout(PATIENCE_S):
        while not any(one._polls for one in sessions.values()):
            await asyncio.sleep(0.01)
        (tmp_path / "tokens.toml").unlink()
        write(tmp_path, "produce", [Scope.PRODUCE])
        closed.gate.reread()
        sender = Wire(closed, token_of("produce"))
        assert await sender.code("SendMessage", messages=[message()]) == Code.OK
        status, _ = await polling
    assert status.status.code == Code.UNAUTHORIZED
    await sender.close()
    await wire.close()


def _revoke(closed: Serving, tmp_path: Path) -> None:
    """Leave one other token in the file."""
    (tmp_path / "tokens.toml").unlink()
    write(tmp_path, "other", [Scope.PRODUCE])
    closed.gate.reread()


def _consumer_of(topic: str) -> bytes:
    """Return the settings of a consumer."""
    entry = kind("SubscriptionEntry")(topic=resource(topic))
    subscription = kind("Subscription")(group=resource(GROUP), subscriptions=[entry])
    settings = kind("Settings")(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
    return packed("TelemetryCommand", settings=settings)


async def test_a_revoked_token_makes_nothing_over_a_stream_that_is_open(closed: Serving, tmp_path: Path) -> None:
    wire = Wire(closed, token_of("consume"))
    stream = wire.telemetry()
    await stream.write(_consumer_of(TOPIC))
    async with asyncio.timeout(PATIENCE_S):
        assert (await stream.read()).status.code == Code.OK
        _revoke(closed, tmp_path)
        await stream.write(_consumer_of("new"))
        assert (await stream.read()).status.code == Code.UNAUTHORIZED
    assert TOPIC in closed.queues.kinds
    assert "new" not in closed.queues.kinds
    await wire.close()


async def test_each_message_of_a_stream_counts_as_a_request(tmp_path: Path) -> None:
    tokens = write(tmp_path, "slow", [Scope.PRODUCE], quota=Quota(requests_per_s=1))
    async with serving(Gate(tokens), check_s=0.05) as one:
        wire = Wire(one, token_of("slow"))
        stream = await wire.settle()
        for _ in range(2):
            await stream.write(settings_command())
        async with asyncio.timeout(PATIENCE_S):
            codes = [(await stream.read()).status.code for _ in range(2)]
        await wire.close()
    assert Code.TOO_MANY_REQUESTS in codes


async def test_a_token_that_is_revoked_while_a_message_waits_for_room_sends_none(
    closed: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def wait(*_: Any) -> None:
        waits.set()
        await goes_on.wait()

    assert closed.port is not None
    monkeypatch.setattr(closed.port._rooms, "enter", lambda *_: False)
    monkeypatch.setattr(closed.port._rooms, "wait", wait)
    monkeypatch.setattr(closed.port._rooms, "leave", lambda *_: None)
    wire = Wire(closed, token_of("produce"))
    sending = asyncio.ensure_future(wire.code("SendMessage", messages=[message()]))
    async with asyncio.timeout(PATIENCE_S):
        await waits.wait()
        _revoke(closed, tmp_path)
        goes_on.set()
        assert await sending == Code.UNAUTHORIZED
    assert closed.queues.owners == []
    await wire.close()


@pytest.mark.parametrize("left", [(), (Scope.PRODUCE,)])
async def test_a_token_that_may_not_consume_any_more_keeps_no_message(tmp_path: Path, left: tuple[Scope, ...]) -> None:
    tokens = write(tmp_path, "both", [Scope.PRODUCE, Scope.CONSUME])
    write(tmp_path, "consume", [Scope.CONSUME])
    async with serving(Gate(tokens), check_s=0.05) as one:
        wire, other = Wire(one, token_of("both")), Wire(one, token_of("consume"), **{"x-mq-client-id": "other"})
        stream = await wire.settle()
        assert await wire.code("SendMessage", messages=[message()]) == Code.OK
        assert (await wire.receive(auto_renew=True))[0].status.code == Code.OK
        assert (await other.receive())[0].status.code == Code.MESSAGE_NOT_FOUND, "the other client keeps it"

        (tmp_path / "tokens.toml").unlink()
        write(tmp_path, "consume", [Scope.CONSUME])
        if left:
            write(tmp_path, "both", left)
        one.gate.reread()

        assert (await other.receive())[0].status.code == Code.OK
        assert [client.client_id for client in one.queues.clients] == (["both/me"] if left else [])
        stream.cancel()
        await wire.close()
        await other.close()


async def test_an_owners_messages_that_wait_delay_no_other_owner_at_its_address(
    closed: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, begun, send = asyncio.Event(), asyncio.Semaphore(0), closed.queues.send

    async def slow(messages: Sequence[QueueMessage], caller: Owner | None, peer: str = "") -> Any:
        if caller is not None and caller.name == "produce":
            begun.release()
            await allowed.wait()
        return await send(messages, caller, peer)

    monkeypatch.setattr(closed.queues, "send", slow)
    wires = [Wire(closed, token_of(name)) for name in ("produce", "produce", "other")]
    large = message(body=bytes(3 << 20))
    async with asyncio.timeout(PATIENCE_S):
        first = asyncio.ensure_future(wires[0].code("SendMessage", messages=[large]))
        await begun.acquire()
        second = asyncio.ensure_future(wires[1].code("SendMessage", messages=[message("2", bytes(3 << 20))]))
        assert closed.port is not None
        rooms = closed.port._rooms._of
        await until(lambda: any(room.waiting for room in rooms.values()))
        assert await wires[2].code("SendMessage", messages=[message("3", bytes(3 << 20))]) == Code.OK
        assert begun.locked(), "the second message of the owner waits"
        allowed.set()
        assert [await first, await second] == [Code.OK, Code.OK]
    for wire in wires:
        await wire.close()
