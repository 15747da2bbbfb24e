"""Consumers of queues over HTTP: what they receive, and what becomes of it."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.running import Running, running
from tests.support.identities import write
from tests.support.queue_api import QueueApi, queue_api_of
from tests.support.waiting import until
from twophase.core.errors import (
    Forbidden,
    Overloaded,
    QueueNotFound,
    ReceiptInvalid,
    ReceiptStale,
    Unauthenticated,
)
from twophase.core.queue_api import (
    ACK_PATH,
    DEAD_LETTER_PATH,
    EXTEND_PATH,
    GIVE_BACK_PATH,
    LEAVE_PATH,
    NACK_PATH,
    RECEIVE_PATH,
)
from twophase.server.api.queues.long_polls import POLLS_MAX
from twophase.server.identity.caller import UNLIMITED
from twophase.server.identity.scopes import Scope

WAIT = {"wait_ms": 60_000}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as server:
        yield server


@pytest.fixture
async def api(server: Running) -> AsyncIterator[QueueApi]:
    async with queue_api_of(server.port) as api:
        yield api


def polls(server: Running, client: str = "me") -> int:
    """Return how many long polls of a client wait."""
    return server.server.sessions.of(UNLIMITED, client).polls


async def test_a_message_arrives_as_it_was_sent_and_is_done_when_acknowledged(api: QueueApi) -> None:
    address = "queue://orders?id=7&tag=paid&key=k1&key=k2&p.shop=7"
    await api.send(address, '{"order":7}', "gid-1")
    (message,) = await api.receive(lease_ms=30_000)
    assert message["address"] == address
    assert b64decode(message["body"]) == b'{"order":7}'
    assert (message["attempt"], message["lease_ms"], message["transaction_id"]) == (1, 30_000, "gid-1")
    receipt = message["receipt"]
    assert await api.outcomes(ACK_PATH, receipt, "garbage") == ["", ReceiptInvalid.code]
    assert await api.outcomes(ACK_PATH, receipt) == [ReceiptStale.code]
    assert await api.receive(wait_ms=0) == []
    assert len(await api.receive(group="other")) == 1


async def test_what_a_client_makes_by_its_first_use_is_a_row_with_its_token_and_address(tmp_path: Path) -> None:
    async with running(tmp_path, tokens=write(tmp_path, "shop", [Scope.CONSUME])) as server:
        async with queue_api_of(server.port, token="shop") as api:
            for _ in range(2):
                await api.receive(wait_ms=0)
        rows = [row for row in await server.server._store.audit_chain(0, 100) if row.act != "token"]
        assert [(row.act, row.target, row.who, row.peer) for row in rows] == [
            ("define-topic", "orders", "shop", "127.0.0.1"),
            ("define-group", "billing", "shop", "127.0.0.1"),
        ]


async def test_tags_choose(api: QueueApi) -> None:
    for tag in ("paid", "sent", "void"):
        await api.send(f"queue://orders?tag={tag}")
    found = [one["address"].partition("tag=")[2] for one in await api.receive(tags="paid || void")]
    assert found == ["paid", "void"]


async def test_a_receive_waits_for_the_first_message(server: Running, api: QueueApi) -> None:
    waiting = asyncio.ensure_future(api.receive(**WAIT))
    await until(lambda: polls(server))
    await api.send("queue://orders")
    assert len(await waiting) == 1


async def test_a_client_that_goes_takes_nothing(server: Running, api: QueueApi) -> None:
    gone = QueueApi(server.port, "gone")
    waiting = asyncio.ensure_future(gone.receive(**WAIT))
    await until(lambda: polls(server, "gone"))
    await gone.close()
    await asyncio.wait([waiting])
    assert waiting.exception() is not None
    await until(lambda: not polls(server, "gone"))
    await api.send("queue://orders")
    assert [one["attempt"] for one in await api.receive()] == [1]


async def test_messages_taken_for_a_client_that_has_gone_are_given_back(
    server: Running, api: QueueApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, taken = server.server.coordinator.queues, asyncio.Event()
    receive = queues.receive

    async def too_late(*names: Any, **wanted: Any) -> Any:
        """Take messages, and be cancelled when they are taken."""
        found = await receive(*names, **wanted)
        monkeypatch.setattr(queues, "receive", receive)
        taken.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return found

    monkeypatch.setattr(queues, "receive", too_late)
    await api.send("queue://orders")
    gone = QueueApi(server.port, "gone")
    waiting = asyncio.ensure_future(gone.receive())
    await taken.wait()
    await gone.close()
    await asyncio.wait([waiting])
    assert waiting.exception() is not None
    assert [one["attempt"] for one in await api.receive(**WAIT)] == [1]


async def test_a_client_ends_its_own_polls(server: Running, api: QueueApi) -> None:
    async with queue_api_of(server.port, "other") as other:
        waiting = [asyncio.ensure_future(one.receive(**WAIT)) for one in (api, other)]
        await until(lambda: polls(server) and polls(server, "other"))
        await api.done(LEAVE_PATH, client="me")
        assert await waiting[0] == []
        assert polls(server, "other") == 1
        await api.done(LEAVE_PATH, client="other")
        assert await waiting[1] == []


async def test_polls_end_when_the_server_does(tmp_path: Path) -> None:
    async with running(tmp_path) as server, queue_api_of(server.port) as api:
        waiting = asyncio.ensure_future(api.receive(**WAIT))
        await until(lambda: polls(server))
        await server.server.drain()
        assert await waiting == []


async def test_a_client_has_a_bounded_number_of_polls(server: Running, api: QueueApi) -> None:
    waiting = [asyncio.ensure_future(api.receive(**WAIT)) for _ in range(POLLS_MAX)]
    await until(lambda: polls(server) == POLLS_MAX)
    refused = await api.refusal(RECEIVE_PATH, group="billing", topic="orders", client="me")
    assert refused == (503, Overloaded.code)
    await api.done(LEAVE_PATH, client="me")
    assert await asyncio.gather(*waiting) == [[]] * POLLS_MAX


async def test_a_lease_that_is_over_gives_the_message_to_others(server: Running, api: QueueApi) -> None:
    await api.send("queue://orders")
    (first,) = await api.receive(lease_ms=10_000)
    status, answer = await api.ask(
        EXTEND_PATH, group="billing", topic="orders", receipt=first["receipt"], lease_ms=20_000
    )
    assert (status, answer["receipt"] == first["receipt"]) == (200, False)
    again = await api.ask(EXTEND_PATH, group="billing", topic="orders", receipt=first["receipt"], lease_ms=20_000)
    assert again == (200, answer), "the first answer may have been lost"
    assert await api.of(EXTEND_PATH, first["receipt"], lease_ms=1_000) == (200, ""), "it shortens nothing"
    server.advance(19_000)
    assert await api.receive(wait_ms=0) == []
    server.advance(1_001)
    (second,) = await api.receive()
    assert second["attempt"] == 2
    assert await api.outcomes(ACK_PATH, answer["receipt"], second["receipt"]) == [ReceiptStale.code, ""]


async def test_a_refused_message_comes_again_after_the_groups_pause_or_its_own(server: Running, api: QueueApi) -> None:
    await api.send("queue://orders")
    for pause_ms in (1_000, 5_000):
        (one,) = await api.receive()
        wanted = {"group": "billing", "topic": "orders", "receipt": one["receipt"], "attempt": one["attempt"]}
        assert await api.done(NACK_PATH, **wanted) == {"pause_ms": pause_ms}
        assert await api.receive(wait_ms=0) == []
        server.advance(pause_ms + 1)
    (one,) = await api.receive()
    assert await api.of(NACK_PATH, one["receipt"], pause_ms=0) == (200, "")
    assert [again["attempt"] for again in await api.receive(**WAIT)] == [4]


async def test_what_is_given_back_was_not_delivered(api: QueueApi) -> None:
    for number in range(3):
        await api.send(f"queue://orders?id={number}")
    found = await api.receive()
    assert await api.outcomes(GIVE_BACK_PATH, *(one["receipt"] for one in found)) == ["", "", ""]
    again = await api.receive(wait_ms=0)
    assert {(one["address"], one["attempt"]) for one in again} == {(one["address"], 1) for one in found}
    assert await api.outcomes(GIVE_BACK_PATH, found[0]["receipt"]) == [ReceiptStale.code]


async def test_a_dead_letter_has_its_reason(api: QueueApi) -> None:
    await api.send("queue://orders?id=7&tag=paid", '{"order":7}')
    (one,) = await api.receive()
    assert await api.of(DEAD_LETTER_PATH, one["receipt"], reason="no such article") == (200, "")
    (letter,) = await api.receive(topic="%DLQ%billing", group="people")
    assert letter["address"].startswith("queue://%25DLQ%25billing?id=7&tag=paid&")
    assert "p.DLQ_ORIGIN_TOPIC=orders" in letter["address"]
    assert "p.DLQ_REASON=no+such+article" in letter["address"]
    assert await api.receive(wait_ms=0) == []


async def test_the_bodies_of_an_answer_are_bounded(api: QueueApi) -> None:
    for number in range(6):
        await api.send(f"queue://orders?id={number}", f'"{number:900000}"')
    first = await api.receive()
    second = await api.receive()
    ids = [one["address"].partition("id=")[2] for one in first + second]
    assert (len(first), ids) == (4, list("012345"))
    assert {one["attempt"] for one in first + second} == {1}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"wait_ms": 60_001}, "$.wait_ms"),
        ({"limit": 0}, "$.limit"),
        ({"limit": 33}, "$.limit"),
        ({"lease_ms": 999}, "$.lease_ms"),
        ({"client": "two words"}, "$.client"),
        ({"client": ""}, "$.client"),
        ({"group": "no group"}, "no group"),
        ({"topic": "no topic"}, "no topic"),
        ({"namespace": "no space"}, "no space"),
        ({"tags": "amount > 3"}, "not a filter"),
    ],
)
async def test_a_wrong_request_is_refused_by_the_name_of_its_field(
    api: QueueApi, fields: dict[str, Any], named: str
) -> None:
    wanted = {"group": "billing", "topic": "orders", "client": "me", "wait_ms": 0, **fields}
    status, answer = await api.ask(RECEIVE_PATH, **wanted)
    assert status == 400
    assert named in answer["message"]


async def test_a_topic_that_is_not_made_on_use_is_not_found(tmp_path: Path) -> None:
    async with running(tmp_path, queues_made_on_use=False) as server, queue_api_of(server.port) as api:
        refused = await api.refusal(RECEIVE_PATH, group="billing", topic="orders", client="me")
        assert refused == (400, QueueNotFound.code)


async def test_a_token_opens_what_its_entry_says(tmp_path: Path) -> None:
    write(tmp_path, "shop", [Scope.PRODUCE])
    write(tmp_path, "bound", [Scope.CONSUME], destinations=("queue://orders",))
    tokens = write(tmp_path, "billing", [Scope.CONSUME])
    wanted = {"group": "billing", "topic": "orders", "client": "me", "wait_ms": 0}
    refusals = {"": (401, Unauthenticated.code), "shop": (403, Forbidden.code), "billing": (200, "")}
    async with running(tmp_path, tokens=tokens) as server:
        for token, expected in refusals.items():
            async with queue_api_of(server.port, token=token) as api:
                assert await api.refusal(RECEIVE_PATH, **wanted) == expected
        async with queue_api_of(server.port, token="bound") as api:
            assert await api.refusal(RECEIVE_PATH, **wanted) == (200, "")
            assert await api.refusal(RECEIVE_PATH, **wanted | {"topic": "orders2"}) == (403, Forbidden.code)
            for path in (NACK_PATH, EXTEND_PATH, DEAD_LETTER_PATH):
                assert await api.of(path, "1", topic="orders2", lease_ms=10_000) == (403, Forbidden.code)
            assert await api.refusal(ACK_PATH, group="billing", topic="orders2", receipts=["1"]) == (
                403,
                Forbidden.code,
            )


async def test_a_token_that_is_revoked_during_a_poll_gets_nothing(tmp_path: Path) -> None:
    write(tmp_path, "shop", [Scope.PRODUCE])
    tokens = write(tmp_path, "billing", [Scope.CONSUME])
    async with (
        running(tmp_path, tokens=tokens) as server,
        queue_api_of(server.port, token="billing") as api,
        queue_api_of(server.port, token="shop") as shop,
    ):
        wanted = {"group": "billing", "topic": "orders", "client": "me", **WAIT}
        waiting = asyncio.ensure_future(api.refusal(RECEIVE_PATH, **wanted))
        await until(lambda: any(one.polls for one in server.server.sessions._known.values()))
        (tmp_path / "tokens.toml").unlink()
        write(tmp_path, "shop", [Scope.PRODUCE])
        write(tmp_path, "other", [Scope.CONSUME])
        server.server.gate.reread()
        await shop.send("queue://orders")
        assert await waiting == (401, Unauthenticated.code)
        async with queue_api_of(server.port, token="other") as other:
            assert [one["attempt"] for one in await other.receive()] == [1]
