"""Tokens with destinations: one entry for a topic counts at every door."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.integration.server.running import running
from tests.support.fake_coordinator import Client, get
from tests.support.identities import bearer, token_of, write
from tests.support.queue_api import queue_api_of
from tests.support.rocketmq_wire import Wire, resource
from twophase.core.errors import ConfigurationError, Forbidden
from twophase.core.queue_api import RECEIVE_PATH
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.descriptors import kind
from twophase.server.identity.caller import Caller
from twophase.server.identity.scopes import Scope

LETTERS = "%DLQ%back"
"""Where one reads `%ba` as a quoted byte, this is no name."""
OTHERS = "%DLQ%front"


@pytest.mark.parametrize("entry", ["queue://%25DLQ%25back", "queue://%DLQ%back"])
async def test_one_destination_covers_dead_letters_at_every_door(tmp_path: Path, entry: str) -> None:
    tokens = write(tmp_path, "repair", list(Scope), destinations=(entry,))
    wanted = {"group": "repair", "client": "me", "wait_ms": 0}
    async with running(tmp_path, tokens=tokens, rocketmq_port=0) as server:
        (url,) = [url for url in server.server.urls if url.startswith("rocketmq://")]
        wire = Wire(url.removeprefix("rocketmq://"), token_of("repair"))
        async with queue_api_of(server.port, token="repair") as api:
            for topic, refusal, code in (
                (LETTERS, (200, ""), Code.OK),
                (OTHERS, (403, Forbidden.code), Code.FORBIDDEN),
            ):
                assert await api.refusal(RECEIVE_PATH, topic=topic, **wanted) == refusal
                assert await wire.code("QueryRoute", topic=resource(topic)) == code
                (status, *_) = await wire.receive(message_queue=kind("MessageQueue")(topic=resource(topic)))
                assert status.status.code == (Code.MESSAGE_NOT_FOUND if code == Code.OK else code)
        await wire.close()
        caller = Caller(destinations=(entry,))
        for address in ("queue://%DLQ%back?tag=paid", "queue://%25DLQ%25back?tag=paid"):
            caller.require_address(address)
        with pytest.raises(Forbidden):
            caller.require_address("queue://%25DLQ%25front")
        for topic, status in ((LETTERS, 200), (OTHERS, 404)):
            client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
            path = f"/api/twophase/queue-topics/{quote(topic, safe='')}"
            assert (await client.ask(get(path, *bearer("repair")))).status == status
            client.close()


@pytest.mark.parametrize("entry", ["queue://", "queue://or ders", "queue://orders?tag=paid", "queue://a/b/c"])
def test_a_destination_that_names_no_topic_is_refused(entry: str) -> None:
    with pytest.raises(ConfigurationError, match=r"destinations of shop: 'queue://"):
        Caller("shop", destinations=(entry,))
