"""Django with several databases: a write beside the block's is refused.

`DATABASE_ROUTERS`, `using=` or another alias' cursor may send it there.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, models, transaction
from django.http import HttpRequest
from django.test import RequestFactory, override_settings

from tests.integration.integrations import test_django
from tests.integration.integrations.test_fastapi import branch_query
from tests.support.business_databases import SPEND, Bank, new_gid, run
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import Message
from twophase.barrier import install, once
from twophase.barrier.adapters.django_elsewhere import Elsewhere
from twophase.barrier.open import open_transaction
from twophase.errors import Fate, OutsideTransaction
from twophase.integrations.django import branch
from twophase.testing import outer_transaction

bank = test_django.bank
CHECK = "http://bank-a/twophase/check"


class Order(models.Model):
    """A row that the router sends to the alias `orders`."""

    pieces: Any = models.IntegerField()

    class Meta:
        """No installed app has it."""

        app_label = "routed"


class ToOrders:
    """A router that sends everything to `orders`."""

    def db_for_read(self, _model: Any, **_hints: Any) -> str:
        return "orders"

    db_for_write = db_for_read


@pytest.fixture
def orders(tmp_path: Path, bank: Bank) -> Iterator[Path]:
    """The file of the alias `orders`, with the table `routed_order` and the router."""
    file = tmp_path / "orders.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("create table routed_order (id integer primary key, pieces integer)")
    entry = {"ENGINE": test_django.ENGINES["sqlite"], "NAME": str(file)}
    connections.databases["orders"] = connections.configure_settings({"default": {}, "orders": entry})["orders"]
    with override_settings(DATABASE_ROUTERS=[ToOrders()]):
        yield file
    assert not [one for one in connections["orders"].execute_wrappers if isinstance(one, Elsewhere)]
    connections["orders"].close()
    del connections["orders"]
    del connections.databases["orders"]


def rows(orders: Path) -> int:
    with closing(sqlite3.connect(orders)) as connection:
        (count,) = connection.execute("select count(*) from routed_order").fetchone()
    return int(count)


def raw() -> None:
    with connections["orders"].cursor() as cursor:
        cursor.execute("/* by hand */ insert into routed_order (pieces) values (1)")


def in_an_atomic_of_its_own() -> None:
    with transaction.atomic(using="orders"):
        Order.objects.create(pieces=1)


WRITES: dict[str, Callable[[], object]] = {
    "create": lambda: Order.objects.create(pieces=1),
    "bulk": lambda: Order.objects.bulk_create([Order(pieces=1), Order(pieces=2)]),
    "update": lambda: Order.objects.update(pieces=2),
    "delete": lambda: Order.objects.filter(pieces=9).delete(),
    "using": lambda: Order(pieces=1).save(using="orders"),
    "atomic": in_an_atomic_of_its_own,
    "raw": raw,
}


@pytest.mark.parametrize("write", WRITES)
def test_a_producers_write_that_a_router_sends_elsewhere_is_refused(bank: Bank, orders: Path, write: str) -> None:
    Order.objects.create(pieces=9)
    with RecordingCoordinator().running() as coordinator:
        message = Message(coordinator.url).add("http://bank-b/in")

        def spend(connection: Any) -> None:
            run(connection, SPEND)
            WRITES[write]()

        with pytest.raises(OutsideTransaction) as refused:
            message.do_and_submit("bank", spend, CHECK)
    assert refused.value.fate is Fate.UNCHANGED
    assert (refused.value.code, "'orders'" in refused.value.message) == ("TP-5014", True)
    assert "TWOPHASE_OTHER_DATABASES" in refused.value.remedy
    assert coordinator.operations == ["prepare", "abort"]
    assert (bank.balance(), rows(orders), Order.objects.get().pieces) == (100, 1, 9)


def test_a_branchs_write_that_a_router_sends_elsewhere_is_refused_however_often_it_is_called(
    bank: Bank, orders: Path
) -> None:
    @branch("bank")
    def reserve(connection: Any, _request: HttpRequest) -> None:
        run(connection, SPEND)
        Order.objects.create(pieces=2)

    query = branch_query(new_gid())
    answers = [reserve(RequestFactory().post("/in", query_params=query)) for _ in range(3)]

    assert [(one.status_code, b"TP-5014" in one.content) for one in answers] == [(500, True)] * 3
    assert (bank.balance(), bank.reasons(query["gid"]), rows(orders)) == (100, [], 0)


def test_in_an_async_view_the_thread_of_the_block_is_guarded(bank: Bank, orders: Path) -> None:
    def reserve() -> None:
        once("bank", branch_query(new_gid()), lambda _: Order.objects.create(pieces=2))

    def close() -> None:
        connections.close_all()

    async def view() -> None:
        try:
            await sync_to_async(reserve)()
        finally:
            await sync_to_async(close)()

    with pytest.raises(OutsideTransaction):
        asyncio.run(view())
    assert rows(orders) == 0


def test_a_read_elsewhere_and_a_write_on_the_blocks_alias_are_allowed(bank: Bank, orders: Path) -> None:
    Order.objects.create(pieces=9)

    def effect(connection: Any) -> Any:
        run(connection, SPEND)
        with transaction.atomic(using="orders"):
            return Order.objects.select_for_update().get().pieces

    assert once("bank", branch_query(new_gid()), effect) == 9
    assert bank.balance() == 70


def test_hooks_behind_the_commit_and_code_behind_the_block_write_anywhere(bank: Bank, orders: Path) -> None:
    def effect(_connection: Any) -> None:
        transaction.on_commit(lambda: Order.objects.create(pieces=1), using="bank")

    once("bank", branch_query(new_gid()), effect)
    assert rows(orders) == 1

    with suppress(ZeroDivisionError):
        once("bank", branch_query(new_gid()), lambda _: 1 / 0)
    Order.objects.create(pieces=1)
    assert rows(orders) == 2


@pytest.mark.parametrize("named", [("orders",), "orders"])
def test_a_database_that_the_setting_names_is_written_beside_the_block(bank: Bank, orders: Path, named: Any) -> None:
    with override_settings(TWOPHASE_OTHER_DATABASES=named):
        once("bank", branch_query(new_gid()), lambda _: Order.objects.create(pieces=1))
    assert rows(orders) == 1


def test_a_block_inside_a_block_writes_on_its_own_alias_alone(bank: Bank, orders: Path) -> None:
    install("orders")

    def inner(_connection: Any) -> None:
        Order.objects.create(pieces=1)
        with pytest.raises(OutsideTransaction):
            run(connections["bank"], SPEND)

    def outer(connection: Any) -> None:
        once("orders", branch_query(new_gid()), inner)
        run(connection, SPEND)
        with pytest.raises(OutsideTransaction):
            Order.objects.create(pieces=1)

    once("bank", branch_query(new_gid()), outer)
    assert (bank.balance(), rows(orders)) == (70, 1)


def test_blocks_that_end_in_another_order_leave_nothing_refused(bank: Bank, orders: Path) -> None:
    outer, inner = open_transaction("bank"), open_transaction("orders")
    for opened in (outer, inner):
        opened.rollback()
        opened.close()

    assert connections["orders"].execute_wrappers == connections["bank"].execute_wrappers == []
    Order.objects.create(pieces=1)
    assert rows(orders) == 1


def test_an_alias_whose_driver_is_not_installed_stops_no_block(bank: Bank) -> None:
    connections.databases["absent"] = {**connections.databases["bank"], "ENGINE": "no_such_package"}
    try:
        once("bank", branch_query(new_gid()), lambda connection: run(connection, SPEND))
    finally:
        del connections.databases["absent"]
    assert bank.balance() == 70


def test_under_an_outer_transaction_of_a_test_it_is_refused_too(bank: Bank, orders: Path) -> None:
    with transaction.atomic(using="bank"), outer_transaction("bank"):
        with pytest.raises(OutsideTransaction):
            once("bank", branch_query(new_gid()), lambda _: Order.objects.create(pieces=1))
        Order.objects.create(pieces=1)
        transaction.set_rollback(True, using="bank")
    assert rows(orders) == 1
