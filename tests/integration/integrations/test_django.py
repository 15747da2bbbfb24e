"""Django: real settings, views and databases, its own test client.

The alias stands for the engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import django
import pytest
import sqlalchemy
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

from tests.integration.integrations.test_fastapi import OF_PAGES, branch_query, check_query, probe_query
from tests.support.business_databases import SPEND, Bank, begin, new_gid, run, verify
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import Message
from twophase.barrier.asking import check_back
from twophase.barrier.branch import BranchRefused
from twophase.barrier.installing import install
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import verify_producer
from twophase.core.errors import OpenTransaction, TransactionLost, UnsupportedEngine
from twophase.core.verdict import Verdict
from twophase.integrations.django import branch_view, check_view, once

if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.dummy"}},
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="only for tests",
        MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
        USE_TZ=True,
    )
    django.setup()


@branch_view("bank")
def receive(request: HttpRequest) -> HttpResponse:
    """A branch."""

    def effect(connection: Any) -> None:
        run(connection, SPEND)
        if request.GET.get("then") == "refuse":
            raise BranchRefused

    return once("bank", request, effect)


@branch_view
def receive_bare(_request: HttpRequest) -> HttpResponse:
    """A branch on the default database."""
    return HttpResponse("bare")


@branch_view()
def receive_called(_request: HttpRequest) -> HttpResponse:
    """The same branch as `receive_bare`."""
    return HttpResponse("called")


urlpatterns = [
    path("bare", receive_bare),
    path("called", receive_called),
    path("twophase/check", check_view("bank", lock_timeout=10)),
    path("twophase/hasty", check_view("bank", lock_timeout=0.3)),
    path("in", receive),
]

ENGINES = {"sqlite": "django.db.backends.sqlite3", "postgresql": "django.db.backends.postgresql"}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def bank(request: pytest.FixtureRequest, banks: dict[str, Bank]) -> Iterator[Bank]:
    """A bank as the alias `bank`.

    Django reaches MySQL only through a driver that needs a compiler.
    """
    found = banks[request.param]
    with found.plain() as connection:
        install(connection)
    found.query("delete from barrier")
    found.query("update account set balance = 100")
    connections.databases["bank"] = connections.configure_settings({"default": {}, "bank": entry(found)})["bank"]
    yield found
    connections["bank"].close()
    del connections["bank"]
    del connections.databases["bank"]


def entry(bank: Bank) -> dict[str, Any]:
    """Return Django's description of a database."""
    if bank.kind == "sqlite":
        return {"ENGINE": ENGINES["sqlite"], "NAME": bank.where}
    url = sqlalchemy.make_url(bank.url("psycopg"))
    return {
        "ENGINE": ENGINES["postgresql"],
        "NAME": url.database,
        "USER": url.username,
        "PASSWORD": url.password,
        "HOST": url.host,
        "PORT": url.port,
    }


@pytest.fixture
def client() -> Iterator[Client]:
    """Django's client, with CSRF checks as in production."""
    with override_settings(ROOT_URLCONF=__name__):
        request_started.disconnect(close_old_connections)
        request_finished.disconnect(close_old_connections)
        yield Client(enforce_csrf_checks=True)
        request_started.connect(close_old_connections)
        request_finished.connect(close_old_connections)


def test_row_and_business_commit_together(bank: Bank) -> None:
    gid, committed = new_gid(), []
    opened = open_transaction("bank")
    begin(opened, gid)
    run(opened.handle, SPEND)
    transaction.on_commit(lambda: committed.append(gid), using="bank")
    verify(opened, gid)
    opened.commit()
    opened.close()
    assert (bank.reasons(gid), bank.balance(), committed) == (["msg"], 70, [gid])


def test_row_and_business_roll_back_together(bank: Bank) -> None:
    gid = new_gid()
    opened = open_transaction("bank")
    begin(opened, gid)
    run(opened.handle, SPEND)
    opened.rollback()
    opened.close()
    assert (bank.reasons(gid), bank.balance()) == ([], 100)


