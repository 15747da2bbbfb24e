"""A blocking effect in a coroutine would stop its event loop.

It is refused before anything is begun, and the error says what to write instead.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import fastapi
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.integration.integrations.consumers import asgi_client
from tests.integration.integrations.test_fastapi import branch_query
from twophase.barrier import install, once
from twophase.errors import EventLoopBlocked, Fate
from twophase.integrations import fastapi as on_fastapi

CALL = {"gid": "g", "branch_id": "01", "op": "action", "trans_type": "msg"}


def rows(file: Path) -> int:
    bank = sqlite3.connect(file)
    try:
        (count,) = bank.execute("select count(*) from barrier").fetchone()
    finally:
        bank.close()
    return int(count)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "bank.db"
    bank = sqlite3.connect(file)
    install(bank)
    bank.close()
    return file


async def test_a_blocking_effect_in_a_coroutine_is_refused_before_anything_is_begun(file: Path) -> None:
    engine = create_engine(f"sqlite:///{file}")
    with pytest.raises(EventLoopBlocked, match="TP-5012") as refused:
        once(engine, CALL, lambda _connection: "done")
    engine.dispose()

    assert refused.value.fate == Fate.NOT_STARTED
    assert "`aonce`" in refused.value.remedy
    assert rows(file) == 0


async def test_a_thread_of_a_coroutine_may_block(file: Path) -> None:
    bank = sqlite3.connect(file, check_same_thread=False)
    assert await asyncio.to_thread(once, bank, CALL, lambda _connection: "done") == "done"
    bank.close()


async def test_a_session_inside_run_sync_does_not_block_the_loop(file: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")

    def take_effect(session: Session) -> object:
        return once(session, CALL, lambda handle: handle.execute(text("select 7")).scalar())

    async with AsyncSession(engine) as session:
        assert await session.run_sync(take_effect) == 7
    await engine.dispose()
    assert rows(file) == 1


def test_an_async_route_with_a_blocking_effect_answers_what_to_write_instead(file: Path) -> None:
    engine = create_engine(f"sqlite:///{file}")
    app = fastapi.FastAPI()

    @app.post("/in")
    async def blocking(request: fastapi.Request) -> Any:
        return on_fastapi.once(engine, request, lambda _connection: None)

    @app.post("/threaded")
    def threaded(request: fastapi.Request) -> Any:
        return on_fastapi.once(engine, request, lambda _connection: None)

    ask = asgi_client(app)
    refused = ask("/in", params=branch_query("g"))
    assert (refused.status_code, refused.json()["code"]) == (500, "TP-5012")
    assert "plain `def`" in refused.json()["remedy"]
    assert ask("/threaded", params=branch_query("g")).status_code == 200
    engine.dispose()
