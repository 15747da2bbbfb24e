"""A branch takes effect at most once, on real databases (I6).

Its 200 follows the commit (decision 6).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import flask
import httpx
import pytest
import starlette.responses
import werkzeug.exceptions
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError

from tests.support.business_databases import SPEND, Bank, new_gid, run
from twophase.barrier.asking import check_back
from twophase.barrier.branch import BranchRefused, aonce, once
from twophase.core.errors import BarrierTableMissing, FunctionRefused, TransactionLost
from twophase.core.verdict import Verdict

BankAndWay = tuple[Bank, str]


def call_of(gid: str, branch_id: str = "01") -> dict[str, str]:
    """Return a coordinator's query parameters."""
    return {"gid": gid, "branch_id": branch_id, "op": "action", "trans_type": "msg"}


def spend(handle: Any) -> str:
    """The branch's effect."""
    run(handle, SPEND)
    return "done"


def test_it_takes_effect_once(bank_and_way: BankAndWay) -> None:
    bank, way = bank_and_way
    call = call_of(new_gid())
    with bank.reached(way) as engine:
        assert [once(engine, call, spend) for _ in range(3)] == ["done", None, None]
    assert bank.balance() == 70
    assert bank.query("select trans_type, branch_id, op, barrier_id, reason from barrier") == [
        ("msg", "01", "action", "01", "action")
    ]


def test_branches_of_one_message_are_distinguished(bank: Bank) -> None:
    gid = new_gid()
    with bank.engine() as engine:
        assert [once(engine, call_of(gid, branch_id), spend) for branch_id in ("01", "02-01", "01")] == [
            "done",
            "done",
            None,
        ]
    assert bank.balance() == 40


def test_a_failed_effect_leaves_nothing_and_may_come_again(bank_and_way: BankAndWay) -> None:
    bank, way = bank_and_way
    call = call_of(new_gid())

    def fail(handle: Any) -> None:
        spend(handle)
        raise LookupError

    with bank.reached(way) as engine:
        with pytest.raises(LookupError):
            once(engine, call, fail)
        assert bank.balance() == 100
        assert once(engine, call, spend) == "done"


def test_concurrent_calls_take_effect_once(bank: Bank) -> None:
    call = call_of(new_gid())
    together = threading.Barrier(4)

    def deliver(_: int) -> str | None:
        with bank.engine() as engine:
            together.wait(20)
            return once(engine, call, spend)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(deliver, range(4)))
    assert sorted(result or "" for result in results) == ["", "", "", "done"]
    assert bank.balance() == 70


@pytest.mark.parametrize("then", ["commit", "rollback"])
def test_an_effect_that_ends_the_transaction_is_never_confirmed(bank_and_way: BankAndWay, then: str) -> None:
    bank, way = bank_and_way

    def effect(handle: Any) -> None:
        spend(handle)
        run(handle, then)

    with bank.reached(way) as engine, pytest.raises(TransactionLost):
        once(engine, call_of(new_gid()), effect)


async def _never_awaited(handle: Any) -> None:
    spend(handle)


async def _never_iterated(handle: Any) -> AsyncIterator[str]:
    yield spend(handle)


def _never_asked_for_more(handle: Any) -> Iterator[str]:
    yield spend(handle)


@pytest.mark.parametrize(
    "effect",
    [
        _never_awaited,
        _never_iterated,
        _never_asked_for_more,
        functools.partial(_never_awaited),
        lambda handle: _never_awaited(handle),  # noqa: PLW0108 -- hides that it is async
        lambda handle: _never_iterated(handle),  # noqa: PLW0108 -- as above
        lambda handle: _never_asked_for_more(handle),  # noqa: PLW0108 -- hides that it is a generator function
        lambda _: Future[None](),
        lambda handle: starlette.responses.StreamingResponse(_never_asked_for_more(handle)),
        lambda handle: flask.Response(_never_asked_for_more(handle)),
        lambda _: types.SimpleNamespace(status_code=200, headers={}, streaming=True),
    ],
    ids=[
        *("async", "async-generator", "generator", "partial"),
        *("lambda", "lambda-async-generator", "lambda-generator"),
        *("thread", "starlette-stream", "flask-stream", "django-stream"),
    ],
)
def test_an_effect_that_would_not_run_is_never_confirmed(
    banks: dict[str, Bank], effect: Callable[[Any], object]
) -> None:
    bank, call = banks["sqlite"], call_of(new_gid())
    with bank.engine() as engine:
        with pytest.raises(FunctionRefused, match="TP-5010"):
            once(engine, call, effect)
        assert bank.query("select count(*) from barrier") == [(0,)]
        assert once(engine, call, spend) == "done"


