"""Producers of transactional messages over HTTP: they decide, or are asked."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.running import Running, running
from tests.support.identities import write
from tests.support.queue_api import QueueApi, encoded, queue_api_of
from tests.support.rocketmq_wire import Wire
from tests.support.rocketmq_wire import message as wire_message
from tests.support.waiting import until
from twophase.core.errors import ContentConflict, ContraryDecision, Forbidden, UnknownMessage
from twophase.core.lifecycle import State
from twophase.core.queue_api import ACK_PATH, HALF_PATH, LEAVE_PATH, QUESTIONS_PATH
from twophase.rocketmq_wire.codes import Code, MessageType
from twophase.rocketmq_wire.descriptors import kind
from twophase.server.identity.caller import UNLIMITED
from twophase.server.identity.scopes import Scope

CHECK_MS = 10_000
WAIT = {"wait_ms": 60_000}
SETTINGS: dict[str, Any] = {
    "timeout_to_fail_ms": CHECK_MS,
    "check_back_first_ms": CHECK_MS,
    "check_back_cap_ms": CHECK_MS,
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, rocketmq_port=0, **SETTINGS) as server:
        yield server


@pytest.fixture
async def api(server: Running) -> AsyncIterator[QueueApi]:
    async with queue_api_of(server.port) as api:
        yield api


async def until_asking(server: Running, client: str = "me") -> None:
    """Wait until a poll of this client can be asked."""
    await until(lambda: server.server.sessions.of(UNLIMITED, client).is_live)


async def test_what_is_committed_is_in_its_queue_and_nothing_else(server: Running, api: QueueApi) -> None:
    committed = await api.half("queue://orders?id=1&tag=paid")
    rolled_back = await api.half("queue://orders?id=2")
    assert await api.half("queue://orders?id=1&tag=paid") == committed
    assert await api.decide(committed, "unknown") == (200, "")
    assert (await server.view(committed)).state is State.PREPARED
    for _ in range(2):
        assert await api.decide(committed, "commit") == (200, "")
        assert await api.decide(rolled_back, "rollback") == (200, "")
    assert await api.decide(committed, "rollback") == (409, ContraryDecision.code)
    assert await api.decide(rolled_back, "commit") == (409, ContraryDecision.code)
    assert await api.decide("queue-unknown", "commit") == (404, UnknownMessage.code)
    (message,) = await api.receive(wait_ms=0)
    assert message["address"] == "queue://orders?id=1&kind=transaction&tag=paid"
    assert message["transaction_id"] == committed


async def test_a_poll_that_waits_is_asked_about_an_orphan(server: Running, api: QueueApi) -> None:
    orphan = await api.half("queue://orders?id=1&p.shop=7", '{"order":7}')
    asking = asyncio.ensure_future(api.questions(**WAIT))
    await until_asking(server)
    server.advance(CHECK_MS + 1)
    (question,) = await asking
    assert question["transaction_id"] == orphan
    assert question["address"] == "queue://orders?id=1&kind=transaction&p.shop=7"
    assert (b64decode(question["body"]), question["asked"]) == (b'{"order":7}', 0)
    assert await api.decide(orphan, "commit", checked=True) == (200, "")
    assert len(await api.receive(wait_ms=0)) == 1


async def test_a_poll_that_comes_later_is_asked_at_once_about_all_that_waited(server: Running, api: QueueApi) -> None:
    orphans = {await api.half(f"queue://orders?id={number}") for number in range(3)}
    server.advance(CHECK_MS + 1)
    await until(lambda: server.server.coordinator._dispatcher.producers._waits_for.keys() == orphans)
    async with queue_api_of(server.port, "other") as other:
        asked = await other.questions(**WAIT)
        assert {one["transaction_id"] for one in asked} == orphans
        for one in asked:
            assert await other.decide(one["transaction_id"], "rollback", checked=True) == (200, "")
    assert await api.receive(wait_ms=0) == []


async def test_unknown_is_asked_again(server: Running, api: QueueApi) -> None:
    orphan = await api.half()
    for asked in range(3):
        asking = asyncio.ensure_future(api.questions(**WAIT))
        await until_asking(server)
        server.advance(CHECK_MS * 2)
        assert [(one["transaction_id"], one["asked"]) for one in await asking] == [(orphan, asked)]
        assert await api.decide(orphan, "unknown", checked=True) == (200, "")
    assert (await server.view(orphan)).state is State.PREPARED


async def test_a_producer_that_goes_is_not_asked(server: Running, api: QueueApi) -> None:
    gone = QueueApi(server.port, "gone")
    asking = asyncio.ensure_future(gone.questions(**WAIT))
    await until_asking(server, "gone")
    await gone.close()
    await asyncio.wait([asking])
    assert asking.exception() is not None
    await until(lambda: not server.server.sessions.of(UNLIMITED, "gone").is_live)
    waiting = asyncio.ensure_future(api.questions(**WAIT))
    await until_asking(server)
    await api.done(LEAVE_PATH, client="me")
    assert await waiting == []
    assert not server.server.sessions.of(UNLIMITED, "me").is_live


async def test_questions_of_another_group_are_not_asked(server: Running, api: QueueApi) -> None:
    await api.half(group="shop")
    asking = asyncio.ensure_future(api.questions(group="shop2", **WAIT))
    await until_asking(server)
    server.advance(CHECK_MS + 1)
    async with queue_api_of(server.port, "other") as other:
        assert len(await other.questions(**WAIT)) == 1
    await api.done(LEAVE_PATH, client="me")
    assert await asking == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"address": "queue://orders"}, "`id`"),
        ({"address": "http://orders?id=1"}, "queue://"),
        ({"address": "queue://orders?id=1&kind=fifo&group=7"}, "no other kind"),
        ({"address": "queue://orders?id=1&group=7"}, "no message group"),
        ({"address": "queue://orders?id=1&at=9999999999999"}, "no delay"),
        ({"address": f"queue://orders?id=1&p.long={2048 * 'x'}"}, "url is"),
        ({"body": encoded(1_100_000 * "x")}, "payload is"),
        ({"body": "no base64!"}, "$.body"),
        ({"check_after_ms": 0}, "$.check_after_ms"),
        ({"group": "no group"}, "no group"),
    ],
)
async def test_a_wrong_half_message_is_refused(api: QueueApi, fields: dict[str, Any], named: str) -> None:
    wanted = {"group": "shop", "client": "me", "address": "queue://orders?id=1", "body": "", **fields}
    status, answer = await api.ask(HALF_PATH, **wanted)
    assert status == 400
    assert named in answer["message"]


async def test_owners_decide_about_their_own_messages_and_are_asked_about_no_others(tmp_path: Path) -> None:
    for name in ("shop", "eve"):
        tokens = write(tmp_path, name, [Scope.PRODUCE])
    write(tmp_path, "bound", [Scope.PRODUCE], destinations=("queue://bills",))
    write(tmp_path, "prefix", [Scope.PRODUCE], gid_prefix="prefix-")
    write(tmp_path, "billing", [Scope.CONSUME])
    wanted = {"group": "shop", "client": "me", "address": "queue://orders?id=1", "body": ""}
    async with (
        running(tmp_path, tokens=tokens, **SETTINGS) as server,
        queue_api_of(server.port, token="shop") as shop,
        queue_api_of(server.port, token="eve") as eve,
    ):
        for token in ("bound", "prefix", "billing"):
            async with queue_api_of(server.port, token=token) as other:
                assert await other.refusal(HALF_PATH, **wanted) == (403, Forbidden.code)
        async with queue_api_of(server.port, token="billing") as other:
            assert await other.refusal(QUESTIONS_PATH, group="shop", client="me") == (403, Forbidden.code)
        orphan = await shop.half()
        ended = [await shop.half(f"queue://orders?id={number}") for number in "23"]
        for one, decision in zip(ended, ("commit", "rollback"), strict=True):
            assert await shop.decide(one, decision) == (200, "")
        for one in (orphan, *ended):
            for decision in ("commit", "rollback"):
                for checked in (False, True):
                    assert await eve.decide(one, decision, checked=checked) == (409, ContentConflict.code)
        eves = asyncio.ensure_future(eve.questions(**WAIT))
        await until(lambda: any(one.is_live for one in server.server.sessions._known.values()))
        server.advance(CHECK_MS + 1)
        assert [one["transaction_id"] for one in await shop.questions(**WAIT)] == [orphan]
        await shop.done(LEAVE_PATH, client="me")
        assert not eves.done(), "the same client id under another token is another client"
        await eve.done(LEAVE_PATH, client="me")
        assert await eves == []


def _address(server: Running) -> str:
    (url,) = [url for url in server.server.urls if url.startswith("rocketmq://")]
    return url.removeprefix("rocketmq://")


async def test_a_consumer_of_rocketmqs_and_one_over_http_share_a_group(server: Running, api: QueueApi) -> None:
    wire = Wire(_address(server))
    for number in "12":
        await api.send(f"queue://orders?id={number}")
    (first,) = await api.receive(limit=1)
    _, delivery, _ = await wire.receive(batch_size=32)
    assert delivery.message.system_properties.message_id == "2"
    receipt = delivery.message.system_properties.receipt_handle
    assert await api.outcomes(ACK_PATH, first["receipt"], receipt) == ["", ""]
    assert await api.receive(wait_ms=0) == []
    await wire.close()


async def test_a_half_message_of_rocketmqs_client_is_decided_over_http(server: Running, api: QueueApi) -> None:
    wire = Wire(_address(server))
    half = wire_message("1", message_type=MessageType.TRANSACTION)
    sent = await wire.ask("SendMessage", messages=[half])
    assert sent.status.code == Code.OK
    server.advance(CHECK_MS + 1)
    (question,) = await api.questions(group="orders", **WAIT)  # the topic is the group of a producer that names none
    assert question["transaction_id"] == sent.entries[0].transaction_id
    assert await api.decide(question["transaction_id"], "commit", checked=True) == (200, "")
    ended = {"topic": kind("Resource")(name="orders"), "resolution": 1, "transaction_id": question["transaction_id"]}
    assert await wire.code("EndTransaction", **ended) == Code.OK
    assert len(await api.receive(wait_ms=0)) == 1
    await wire.close()
