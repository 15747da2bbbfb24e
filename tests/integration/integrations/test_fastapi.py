"""FastAPI: real application, real databases, requests through ASGI."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.testclient import TestClient
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.business_databases import SPEND, Bank, arun, begin, new_gid, run
from twophase.barrier.branch import BranchOngoing, BranchRefused
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import write_branches
from twophase.barrier.transaction import perform
from twophase.core.errors import ConfigurationError
from twophase.core.gid import PROBE_GID
from twophase.core.message import Branch, encode_branches
from twophase.core.probe import ProbeState, interpret_probe
from twophase.core.verdict import Verdict, interpret_check_back
from twophase.integrations.fastapi import answer_unavailable, aonce, check_router, once

OF_PAGES = [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "none"}, {"Origin": "https://evil.example"}]
"""Headers of a page's request, or of one that a link leads to."""
ASYNC_DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg", "mysql": "asyncmy"}


def check_query(bank: Bank, gid: str) -> dict[str, str]:
    """Return the parameters that the coordinator sends."""
    (identity,) = bank.query("select value from twophase_meta where name = 'identity'")[0]
    return {"barrier": identity, "branch_id": "00", "gid": gid, "op": "msg", "trans_type": "msg", "prepared_at": "17"}


def probe_query(bank: Bank) -> dict[str, str]:
    """Return the parameters of a probe, which the coordinator sends while all is well."""
    query = check_query(bank, PROBE_GID) | {"op": "probe"}
    del query["prepared_at"]
    return query


def branch_query(gid: str) -> dict[str, str]:
    return {"gid": gid, "branch_id": "01", "op": "action", "trans_type": "msg"}


@pytest.fixture(params=["sync", "async"])
async def service(request: pytest.FixtureRequest, bank: Bank, lock_timeout_ms: int) -> AsyncIterator[httpx.AsyncClient]:
    """A producer and branch service, blocking and on asyncio."""
    app = FastAPI()
    async_engine = create_async_engine(bank.url(ASYNC_DRIVERS[bank.kind]))
    with bank.engine() as engine:
        if request.param == "sync":
            app.include_router(check_router(engine, lock_timeout=lock_timeout_ms / 1000))

            @app.post("/in")
            def receive(request: Request) -> Response:
                return once(engine, request, effect_of(request))

        else:
            app.include_router(check_router(async_engine, lock_timeout=lock_timeout_ms / 1000))

            @app.post("/in")
            async def areceive(request: Request) -> Response:
                effect = effect_of(request)

                async def aeffect(handle: Any) -> object:
                    if request.query_params.get("then") is not None:
                        return effect(handle)
                    await arun(handle, SPEND)
                    return "spent"

                return await aonce(async_engine, request, aeffect)

        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://bank") as client:
            yield client
    await async_engine.dispose()


def effect_of(request: Request) -> Any:
    """Run the branch's effect that the test's `then` parameter asks for."""
    then = request.query_params.get("then")

    def effect(handle: Any) -> object:
        if then == "return":
            return {"error": "no stock"}, 409
        if then == "refuse":
            raise BranchRefused
        if then == "ongoing":
            raise BranchOngoing
        if then == "break":
            raise RuntimeError("secret detail")
        run(handle, SPEND)
        return "spent"

    return effect


def verdict_of(response: httpx.Response) -> Verdict:
    """Return the verdict as the coordinator reads it.

    The message demands the header.
    """
    header = response.headers.get("x-twophase-verdict")
    return interpret_check_back(response.status_code, header, response.content, explicit=True)


async def test_a_commit_is_answered_with_its_branches(service: httpx.AsyncClient, bank: Bank) -> None:
    gid, body = new_gid(), encode_branches((Branch("http://b/in", b"{}"),))
    with bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        perform(write_branches(transaction.dialect, "barrier", gid, gid, body), transaction)
        transaction.commit()
        transaction.close()
    response = await service.get("/twophase/check", params=check_query(bank, gid))
    assert verdict_of(response) is Verdict.COMMITTED
    assert response.json()["dtm_result"] == "SUCCESS"
    assert base64.b64decode(response.json()["branches"]) == body


async def test_what_never_began_is_rolled_back(service: httpx.AsyncClient, bank: Bank) -> None:
    response = await service.get("/twophase/check", params=check_query(bank, new_gid()))
    assert (verdict_of(response), response.status_code) == (Verdict.ROLLED_BACK, 409)
    assert "branches" not in response.json()


@pytest.mark.parametrize("lock_timeout_ms", [300])
async def test_what_is_under_way_is_in_progress(service: httpx.AsyncClient, bank: Bank) -> None:
    gid = new_gid()
    with bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        response = await service.get("/twophase/check", params=check_query(bank, gid))
        transaction.rollback()
        transaction.close()
    assert (verdict_of(response), response.status_code) == (Verdict.IN_PROGRESS, 425)


@pytest.mark.parametrize("identity", [{"barrier": "of another shard"}, {"barrier": ""}])
async def test_another_or_no_database_is_unknown(
    service: httpx.AsyncClient, bank: Bank, identity: dict[str, str]
) -> None:
    gid = new_gid()
    response = await service.get("/twophase/check", params=check_query(bank, gid) | identity)
    assert (verdict_of(response), response.status_code) == (Verdict.UNKNOWN, 500)
    assert bank.reasons(gid) == []


