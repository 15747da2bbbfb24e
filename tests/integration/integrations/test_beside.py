"""A write beside a branch's transaction is refused.

It goes through the framework's own session or ORM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from django.db import connections
from django.http import HttpRequest
from django.test import RequestFactory, override_settings
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from flask import Flask
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from tests.integration.integrations import test_django, test_django_routers
from tests.integration.integrations.test_django_routers import Order as DjangoOrder
from tests.integration.integrations.test_fastapi import branch_query
from tests.integration.integrations.test_injected_sessions import engine_of, rows
from tests.support.business_databases import Bank, new_gid
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import Message
from twophase.barrier import install, once
from twophase.barrier.adapters.django_elsewhere import Elsewhere
from twophase.errors import OutsideTransaction
from twophase.integrations import django as on_django
from twophase.integrations import fastapi as on_fastapi
from twophase.integrations import flask as on_flask

CHECK = "http://bank-a/twophase/check"
bank = test_django.bank
orders = test_django_routers.orders
rows_of_django = test_django_routers.rows


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """A row of the business."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def engine(file: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool, connect_args={"timeout": 0.2})
    Base.metadata.create_all(engine)
    install(engine)
    yield engine
    engine.dispose()


def session(engine: Annotated[Engine, Depends(engine_of)]) -> Iterator[Session]:
    """FastAPI's usual way to a session that commits when the request has ended well."""
    with Session(engine) as opened:
        yield opened
        opened.commit()


@pytest.mark.parametrize("commits", [True, False])
def test_a_branchs_global_session_of_flask_is_refused(engine: Engine, file: Path, commits: bool) -> None:
    """Flask-SQLAlchemy's `db.session` is such a one.

    The function commits it, or the end of the request does.
    """
    app, db = Flask("shop"), scoped_session(sessionmaker(engine))

    @app.post("/in")
    @on_flask.branch(engine)
    def receive(_connection: Connection) -> None:
        db.add(Order())
        if commits:
            db.commit()

    @app.teardown_request
    def commit(_error: BaseException | None) -> None:
        with contextlib.suppress(OutsideTransaction):
            db.commit() if not commits else db.rollback()
        db.remove()

    answers = [app.test_client().post("/in", query_string=branch_query("g")) for _ in range(2)]
    assert [(one.status_code, one.get_json()["code"]) for one in answers] == [(500, "TP-5014")] * 2
    assert rows(file) == (0, 0)


class Work:
    """A unit of work, in which FastAPI's injection does not show a session."""

    def __init__(self, db: Annotated[Session, Depends(session)]) -> None:
        self.db = db


@pytest.mark.parametrize("refuses", [True, False])
def test_what_a_branch_that_failed_left_in_a_session_is_not_committed_behind_its_answer(
    engine: Engine, file: Path, refuses: bool
) -> None:
    """The dependency sees no error, because the branch has answered it.

    Each call would leave another row.
    """
    app = FastAPI()
    app.dependency_overrides = {engine_of: lambda: engine}

    @app.post("/in")
    @on_fastapi.branch(engine)
    def receive(_connection: Connection, work: Annotated[Work, Depends()]) -> None:
        work.db.add(Order())
        if refuses:
            raise on_fastapi.BranchRefused("no stock")

    with TestClient(app) as client:
        for _ in range(2):
            with pytest.raises(OutsideTransaction, match=r"changes of Order that were refused when their block ended"):
                client.post("/in", params=branch_query("g"))
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.post("/in", params=branch_query("g"))
    assert answer.status_code == (409 if refuses else 500)
    assert rows(file) == (0, 0)


