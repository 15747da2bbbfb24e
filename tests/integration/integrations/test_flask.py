"""Flask: real application, real databases, its own test client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, Response, request
from flask.testing import FlaskClient

from tests.integration.integrations.test_fastapi import OF_PAGES, branch_query, check_query, probe_query
from tests.support.business_databases import SPEND, Bank, begin, new_gid, run
from twophase.barrier.branch import BranchRefused
from twophase.barrier.open import open_transaction
from twophase.integrations.flask import check_blueprint, once

RETURNED: dict[str, object] = {
    "a number": ({"error": "no stock"}, 409),
    "a text": ("no stock", "409 CONFLICT"),
    "with headers": ("no stock", 503, {"retry-after": "1"}),
    "an answer with headers": (Response(status=409), {"retry-after": "1"}),
    "dtm's word": ({"dtm_result": "FAILURE"}, 200),
}


@pytest.fixture
def service(bank: Bank, lock_timeout_ms: int) -> Iterator[FlaskClient]:
    """A producer and branch service."""
    app = Flask(__name__)
    with bank.engine() as engine:
        app.register_blueprint(check_blueprint(engine, lock_timeout=lock_timeout_ms / 1000))

        @app.post("/in")
        def receive() -> Response:
            def effect(connection: Any) -> object:
                run(connection, SPEND)
                if request.args.get("then") == "refuse":
                    raise BranchRefused
                return RETURNED.get(request.args.get("then", ""), ("done", "200 OK"))

            return once(engine, effect)

        yield app.test_client()


def test_a_commit_is_answered(service: FlaskClient, bank: Bank) -> None:
    gid = new_gid()
    with bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        transaction.commit()
        transaction.close()
    response = service.get("/twophase/check", query_string=check_query(bank, gid))
    assert (response.status_code, response.headers["X-Twophase-Verdict"]) == (200, "committed")


def test_what_never_began_is_rolled_back(service: FlaskClient, bank: Bank) -> None:
    response = service.get("/twophase/check", query_string=check_query(bank, new_gid()))
    assert (response.status_code, response.headers["X-Twophase-Verdict"]) == (409, "rolled_back")


@pytest.mark.parametrize("lock_timeout_ms", [300])
def test_what_is_under_way_is_in_progress(service: FlaskClient, bank: Bank) -> None:
    gid = new_gid()
    with bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        response = service.get("/twophase/check", query_string=check_query(bank, gid))
        transaction.rollback()
        transaction.close()
    assert (response.status_code, response.headers["X-Twophase-Verdict"]) == (425, "in_progress")


def test_a_probe_is_answered_and_writes_nothing(service: FlaskClient, bank: Bank) -> None:
    before = bank.query("select * from barrier")
    response = service.get("/twophase/check", query_string=probe_query(bank))
    assert (response.status_code, response.headers["X-Twophase-Verdict"]) == (200, "probe")
    assert response.get_json()["probe"] == "ready"
    assert bank.query("select * from barrier") == before


def test_a_malformed_question_is_refused(service: FlaskClient) -> None:
    assert service.get("/twophase/check").status_code == 400


def test_a_branch_takes_effect_once(service: FlaskClient, bank: Bank) -> None:
    query = branch_query(new_gid())
    assert [service.post("/in", query_string=query).status_code for _ in range(3)] == [200, 200, 200]
    assert bank.balance() == 70


def test_a_branch_that_refuses_leaves_nothing(service: FlaskClient, bank: Bank) -> None:
    response = service.post("/in", query_string={**branch_query(new_gid()), "then": "refuse"})
    assert response.status_code == 409
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


@pytest.mark.parametrize("page", OF_PAGES)
def test_what_a_page_sends_is_refused_without_a_verdict_and_leaves_nothing(
    service: FlaskClient, bank: Bank, page: dict[str, str]
) -> None:
    check = service.get("/twophase/check", query_string=check_query(bank, new_gid()), headers=page)
    branch = service.post("/in", query_string=branch_query(new_gid()), headers=page)
    assert [(one.status_code, one.get_json()["code"]) for one in (check, branch)] == [(403, "TP-1006")] * 2
    assert "X-Twophase-Verdict" not in check.headers
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


def test_a_parameter_that_comes_twice_is_refused_and_leaves_nothing(service: FlaskClient, bank: Bank) -> None:
    query = "&".join(f"{name}={value}" for name, value in branch_query(new_gid()).items())
    answers = [service.post(f"/in?{name}=0042&{query}") for name in ("gid", "branch_id", "op", "trans_type")]
    answers.append(service.get(f"/twophase/check?gid=7&{query}"))
    assert [(one.status_code, one.get_json()["code"]) for one in answers] == [(400, "TP-1000")] * 5
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


@pytest.mark.parametrize("returned", RETURNED)
def test_a_refusal_that_is_returned_and_not_raised_is_an_error_and_leaves_nothing(
    service: FlaskClient, bank: Bank, returned: str
) -> None:
    response = service.post("/in", query_string={**branch_query(new_gid()), "then": returned})
    assert (response.status_code, response.get_json()["code"]) == (500, "TP-5010")
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])
