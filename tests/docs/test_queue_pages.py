"""The pages on queues, as a reader copies them: service, worker and producer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import text

from tests.docs.pages import ROOT, examples
from tests.support.waiting import blocked_until, until
from twophase import Client, State, queue_address
from twophase.barrier import install
from twophase.queues import Consumer, Decision, Half
from twophase.testing import InProcessCoordinator

PATIENCE_S = 60
CONSUME = examples(ROOT / "docs" / "how-to" / "consume-queues.md")
PRODUCE = examples(ROOT / "docs" / "how-to" / "transactional-producer.md")


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCoordinator]:
    with InProcessCoordinator() as coordinator:
        monkeypatch.setenv("COORDINATOR", coordinator.url)
        yield coordinator


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with the tables that the pages suppose."""
    file = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("create table orders (article integer, pieces integer)")
        connection.execute("create table bills (message text primary key, article integer, pieces integer)")
        connection.execute("create table decided (id text primary key, state text)")
    monkeypatch.setenv("DATABASE", f"sqlite:///{file}")
    return file


def rows(file: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return connection.execute(sql).fetchall()


def sent(client: Client, *payloads: Any, tag: str = "paid") -> None:
    for payload in payloads:
        client.message().add(queue_address("orders", tag=tag), payload).submit()


@pytest.mark.parametrize("name", ["consume-queues.md", "transactional-producer.md"])
def test_every_example_of_these_pages_is_run(name: str) -> None:
    page = ROOT / "docs" / "how-to" / name
    assert page.read_text().count("```python") == len(examples(page))


def test_a_message_of_a_local_transaction_goes_into_its_queue(
    coordinator: InProcessCoordinator, database: Path
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    install(engine)
    names = {"COORDINATOR": coordinator.url, "CHECK": "http://127.0.0.1:1/check", "engine": engine, "text": text}
    exec(CONSUME["send"], names)
    gid = names["order"](7, 2)  # type: ignore[operator]
    assert coordinator.wait_final(gid) is State.SUCCEEDED
    counted: list[int] = []
    names["count"] = counted.append
    names["Consumer"] = Consumer
    exec(CONSUME["pull"], names)
    assert (counted, rows(database, "select * from orders")) == ([2], [(7, 2)])
    engine.dispose()


def test_a_service_consumes_as_long_as_it_runs(
    coordinator: InProcessCoordinator, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE", f"sqlite+aiosqlite:///{database}")
    with Client(coordinator.url) as client:
        sent(client, {"article": 7, "pieces": 2}, {"article": 8, "pieces": 0}, {"article": "none"})

    async def serve() -> None:
        names: dict[str, Any] = {}
        exec(CONSUME["service"], names)
        app = names["app"]
        async with app.router.lifespan_context(app):
            await until(lambda: rows(database, "select article, pieces from bills") == [(7, 2)])
            await asyncio.to_thread(reasons)
        await names["engine"].dispose()

    def reasons() -> None:
        with Consumer(coordinator.url, "people") as people:
            found: list[str] = []
            while len(found) < 2:
                found += [one.properties["DLQ_REASON"] for one in people.receive("%DLQ%billing", limit=2)]
            assert sorted(found) == [
                "TP-1023: int_parsing at article, missing at pieces.",
                "an order has at least one piece",
            ]

    asyncio.run(serve())


def test_a_worker_process_consumes_until_it_is_stopped(
    coordinator: InProcessCoordinator, database: Path, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(CONSUME["worker"])
    worker = subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path, env=dict(os.environ))
    try:
        with Client(coordinator.url) as client:
            sent(client, {"article": 7, "pieces": 2})
        blocked_until(lambda: rows(database, "select article, pieces from bills"))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    finally:
        worker.kill()
        worker.wait()
    assert rows(database, "select article, pieces from bills") == [(7, 2)]


def test_a_producer_sends_what_it_commits_and_its_check_decides_once(
    coordinator: InProcessCoordinator, database: Path
) -> None:
    names: dict[str, Any] = {}
    exec(PRODUCE["producer"], names)
    with names["producer"]:
        assert names["order"](7, 2)
    with Consumer(coordinator.url, "billing") as billing:
        (message,) = billing.receive("orders")
        assert (message.decode(dict), message.tag) == ({"article": 7, "pieces": 2}, "paid")
    listener = names["Orders"]()

    def half(name: str) -> Half:
        return Half(
            topic="orders",
            namespace="",
            message_id=name,
            transaction_id=name,
            tag="",
            keys=(),
            properties={},
            raw=b"{}",
        )

    assert listener.check(half(message.transaction_id)) is Decision.COMMIT
    assert listener.check(half("unknown")) is Decision.ROLLBACK
    with pytest.raises(sqlalchemy.exc.IntegrityError):
        listener.execute(half("unknown"), {"article": 8, "pieces": 1})
    assert listener.check(half("unknown")) is Decision.ROLLBACK
    assert rows(database, "select * from orders") == [(7, 2)]
    names["engine"].dispose()
