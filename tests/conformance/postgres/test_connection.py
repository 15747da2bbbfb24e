"""The opening of a session.

It is durable whatever the database's default, its plans use indexes, and the rest is as the URL says.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.postgres.conftest import Join, Raw
from tests.support.items import flush, prepare
from twophase.core.errors import StoreUnavailable
from twophase.stores.postgres import PostgresStore
from twophase.stores.postgres.connection import connect


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
