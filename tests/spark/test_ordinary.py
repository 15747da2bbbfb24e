"""The first look passes over messages about which the full one has no finding.

It passes over no others, whatever was given to the audit.
"""

from __future__ import annotations

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from tests.spark.cases import ALL, CANCELLED, IN_ORDER, NOW_MS, RECONCILED, SCOPE, inputs_of
from twophase_spark.rules.classify import classify
from twophase_spark.rules.facts import by_gid, long_form
from twophase_spark.rules.ordinary import numbers_by_gid
from twophase_spark.rules.scope import Scope, ServiceScope

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
SCOPES = {
    "everything": SCOPE,
    "only producers": msgspec.structs.replace(SCOPE, consumers=(), ledgers=()),
    "only consumers": msgspec.structs.replace(SCOPE, producers=(), ledgers=()),
    "one address, all cleaned": msgspec.structs.replace(
        SCOPE,
        consumers=(ServiceScope("bank-b", ("http://bank-b/",)), ServiceScope("bank-c", ("http://bank-x/",))),
        history_horizon_ms=NOW_MS,
        producer_horizon_ms=NOW_MS,
        consumer_horizon_ms=NOW_MS,
    ),
    "each its own address": msgspec.structs.replace(
        SCOPE,
        consumers=(
            ServiceScope("bank-b", ("http://bank-b/",)),
            ServiceScope("bank-c", ("http://bank-c/", "http://c2")),
        ),
    ),
    "a clock far behind": msgspec.structs.replace(SCOPE, as_of_ms=1),
}


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_what_is_passed_over_has_no_flag(spark: SparkSession, scope: Scope) -> None:
    inputs = inputs_of(spark, ALL + RECONCILED + CANCELLED)

    ordinary = {row["gid"] for row in numbers_by_gid(inputs, scope).where("ordinary").select("gid").collect()}
    remarkable = classify(by_gid(long_form(inputs)), scope).where((F.size("flags") > 0) | (F.size("unknown") > 0))

    assert ordinary & {row["gid"] for row in remarkable.select("gid").collect()} == set()


@pytest.mark.parametrize("scope", [SCOPE, SCOPES["each its own address"]], ids=["any address", "its own address"])
def test_messages_in_order_are_passed_over(spark: SparkSession, scope: Scope) -> None:
    """Otherwise the first look would save nothing."""
    sound = [*IN_ORDER, *(case for case in RECONCILED + CANCELLED if not case.flags)]
    numbers = numbers_by_gid(inputs_of(spark, sound), scope).where("ordinary")

    assert {row["gid"] for row in numbers.select("gid").collect()} == {
        case.gid for case in sound if case.gid != "transfer_aborted_by_a_foreign_sdk_without_a_row"
    }


def test_every_row_is_moved_once(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    numbers_by_gid(inputs_of(spark, ALL), SCOPE).explain()

    assert capsys.readouterr().out.count("Exchange") == 1