def test_a_generator_expression_is_a_result(banks: dict[str, Bank]) -> None:
    with banks["sqlite"].engine() as engine:
        result = once(engine, call_of(new_gid()), lambda handle: (word for word in (spend(handle),)))
    assert result is not None
    assert list(result) == ["done"]


async def _returned_without_await(handle: Any) -> object:
    return _never_awaited(handle)


async def _started_without_await(handle: Any) -> object:
    return asyncio.ensure_future(_never_awaited(handle))


async def _returned_generator(handle: Any) -> object:
    return _never_asked_for_more(handle)


@pytest.mark.parametrize("effect", [_returned_without_await, _started_without_await, _returned_generator])
async def test_an_async_effect_that_returns_what_it_should_have_awaited_is_never_confirmed(
    banks: dict[str, Bank], effect: Callable[[Any], Awaitable[object]]
) -> None:
    bank = banks["sqlite"]
    async with bank.areached("aiosqlite engine") as engine:
        with pytest.raises(FunctionRefused, match="TP-5010"):
            await aonce(engine, call_of(new_gid()), effect)
    assert bank.query("select count(*) from barrier") == [(0,)]


@pytest.mark.parametrize(
    "answer",
    [starlette.responses.Response(status_code=409), flask.Response(status=503), httpx.Response(500)],
    ids=["starlette", "flask", "httpx"],
)
def test_an_effect_that_returns_a_refusal_is_never_confirmed(banks: dict[str, Bank], answer: object) -> None:
    bank, call = banks["sqlite"], call_of(new_gid())
    with bank.engine() as engine:
        with pytest.raises(FunctionRefused, match=r"an answer of status \d{3}, which is not sent"):
            once(engine, call, lambda handle: (spend(handle), answer)[1])
        assert bank.query("select count(*) from barrier") == [(0,)]
        assert once(engine, call, lambda _: starlette.responses.Response()) is not None


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (BranchRefused("no stock"), "returned BranchRefused instead of raising it"),
        (BranchRefused, "returned BranchRefused instead of raising it"),
        (ValueError("no stock"), "returned ValueError instead of raising it"),
        (werkzeug.exceptions.Conflict(), "returned Conflict instead of raising it"),
        ({"dtm_result": "FAILURE"}, "returned FAILURE, which is not sent"),
        ({"dtm_result": "ONGOING"}, "returned ONGOING, which is not sent"),
        ("FAILURE", "returned FAILURE, which is not sent"),
        ('{"dtm_result": "FAILURE"}', "returned FAILURE, which is not sent"),
        (b'{"dtm_result":"ONGOING","message":"later"}', "returned ONGOING, which is not sent"),
        (types.SimpleNamespace(status=409, headers={}), "an answer of status 409, which is not sent"),
    ],
)
def test_a_refusal_that_is_returned_instead_of_raised_is_never_confirmed(
    banks: dict[str, Bank], returned: object, words: str
) -> None:
    bank, call = banks["sqlite"], call_of(new_gid())
    with bank.engine() as engine:
        with pytest.raises(FunctionRefused, match=words):
            once(engine, call, lambda handle: (spend(handle), returned)[1])
        assert bank.query("select count(*) from barrier") == [(0,)]
        assert once(engine, call, lambda _: {"dtm_result": "SUCCESS", "note": "FAILURE"}) is not None


