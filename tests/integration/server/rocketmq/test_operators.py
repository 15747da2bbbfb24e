"""Owners and scopes of half messages, dead letters, topics and groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.server.running import Running, running
from tests.support.fake_coordinator import Client, get, post
from tests.support.identities import bearer, token_of, write
from tests.support.rocketmq_wire import GROUP, HALF, TOPIC, Wire, message, resource
from twophase.rocketmq_wire.codes import Code
from twophase.server.identity.scopes import Scope

OWN = "/api/twophase"
PROPERTIES = {"shop": "7", "authorization": "Bearer s3"}
REDRIVE = b'{"numbers":[0]}'


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    """A server with a half message of shop, and a dead letter of the group billing."""
    tokens = write(tmp_path, "shop", [Scope.PRODUCE, Scope.OBSERVE])
    write(tmp_path, "billing", [Scope.CONSUME])
    write(tmp_path, "eve", [Scope.PRODUCE, Scope.OBSERVE])
    write(tmp_path, "desk", [Scope.OBSERVE, Scope.OPERATE, Scope.PAYLOAD])
    write(tmp_path, "watch", [Scope.OBSERVE, Scope.OPERATE])
    write(tmp_path, "bills", [Scope.OBSERVE, Scope.OPERATE], destinations=("queue://bills",))
    write(tmp_path, "some", [Scope.OBSERVE, Scope.OPERATE], gid_prefix="order-")
    async with running(tmp_path, rocketmq_port=0, tokens=tokens) as made:
        (url,) = [url for url in made.server.urls if url.startswith("rocketmq://")]
        shop, billing = (Wire(url.removeprefix("rocketmq://"), token_of(name)) for name in ("shop", "billing"))
        assert await shop.code("SendMessage", messages=[message("half", **HALF)]) == Code.OK
        assert await shop.code("SendMessage", messages=[message("1", b"secret", properties=PROPERTIES)]) == Code.OK
        _, delivery, _ = await billing.receive()
        system = delivery.message.system_properties
        given_up = {"group": resource(GROUP), "topic": resource(TOPIC), "message_id": "1"}
        assert (
            await billing.code("ForwardMessageToDeadLetterQueue", receipt_handle=system.receipt_handle, **given_up)
            == Code.OK
        )
        await shop.close()
        await billing.close()
        yield made


async def ask(server: Running, who: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """Return status and answer of a request; one with a body is a POST."""
    request = get(f"{OWN}/{path}", *bearer(who)) if body is None else post(f"{OWN}/{path}", body, *bearer(who))
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    response = await client.ask(request)
    client.close()
    return response.status, msgspec.json.decode(response.body)


async def test_a_half_message_is_shown_to_its_owner_and_to_operators(server: Running) -> None:
    for who, seen in (("shop", 1), ("eve", 0), ("desk", 1), ("some", 0)):
        status, answer = await ask(server, who, "halves")
        assert (status, len(answer["halves"])) == (200, seen), who
    (half,) = (await ask(server, "shop", "halves"))[1]["halves"]
    for who, status in (("shop", 200), ("eve", 404), ("desk", 200), ("some", 404)):
        assert (await ask(server, who, f"places/{half['gid']}"))[0] == status, who


@pytest.mark.parametrize(("who", "shop"), [("watch", "***"), ("desk", "7")])
async def test_properties_need_the_scope_payload_and_some_are_shown_to_nobody(
    server: Running, who: str, shop: str
) -> None:
    (letter,) = (await ask(server, who, f"letters/{GROUP}"))[1]["letters"]
    assert {name: letter["properties"][name] for name in PROPERTIES} == {"shop": shop, "authorization": "***"}
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    paths = (f"{OWN}/messages?limit=100", f"{OWN}/messages/{letter['gid']}", "/api/dtmsvr/all?limit=100")
    for path in (*paths, f"/api/dtmsvr/query?gid={letter['gid']}"):
        answer = (await client.ask(get(path, *bearer(who)))).body.decode()
        assert "s3" not in answer, path
        assert ("p.shop=7" in answer) is (who == "desk" and "/all" not in path), path
        assert "p.authorization=***" in answer or "/all" in path, path
    client.close()


async def test_dead_letters_are_shown_to_operators_alone(server: Running) -> None:
    for who, seen in (("shop", 0), ("eve", 0), ("desk", 1), ("bills", 0), ("some", 0)):
        status, answer = await ask(server, who, f"letters/{GROUP}")
        assert (status, len(answer["letters"])) == (200, seen), who
    assert (await ask(server, "desk", f"letters/{GROUP}?payload=true"))[1]["letters"][0]["body"] == "secret"
    assert (await ask(server, "bills", f"letters/{GROUP}?payload=true"))[0] == 403
    status, answer = await ask(server, "bills", f"letters/{GROUP}/redrive", REDRIVE)
    assert (status, answer["letters"][0]["result"]) == (200, "refused")
    assert (await ask(server, "some", f"letters/{GROUP}/redrive", REDRIVE))[0] == 403
    assert (await ask(server, "desk", f"letters/{GROUP}/redrive", REDRIVE))[1]["letters"][0]["result"] == "sent"


async def test_a_letter_of_a_topic_that_the_token_does_not_have_is_an_unknown_one(server: Running) -> None:
    """Else an operator could send it to a topic whose consumers may not read it."""
    for edit in (',"topic":"bills"', "", ',"topic":"bills","dry_run":true', ',"dry_run":true'):
        answers = [
            (await ask(server, "bills", f"letters/{GROUP}/redrive", f'{{"numbers":[{number}]{edit}}}'.encode()))
            for number in (0, 99)
        ]
        found, unknown = ([(one["topic"], one["result"], one["why"]) for one in said["letters"]] for _, said in answers)
        assert found == unknown == [("", "refused", "there is no such letter")], edit
    assert (await ask(server, "desk", f"letters/{GROUP}"))[1]["letters"][0].get("redriven", False) is False
    assert (await ask(server, "bills", "queue-topics/bills"))[0] == 404, "nothing was sent there"


async def test_a_token_for_some_topics_sees_and_changes_no_others(server: Running) -> None:
    assert [one["name"] for one in (await ask(server, "bills", "queue-topics"))[1]["topics"]] == []
    assert (await ask(server, "bills", f"queue-topics/{TOPIC}"))[0] == 404
    assert (await ask(server, "bills", f"groups/{GROUP}"))[1]["group"]["lags"] == []
    for path, body in (
        (f"queue-topics/{TOPIC}/define", b"{}"),
        (f"queue-topics/{TOPIC}/remove", b"{}"),
        (f"groups/{GROUP}/define", b"{}"),
        (f"groups/{GROUP}/remove", b"{}"),
        (f"groups/{GROUP}/reset", b'{"topic":"orders","to":"latest"}'),
    ):
        assert (await ask(server, "bills", path, body))[0] == 403, path
        assert (await ask(server, "some", path, body))[0] == 403, path
        assert (await ask(server, "shop", path, body))[0] == 403, path
    assert (await ask(server, "bills", "queue-topics/bills/define", b"{}"))[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("queue-topics?limit=0", None, 400),
        ("queue-topics/a%20b", None, 400),
        ("queue-topics/nosuch", None, 404),
        ("groups/nosuch", None, 404),
        ("queue-topics/nosuch/remove", b"{}", 404),
        ("groups/nosuch/remove", b"{}", 404),
        ("queue-topics/bills/define", b'{"queues":"many"}', 400),
        ("queue-topics/bills/define", b'{"queues":65}', 400),
        ("groups/bills/define", b"[]", 400),
        (f"groups/{GROUP}/reset", b'{"topic":"a\\u0000","to":"latest"}', 400),
        (f"letters/{GROUP}?position=x", None, 400),
        (f"letters/{GROUP}/redrive", b'{"numbers":[0],"body":"a","body_base64":"YQ=="}', 400),
        (f"letters/{GROUP}/redrive", b'{"numbers":[0],"body_base64":"?"}', 400),
        (f"letters/{GROUP}/redrive", '{"numbers":[0],"body_base64":"Á"}'.encode(), 400),
        (f"letters/{GROUP}/redrive", b'{"numbers":[99999999999999999999]}', 400),
    ],
)
async def test_wrong_requests_are_refused(server: Running, path: str, body: bytes | None, status: int) -> None:
    assert (await ask(server, "desk", path, body))[0] == status