def test_a_message_takes_the_alias_for_its_engine(bank: Bank) -> None:
    with RecordingCoordinator().running() as coordinator:
        message = Message(coordinator.url).add("http://bank-b/in", {"amount": 30})
        with message.transaction("bank", check="http://bank-a/twophase/check") as connection:
            run(connection, SPEND)
        refused = Message(coordinator.url).add("http://bank-b/in", {"amount": 30})

        def fail(connection: Any) -> None:
            run(connection, SPEND)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            refused.do_and_submit("bank", fail, "http://bank-a/twophase/check")
    assert message.submitted
    assert coordinator.operations == ["prepare", "submit", "prepare", "abort"]
    assert (bank.reasons(message.gid), bank.reasons(refused.gid), bank.balance()) == (["msg"], ["rollback"], 70)


def test_inside_atomic_it_is_refused(bank: Bank) -> None:
    with transaction.atomic(using="bank"), pytest.raises(OpenTransaction, match="ATOMIC_REQUESTS"):
        open_transaction("bank")


def test_with_autocommit_switched_off_it_is_refused(bank: Bank) -> None:
    transaction.set_autocommit(False, using="bank")
    with pytest.raises(OpenTransaction):
        open_transaction("bank")
    transaction.rollback(using="bank")
    transaction.set_autocommit(True, using="bank")


def test_an_unknown_alias_is_refused() -> None:
    with pytest.raises(UnsupportedEngine, match="DATABASES"):
        open_transaction("nowhere")


def test_a_nested_atomic_may_roll_back_alone(bank: Bank) -> None:
    gid = new_gid()
    opened = open_transaction("bank")
    begin(opened, gid)
    with contextlib.suppress(LookupError), transaction.atomic(using="bank"):
        run(opened.handle, SPEND)
        raise LookupError
    verify(opened, gid)
    opened.commit()
    opened.close()
    assert (bank.reasons(gid), bank.balance()) == (["msg"], 100)


def test_a_swallowed_error_never_passes_for_a_commit(bank: Bank) -> None:
    gid = new_gid()
    opened = open_transaction("bank")
    begin(opened, gid)
    with contextlib.suppress(LookupError), transaction.atomic(using="bank", savepoint=False):
        raise LookupError  # Django will roll back everything, silently
    with pytest.raises(TransactionLost):
        verify(opened, gid)
    with pytest.raises(TransactionLost):
        opened.commit()
    opened.rollback()
    opened.close()
    assert bank.reasons(gid) == []


def test_an_end_inside_the_block_is_noticed(bank: Bank) -> None:
    gid = new_gid()
    opened = open_transaction("bank")
    begin(opened, gid)
    run(opened.handle, "commit")
    with pytest.raises(TransactionLost):
        verify(opened, gid)
    opened.rollback()
    opened.close()
    assert bank.reasons(gid) == ["msg"]


def test_an_execute_wrapper_cannot_spoil_the_transaction_behind_the_last_look(bank: Bank) -> None:
    def careless(execute: Callable[..., Any], *statement: Any) -> Any:
        """Run a statement of the application, and suppress its error."""
        found = execute(*statement)
        with contextlib.suppress(Exception):
            connections["bank"].connection.cursor().execute("select no_such_column")
        return found

    gid = new_gid()
    opened = open_transaction("bank")
    begin(opened, gid)
    run(opened.handle, SPEND)
    with opened.handle.execute_wrapper(careless):
        opened.commit(verify_producer(opened.dialect, "barrier", gid, gid))
    opened.close()
    assert (bank.reasons(gid), bank.balance()) == (["msg"], 70)


def test_the_alias_answers_a_check_back(bank: Bank) -> None:
    assert check_back("bank", new_gid()).verdict is Verdict.ROLLED_BACK


