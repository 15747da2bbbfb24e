"""Tests inside one transaction that is rolled back: Django's TestCase.

The engine is an alias.
"""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

import pytest
from django.db import IntegrityError, connections, transaction
from django.test import Client as DjangoClient
from django.test import TestCase, override_settings

from tests.integration.integrations import test_django
from tests.integration.integrations.test_django import bank
from tests.integration.integrations.test_fastapi import branch_query
from tests.support.business_databases import SPEND, Bank, run
from tests.support.one_try import one_try
from tests.support.recording_coordinator import CUT, RecordingCoordinator
from twophase import Client
from twophase.barrier.asking import check_back
from twophase.barrier.open import open_transaction
from twophase.core.errors import OpenTransaction, UnsupportedEngine
from twophase.core.verdict import Verdict
from twophase.testing import outer_transaction

__all__ = ["bank"]

CHECK = "http://bank-a/twophase/check"
TOO_MUCH = "update account set balance = balance - 300 where id = 'A'"


def balance() -> int:
    with connections["bank"].cursor() as cursor:
        cursor.execute("select balance from account")
        return int(cursor.fetchone()[0])


class Orders(TestCase):
    """An application's own tests."""

    __test__ = False  # pytest has each of them below, on each database
    databases = {"bank"}  # noqa: RUF012 -- as Django wants it
    coordinator: ClassVar[RecordingCoordinator]

    def setUp(self) -> None:
        self.enterContext(outer_transaction("bank"))
        self.message = one_try(Client(self.coordinator.url)).message().add("http://bank-b/in", {"amount": 30})

    def spend(self, connection: Any) -> None:
        run(connection, SPEND)

    def test_what_ends_well_is_submitted(self) -> None:
        self.message.do_and_submit("bank", self.spend, CHECK)

        assert (self.message.submitted, balance()) == (True, 70)
        assert check_back("bank", self.message.gid).verdict is Verdict.COMMITTED

    def test_what_fails_is_rolled_back_alone(self) -> None:
        def fail(connection: Any) -> None:
            run(connection, SPEND)
            run(connection, TOO_MUCH)

        run(connections["bank"], "insert into account values ('B', 5)")
        with pytest.raises(IntegrityError):
            self.message.do_and_submit("bank", fail, CHECK)

        assert (self.coordinator.operations[-1], balance()) == ("abort", 100)
        assert check_back("bank", self.message.gid).verdict is Verdict.ROLLED_BACK

    def test_the_check_back_s_view_sees_what_the_test_has_committed(self) -> None:
        self.coordinator.tell("submit", CUT)
        self.message.do_and_submit("bank", self.spend, CHECK)
        with override_settings(ROOT_URLCONF=test_django.__name__):
            answer = DjangoClient().get("/twophase/check", self.question())

        assert (answer.status_code, answer.headers["X-Twophase-Verdict"]) == (200, "committed")

    def test_a_branch_s_view_takes_effect_once(self) -> None:
        with override_settings(ROOT_URLCONF=test_django.__name__):
            answers = [DjangoClient().get("/in", branch_query("g")) for _ in range(2)]

        assert ([answer.status_code for answer in answers], balance()) == ([200, 200], 70)

    def test_on_commit_is_kept_for_the_test_that_captures_it(self) -> None:
        told: list[str] = []

        def work(connection: Any) -> None:
            transaction.on_commit(lambda: told.append("committed"), using="bank")

        with self.captureOnCommitCallbacks(using="bank", execute=True):
            self.message.do_and_submit("bank", work, CHECK)

        assert told == ["committed"]

    def test_inside_an_atomic_of_the_application_it_is_refused_as_in_production(self) -> None:
        with transaction.atomic(using="bank"), pytest.raises(OpenTransaction):
            open_transaction("bank")
        with self.message.transaction("bank", check=CHECK), pytest.raises(OpenTransaction):
            open_transaction("bank")

    def test_the_refusal_says_what_to_do_and_not_what_the_test_does_already(self) -> None:
        with transaction.atomic(using="bank"), pytest.raises(OpenTransaction) as refused:
            open_transaction("bank")

        assert "non_atomic_requests" in str(refused.value)
        assert "outer_transaction" not in str(refused.value)

    def question(self) -> dict[str, str]:
        """Return the coordinator's question; its address names the database."""
        name = self.coordinator.last("prepare")["query_prepared"].partition("barrier=")[2]
        return {"barrier": name, "branch_id": "00", "gid": self.message.gid, "op": "msg", "trans_type": "msg"}


@pytest.mark.parametrize("name", unittest.defaultTestLoader.getTestCaseNames(Orders))
def test_in_a_test_case(bank: Bank, coordinator: RecordingCoordinator, name: str) -> None:
    Orders.coordinator = coordinator
    result = unittest.TestResult()

    unittest.TestSuite([Orders(name)]).run(result)

    assert [text for _, text in (*result.errors, *result.failures)] == []
    assert result.testsRun == 1
    assert (bank.query("select id, balance from account"), bank.query("select gid from barrier")) == ([("A", 100)], [])


def test_outside_of_atomic_it_is_refused(bank: Bank) -> None:
    assert bank.kind
    with pytest.raises(OpenTransaction, match="not inside"), outer_transaction("bank"):
        raise AssertionError("not reached")
    with pytest.raises(UnsupportedEngine), outer_transaction("nowhere"):
        raise AssertionError("not reached")
    with transaction.atomic(using="bank"):
        with outer_transaction("bank"):
            opened = open_transaction("bank")
            opened.rollback()
            opened.close()
        with pytest.raises(OpenTransaction):
            open_transaction("bank")
