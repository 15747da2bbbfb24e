"""A search for an address looks at a bounded number of bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.test_search import calling, gids
from tests.support.items import abort, flush
from twophase.stores import search
from twophase.stores.search import Search
from twophase.stores.sqlite import SqliteStore

WANTED = Search(destination="http://mail:80")


@pytest.mark.parametrize("final", [False, True], ids=["live", "final"])
async def test_a_page_looks_at_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, final: bool
) -> None:
    monkeypatch.setattr(search, "EXAMINED_BYTES_MAX", 250_000)
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    try:
        for number in range(10):
            url = "http://mail:80/in" if number in {0, 5} else "http://other:80/in"
            await flush(store, calling(f"g{number}", url, payload=bytes(100_000)))
            if final:
                await flush(store, abort(f"g{number}"))

        first = await store.search(WANTED, "", 100)

        assert (list(first.rows), bool(first.position)) == ([], True)
        assert await gids(store, WANTED) == ["g5", "g0"]
        assert len((await store.search(Search(), "", 100)).rows) == 10
    finally:
        await store.stop()