def test_what_never_began_is_rolled_back(client: Client, bank: Bank) -> None:
    response = client.get("/twophase/check", check_query(bank, new_gid()))
    assert (response.status_code, response.headers["X-Twophase-Verdict"]) == (409, "rolled_back")


def test_what_is_under_way_is_in_progress(client: Client, bank: Bank) -> None:
    gid = new_gid()
    with bank.plain() as connection:
        opened = open_transaction(connection)
        begin(opened, gid)
        response = client.get("/twophase/hasty", check_query(bank, gid))
        opened.rollback()
        opened.close()
    assert (response.status_code, response.headers["X-Twophase-Verdict"]) == (425, "in_progress")


def test_under_atomic_requests_verdict_and_effect_are_still_committed_first(client: Client, bank: Bank) -> None:
    gid = new_gid()
    connections["bank"].settings_dict["ATOMIC_REQUESTS"] = True
    assert client.get("/twophase/check", check_query(bank, gid)).status_code == 409
    assert client.post(f"/in?gid={gid}&branch_id=01&op=action&trans_type=msg").status_code == 200
    assert (bank.reasons(gid), bank.balance()) == (["rollback"], 70)


def test_a_branch_takes_effect_once(client: Client, bank: Bank) -> None:
    query = "&".join(f"{name}={value}" for name, value in branch_query(new_gid()).items())
    assert [client.post(f"/in?{query}").status_code for _ in range(3)] == [200, 200, 200]
    assert bank.balance() == 70


def test_a_branch_that_refuses_leaves_nothing(client: Client, bank: Bank) -> None:
    query = "&".join(f"{name}={value}" for name, value in branch_query(new_gid()).items())
    assert client.post(f"/in?{query}&then=refuse").status_code == 409
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


@pytest.mark.parametrize("spelling", ["bare", "called"])
def test_a_branch_view_is_decorated_with_and_without_parentheses(client: Client, spelling: str) -> None:
    response = client.post(f"/{spelling}")
    assert (response.status_code, response.content) == (200, spelling.encode())
    view = {"bare": receive_bare, "called": receive_called}[spelling]
    assert "default" in view._non_atomic_requests  # type: ignore[attr-defined]


def test_a_probe_is_answered_and_writes_nothing(client: Client, bank: Bank) -> None:
    before = bank.query("select * from barrier")
    response = client.get("/twophase/check", probe_query(bank))
    assert (response.status_code, response.headers["X-Twophase-Verdict"]) == (200, "probe")
    assert response.json()["probe"] == "ready"
    assert bank.query("select * from barrier") == before


def test_a_malformed_question_is_refused(client: Client, bank: Bank) -> None:
    assert client.get("/twophase/check").status_code == 400


@pytest.mark.parametrize("page", OF_PAGES)
def test_what_a_page_sends_is_refused_without_a_verdict_and_leaves_nothing(
    client: Client, bank: Bank, page: dict[str, str]
) -> None:
    check = client.get("/twophase/check", check_query(bank, new_gid()), headers=page)
    query = "&".join(f"{name}={value}" for name, value in branch_query(new_gid()).items())
    branch = client.post(f"/in?{query}", headers=page)
    assert [(one.status_code, one.json()["code"]) for one in (check, branch)] == [(403, "TP-1006")] * 2
    assert "X-Twophase-Verdict" not in check.headers
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


def test_a_parameter_that_comes_twice_is_refused_and_leaves_nothing(client: Client, bank: Bank) -> None:
    query = "&".join(f"{name}={value}" for name, value in branch_query(new_gid()).items())
    answers = [client.post(f"/in?{query}&{name}=0042") for name in ("gid", "branch_id", "op", "trans_type")]
    answers.append(client.get(f"/twophase/check?gid=7&{query}"))
    assert [(one.status_code, one.json()["code"]) for one in answers] == [(400, "TP-1000")] * 5
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])