@pytest.mark.parametrize("drop", [Session.rollback, Session.expunge_all, Session.close])
def test_refused_changes_that_a_session_has_dropped_may_be_made_again(
    engine: Engine, file: Path, drop: Callable[[Session], None]
) -> None:
    order = Order()
    with Session(engine) as db:
        with pytest.raises(OutsideTransaction, match="the block ended while"):
            once(engine, branch_query("g"), lambda _: db.add(order))
        db.add(Order())
        with pytest.raises(OutsideTransaction, match="were refused"):
            db.commit()
        with pytest.raises(OutsideTransaction, match="were refused"):
            db.flush()
        drop(db)
        db.add(order)
        db.commit()
    assert rows(file) == (1, 0)


def test_a_row_whose_change_was_refused_can_be_changed_after_a_rollback(engine: Engine) -> None:
    with Session(engine) as db:
        order = Order()
        db.add(order)
        db.commit()
        first = order.id
        db.commit()

        def receive(_connection: Connection) -> None:
            order.id += 10

        with pytest.raises(OutsideTransaction, match="the block ended while"):
            once(engine, branch_query("g"), receive)
        db.rollback()
        order.id = first + 20
        db.commit()
        assert db.query(Order.id).all() == [(first + 20,)]


def test_a_producers_injected_session_of_fastapi_is_refused(engine: Engine, file: Path) -> None:
    """The dependency commits when the request has ended well, which it has not."""
    app = FastAPI()

    app.dependency_overrides = {engine_of: lambda: engine}

    with RecordingCoordinator().running() as coordinator:

        @app.post("/orders")
        def order(db: Annotated[Session, Depends(session)]) -> None:
            with Message(coordinator.url).add("http://bank-b/in").transaction(engine, CHECK):
                db.add(Order())

        with TestClient(app) as client, pytest.raises(OutsideTransaction):
            client.post("/orders")
    assert coordinator.operations == ["prepare", "abort"]
    assert rows(file) == (0, 1)


def test_a_branch_that_takes_a_session_on_its_connection_takes_effect(engine: Engine, file: Path) -> None:
    app = FastAPI()

    @app.post("/in")
    @on_fastapi.branch(engine)
    def receive(connection: Connection) -> None:
        with Session(connection) as session:
            session.add(Order())
            session.commit()

    with TestClient(app) as client:
        assert [client.post("/in", params=branch_query("g")).status_code for _ in range(2)] == [200, 200]
    assert rows(file) == (1, 1)


def test_sqlalchemy_beside_an_alias_is_refused(bank: Bank, engine: Engine, file: Path) -> None:
    @on_django.branch("bank")
    def reserve(_connection: Any, _request: HttpRequest) -> None:
        with engine.begin() as connection:
            connection.execute(text("insert into orders default values"))

    query = branch_query(new_gid())
    answer = reserve(RequestFactory().post("/in", query_params=query))
    assert (answer.status_code, b"TP-5014" in answer.content) == (500, True)
    assert (rows(file), bank.reasons(query["gid"])) == ((0, 0), [])


def test_djangos_orm_beside_an_engine_is_refused(engine: Engine, orders: Path) -> None:
    with pytest.raises(OutsideTransaction, match="on no alias of Django's"):
        once(engine, branch_query(new_gid()), lambda _: DjangoOrder.objects.create(pieces=1))
    with override_settings(TWOPHASE_OTHER_DATABASES="orders"):
        once(engine, branch_query(new_gid()), lambda _: DjangoOrder.objects.create(pieces=1))
    once(engine, branch_query(new_gid()), lambda _: DjangoOrder.objects.count())
    assert rows_of_django(orders) == 1
    assert not [one for one in connections["orders"].execute_wrappers if isinstance(one, Elsewhere)]


def test_an_aliass_transaction_inside_an_engines_block_is_its_own(engine: Engine, bank: Bank, orders: Path) -> None:
    install("orders")

    def inner(_connection: Any) -> None:
        DjangoOrder.objects.create(pieces=1)

    def outer(_connection: Any) -> None:
        once("orders", branch_query(new_gid()), inner)
        with pytest.raises(OutsideTransaction):
            DjangoOrder.objects.create(pieces=2)

    once(engine, branch_query(new_gid()), outer)
    assert rows_of_django(orders) == 1