async def test_an_async_effect_that_returns_a_refusal_is_never_confirmed(banks: dict[str, Bank]) -> None:
    async def effect(_handle: Any) -> object:
        return starlette.responses.Response(status_code=409)

    bank = banks["sqlite"]
    async with bank.areached("aiosqlite engine") as engine:
        with pytest.raises(FunctionRefused, match="409"):
            await aonce(engine, call_of(new_gid()), effect)
    assert bank.query("select count(*) from barrier") == [(0,)]


async def test_a_blocking_effect_on_an_async_engine_is_never_confirmed(banks: dict[str, Bank]) -> None:
    bank = banks["sqlite"]
    async with bank.areached("aiosqlite engine") as engine:
        with pytest.raises(FunctionRefused, match="`once`"):
            await aonce(engine, call_of(new_gid()), lambda _: "done")  # type: ignore[arg-type,return-value]
    assert bank.query("select count(*) from barrier") == [(0,)]


def test_a_swallowed_error_is_never_confirmed(postgres_bank: Bank) -> None:
    def effect(handle: Any) -> None:
        spend(handle)
        with pytest.raises(Exception, match="unique"):
            run(handle, "insert into account values ('A', 1)")

    with postgres_bank.engine() as engine, pytest.raises(TransactionLost):
        once(engine, call_of(new_gid()), effect)
    assert postgres_bank.balance() == 100


@pytest.mark.parametrize("option", [{"stream_results": True}, {"yield_per": 10}], ids=lambda option: next(iter(option)))
def test_a_function_that_streams_its_rows_takes_effect(bank: Bank, option: dict[str, Any]) -> None:
    """An option of a Connection stays, and a server's cursor takes no update."""

    def read(connection: Connection) -> int:
        spend(connection)
        accounts = connection.execution_options(**option).execute(text("select id from account"))
        return len(accounts.fetchall())

    call = call_of(new_gid())
    with bank.engine() as engine:
        assert [once(engine, call, read) for _ in range(2)] == [1, None]
    assert bank.balance() == 70


def test_a_missing_table_says_what_to_run(bank: Bank) -> None:
    bank.query("drop table barrier")
    with bank.engine() as engine, pytest.raises(BarrierTableMissing, match="twophase barrier install"):
        once(engine, call_of(new_gid()), spend)


def test_producer_and_branch_may_share_a_database(bank: Bank) -> None:
    gid = new_gid()
    with bank.engine() as engine:
        once(engine, call_of(gid), spend)
        assert check_back(engine, gid).verdict is Verdict.ROLLED_BACK
        assert once(engine, call_of(gid), spend) is None


def swallow_an_error(connection: Connection) -> None:
    """Write an audit row, and suppress its error so that the request does not break.

    PostgreSQL aborts the transaction, and its COMMIT does not report that.
    """
    with contextlib.suppress(DBAPIError):
        connection.execute(text("insert into account values ('A', 0)"))


@pytest.mark.postgres
@pytest.mark.parametrize("way", ["engine", "session"])
def test_an_effect_that_a_commit_listener_rolled_back_is_not_answered_for(postgres_bank: Bank, way: str) -> None:
    call = call_of(new_gid())
    with postgres_bank.reached(way) as engine:
        target = engine if way == "engine" else engine.get_bind()
        event.listen(target, "commit", swallow_an_error)
        with pytest.raises(TransactionLost):
            once(engine, call, spend)
        assert postgres_bank.balance() == 100
        event.remove(target, "commit", swallow_an_error)
        assert once(engine, call, spend) == "done"
    assert postgres_bank.balance() == 70


@pytest.mark.postgres
async def test_an_async_effect_that_a_commit_listener_rolled_back_is_not_answered_for(postgres_bank: Bank) -> None:
    call = call_of(new_gid())

    async def effect(connection: Any) -> str:
        await connection.execute(text(SPEND))
        return "done"

    async with postgres_bank.areached("asyncpg engine") as engine:
        event.listen(engine.sync_engine, "commit", swallow_an_error)
        with pytest.raises(TransactionLost):
            await aonce(engine, call, effect)
        event.remove(engine.sync_engine, "commit", swallow_an_error)
        assert await aonce(engine, call, effect) == "done"
    assert postgres_bank.balance() == 70