async def test_a_probe_is_answered_and_writes_nothing(service: httpx.AsyncClient, bank: Bank) -> None:
    before = bank.query("select * from barrier")
    response = await service.get("/twophase/check", params=probe_query(bank))
    probed = interpret_probe(response.status_code, response.headers["x-twophase-verdict"], response.content, "")
    assert (probed.state, bank.query("select * from barrier")) == (ProbeState.READY, before)
    assert verdict_of(response) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("other", "state"),
    [({"barrier": "of another shard"}, ProbeState.WRONG_DATABASE), ({"barrier": ""}, ProbeState.READY)],
)
async def test_a_probe_compares_the_database_when_the_address_names_one(
    service: httpx.AsyncClient, bank: Bank, other: dict[str, str], state: ProbeState
) -> None:
    response = await service.get("/twophase/check", params=probe_query(bank) | other)
    probed = interpret_probe(response.status_code, response.headers["x-twophase-verdict"], response.content, "")
    assert probed.state is state
    assert probed.message


async def test_the_probes_gid_is_no_messages(service: httpx.AsyncClient, bank: Bank) -> None:
    before = bank.query("select * from barrier")
    asked = await service.get("/twophase/check", params=check_query(bank, PROBE_GID))
    called = await service.post("/in", params=branch_query(PROBE_GID))
    assert (asked.status_code, called.status_code) == (400, 400)
    assert (bank.query("select * from barrier"), bank.balance()) == (before, 100)


@pytest.mark.parametrize(
    "wrong",
    [{"gid": ""}, {"gid": "x" * 129}, {"gid": "a\nb"}, {"trans_type": "saga"}, {"op": "action"}, {"prepared_at": "-1"}],
)
async def test_a_malformed_question_is_no_verdict(
    service: httpx.AsyncClient, bank: Bank, wrong: dict[str, str]
) -> None:
    response = await service.get("/twophase/check", params=check_query(bank, "g") | wrong)
    assert response.status_code == 400
    assert verdict_of(response) is Verdict.UNKNOWN


async def test_a_branch_takes_effect_once(service: httpx.AsyncClient, bank: Bank) -> None:
    query = branch_query(new_gid())
    responses = [await service.post("/in", params=query) for _ in range(3)]
    assert [response.status_code for response in responses] == [200, 200, 200]
    assert bank.balance() == 70


@pytest.mark.parametrize(("then", "status"), [("refuse", 409), ("ongoing", 425), ("break", 500), ("return", 500)])
async def test_a_branch_that_fails_says_how_and_leaves_nothing(
    service: httpx.AsyncClient, bank: Bank, then: str, status: int
) -> None:
    response = await service.post("/in", params={**branch_query(new_gid()), "then": then})
    assert response.status_code == status
    assert b"secret" not in response.content
    assert bank.query("select * from barrier") == []


async def test_a_call_that_names_no_branch_is_refused(service: httpx.AsyncClient, bank: Bank) -> None:
    response = await service.post("/in", params={"gid": "g"})
    assert response.status_code == 400
    assert bank.balance() == 100


async def test_foreign_producers_are_answered_when_asked_to(sqlite_bank: Bank) -> None:
    app = FastAPI()
    with sqlite_bank.engine() as engine:
        app.include_router(check_router(engine, "/foreign", require_identity=False))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bank") as client:
            query = {"branch_id": "00", "gid": new_gid(), "op": "msg", "trans_type": "msg"}
            assert (await client.get("/foreign", params=query)).status_code == 409


@pytest.mark.parametrize("page", OF_PAGES)
async def test_what_a_page_sends_is_refused_without_a_verdict_and_leaves_nothing(
    service: httpx.AsyncClient, bank: Bank, page: dict[str, str]
) -> None:
    check = await service.get("/twophase/check", params=check_query(bank, new_gid()), headers=page)
    branch = await service.post("/in", params=branch_query(new_gid()), headers=page)
    assert [(one.status_code, one.json()["code"]) for one in (check, branch)] == [(403, "TP-1006")] * 2
    assert "X-Twophase-Verdict" not in check.headers
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


async def test_a_parameter_that_comes_twice_is_refused_and_leaves_nothing(
    service: httpx.AsyncClient, bank: Bank
) -> None:
    query = "&".join(f"{name}={value}" for name, value in branch_query(new_gid()).items())
    answers = [await service.post(f"/in?{name}=0042&{query}") for name in ("gid", "branch_id", "op", "trans_type")]
    answers.append(await service.get(f"/twophase/check?gid=7&{query}"))
    assert [(one.status_code, one.json()["code"]) for one in answers] == [(400, "TP-1000")] * 5
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


def test_a_handler_that_would_be_ignored_is_refused() -> None:
    """Starlette reads its handlers before the lifespan."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        answer_unavailable(app)
        yield

    with pytest.raises(ConfigurationError, match="the application has started"), TestClient(FastAPI(lifespan=lifespan)):
        pass
