"""The opening of a session.

It is durable whatever the database's default, its plans use indexes, and the rest is as the URL says.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.postgres.conftest import Join, Raw
from tests.support.items import flush, prepare
from tests.support.scripted_server import Peer, serving
from twophase.core.errors import StoreUnavailable
from twophase.stores.postgres import PostgresStore
from twophase.stores.postgres.connection import connect
from twophase.stores.postgres.reconnecting import ReconnectingConnection


@pytest.mark.parametrize(("asked", "becomes"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")])
async def test_a_commit_waits_for_the_disk(url: str, asked: str, becomes: str) -> None:
    connection = await connect(f"{url}%20-csynchronous_commit%3D{asked}", 5_000)

    assert await connection.fetchval("show synchronous_commit") == becomes
    await connection.close()


async def test_what_the_url_sets_is_set(url: str) -> None:
    connection = await connect(f"{url}&lock_timeout=1234", 5_000)

    assert await connection.fetchval("show lock_timeout") == "1234ms"
    assert await connection.fetchval("show application_name") == "twophase"
    assert await connection.fetchval("show plan_cache_mode") == "force_generic_plan"
    await connection.close()


async def test_calls_beyond_the_readers_wait_and_are_all_answered(join: Join) -> None:
    store = await join()
    await flush(store, prepare("g"))

    rows = await asyncio.gather(*(store.get("g") for _ in range(100)))

    assert {row.gid for row in rows if row} == {"g"}


async def test_a_lock_that_is_never_released_is_unavailable_in_time_and_leaves_nothing_behind(
    url: str, join: Join, raw: Raw
) -> None:
    await (await join()).stop()  # the tables are made, which takes longer than this store waits
    store = PostgresStore(url, outage_wait_ms=800)
    await store.start()
    with raw.transaction():
        raw.execute("lock table message in access exclusive mode")
        for call in (lambda: store.get("g"), lambda: flush(store, prepare("g"))):
            with pytest.raises(StoreUnavailable):
                await call()
    row = await store.get("g")
    assert (await flush(store, prepare("g"))).refused == ({} if row is None else {0: row})
    await store.stop()


async def test_a_session_that_ends_as_soon_as_it_has_begun_is_unavailable() -> None:
    """A server that restarts, or an operator, ends it.

    The driver has nothing under way then.
    """

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + (len(body) + 4).to_bytes(4, "big") + body

    parameters = {"server_version": "15.0", "in_hot_standby": "off", "default_transaction_read_only": "off"}
    begun = message(b"R", bytes(4)) + b"".join(
        message(b"S", f"{name}\0{value}\0".encode()) for name, value in parameters.items()
    )
    ended = message(b"E", b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0")

    async def script(peer: Peer) -> None:
        await peer.say(begun + message(b"K", bytes(8)) + message(b"Z", b"I") + ended)
        await peer.closed()

    async with serving(script).running() as server:
        reconnecting = ReconnectingConnection(f"postgresql://me@127.0.0.1:{server.port}/db?sslmode=disable", 300)
        with pytest.raises(StoreUnavailable):
            await reconnecting.connected(reconnecting.deadline())
    assert server.connections > 1, "it is tried again"
