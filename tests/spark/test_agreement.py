"""Effects that are compared with their payloads, by the condition of their ledger."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.servers.database import Database as ServerDatabase
from tests.spark.cases import Case
from tests.spark.plant import System, make_system, plant
from tests.spark.test_ledgers import book, found
from tests.spark.truth import nowadays
from twophase.core.errors import CannotRead, ConfigurationError
from twophase.core.message import Branch, Message, encode
from twophase_spark import audit
from twophase_spark.auditing.run import look_into, run
from twophase_spark.inputs import agreement
from twophase_spark.inputs import source as inputs_source
from twophase_spark.inputs.agreement import agreements_of
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Role, parse_coordinator, parse_named
from twophase_spark.readers.database import open_database
from twophase_spark.readers.probe import probe
from twophase_spark.reports.page import to_html
from twophase_spark.reports.report import Report, to_json

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
TEXT = "cast(get_json_object(payload, '$.amount') as decimal(18,2))"
EACH = f"{TEXT} = cast(ledger.amount as decimal(18,2))"
SUM = f"{TEXT} = sum(cast(ledger.amount as decimal(18,2)))"
SECRET = "tiger-and-more"


@pytest.fixture
def system(tmp_path: Path) -> System:
    return make_system(tmp_path)


def sent(system: System, payloads: dict[str, bytes]) -> None:
    """Plant messages that succeeded, with one call each and these payloads."""
    plant(system, nowadays([Case(gid, "", ledger=()) for gid in payloads]))
    for gid, payload in payloads.items():
        body = encode(Message(gid, (Branch("http://bank-b/in", payload),), "http://bank-a/check?barrier=a1"))
        system.execute(system.coordinator, "update history set body = ? where gid = ?", body, gid)


def booked(system: System, *rows: tuple[object, ...], columns: str = "gid text, branch_id text, amount text") -> str:
    return book(system, columns, [*rows])


def audited(
    spark: SparkSession, system: System, ledger: str, agrees: str, *, state: bool = False, **more: object
) -> Report:
    joint = "" if "?" in ledger else "?"
    locations = (
        parse_coordinator(f"sqlite:///{system.coordinator}"),
        parse_named(Role.PRODUCER, f"bank-a=sqlite:///{system.bank_a}"),
        parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}"),
        parse_named(Role.LEDGER, f"bank-b={ledger}{joint}{urlencode({'agrees': agrees} | more)}"),
    )
    folder = system.folder
    plan = Plan(locations, grace_s=0, findings=str(folder / "findings"), state=folder / "state" if state else None)
    return run(spark, plan, look_into(plan))


@pytest.mark.parametrize("path", ["on the driver", "by key", "everything again"])
def test_an_effect_with_another_amount_is_found_and_one_without_an_answer_remarked(
    spark: SparkSession, system: System, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path != "on the driver":
        monkeypatch.setattr(inputs_source, "GIDS_ON_DRIVER_MAX", 0)
    if path == "everything again":
        monkeypatch.setattr(inputs_source, "GIDS_BY_KEY_MAX", 0)
    payloads = {
        "right": b'{"amount": 12.50}',
        "wrong": b'{"amount": 12.50}',
        "missing": b'{"amount": 1}',
        "null": b'{"amount": null}',
        "other": b"{}",
        "text": b'{"amount": "x"}',
        "bytes": b"\xff",
    }
    sent(system, payloads)
    incomparable = ("null", "other", "text", "bytes")
    rows = [("right", "01", "12.5"), ("wrong", "01", "12.51"), ("stray", "01", "7")]
    ledger = booked(system, *rows, *((gid, "01", "1") for gid in incomparable))

    report = audited(spark, system, ledger, EACH)

    assert found(system, report) == {
        "wrong": ["differing_effect"],
        "missing": ["missing_effect"],
        "stray": ["orphan", "unguarded_effect"],
    }
    findings = DeltaTable(system.folder / "findings").to_pyarrow_table().to_pylist()
    [differing] = [row["differing"] for row in findings if row["gid"] == "wrong"]
    assert differing == [{"source": "bank-b", "branch_id": "01", "agrees": EACH}]
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    # What cannot be compared is remarked, and counts as clean.
    result = report.result
    assert (result.violations, result.clean, result.messages) == (3, 1 + len(incomparable), len(payloads) + 1)
    assert result.incomparable == {"bank-b": len(incomparable)}
    [line] = [line for line in report.coverage if line.what == "some payloads of the ledger of bank-b"]
    assert (line.checked, line.note.partition(" ")[0]) == (False, "4")


def test_no_value_of_a_payload_is_shown(spark: SparkSession, system: System, capfd: pytest.CaptureFixture[str]) -> None:
    sent(system, {gid: b'{"amount": "%s"}' % SECRET.encode() for gid in ("a", "b")})
    ledger = booked(system, ("a", "01", "other"), ("b", "01", "3"), ("c", "01", SECRET))

    report = audited(spark, system, ledger, "get_json_object(payload, '$.amount') = ledger.amount")
    numbers = audited(spark, system, ledger, f"{TEXT}::int + 1 = ledger.amount")

    assert found(system, report)["a"] == ["differing_effect"]
    assert numbers.result.incomparable == {"bank-b": 2}
    shown = b"".join([to_json(report), to_json(numbers), to_html(report).encode()])
    rows = DeltaTable(system.folder / "findings").to_pyarrow_table().to_pylist()
    assert SECRET not in f"{shown!r}{rows}{capfd.readouterr()}"


@pytest.mark.parametrize(("agrees", "expected"), [(EACH, "halves"), (SUM, "twice")])
def test_several_rows_of_an_effect(spark: SparkSession, system: System, agrees: str, expected: str) -> None:
    sent(system, {"twice": b'{"amount": 8}', "halves": b'{"amount": 8}'})
    pairs = {"twice": ("8", "8"), "halves": ("3", "5")}
    ledger = booked(system, *((gid, "01", amount) for gid, amounts in pairs.items() for amount in amounts))

    report = audited(spark, system, ledger, agrees, rows_per_effect=2)

    assert found(system, report) == {expected: ["differing_effect"]}


def test_a_row_that_is_corrected_is_in_order_in_the_next_run(spark: SparkSession, system: System) -> None:
    sent(system, {"a": b'{"amount": 8}', "b": b'{"amount": 8}'})
    ledger = booked(system, ("a", "01", "9"), ("b", "01", "8"))

    first = audited(spark, system, ledger, EACH, state=True)
    again = audited(spark, system, ledger, EACH, state=True)
    system.execute(system.bank_b, "update booking set amount = '8'")
    last = audited(spark, system, ledger, EACH, state=True)

    assert [found(system, one) for one in (first, again, last)] == [{"a": ["differing_effect"]}] * 2 + [{}]


def test_an_effect_agrees_with_one_of_two_coordinators(spark: SparkSession, system: System, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_system(tmp_path / "other")
    sent(system, {"a": b'{"amount": 8}'})
    sent(other, {"a": b'{"amount": 9}'})
    ledger = booked(system, ("a", "01", "9"))

    with audit(
        spark,
        [f"east=sqlite:///{system.coordinator}", f"west=sqlite:///{other.coordinator}"],
        [f"bank-a=sqlite:///{system.bank_a}"],
        [f"bank-b=sqlite:///{system.bank_b}"],
        [f"bank-b={ledger}?{urlencode({'agrees': EACH})}"],
        grace_s=0,
    ) as outcome:
        assert outcome.report.result.counts["differing_effect"] == 0
        assert outcome.report.result.doubled == 1


def test_a_branch_of_another_service_is_not_compared(spark: SparkSession, system: System) -> None:
    sent(system, {"a": b'{"amount": 8}'})
    ledger = booked(system, ("a", "01", "9"))
    config = system.folder / "audit.toml"
    config.write_text(
        f"""
        [[coordinator]]
        url = "sqlite:///{system.coordinator}"
        [[service]]
        name = "bank-b"
        url = "sqlite:///{system.bank_b}"
        consumer = true
        urls = ["http://elsewhere/"]
        ledger = {{ table = "booking", agrees = "{EACH}" }}
        """
    )
    assert ledger.endswith("#booking")

    with audit(spark, config=config, grace_s=0) as outcome:
        assert outcome.report.result.counts["differing_effect"] == 0
        assert outcome.report.result.counts["orphan"] == 0
        assert outcome.report.result.unknown["branch of a service not given"] == 1


def test_what_stands_in_a_text_is_no_column(system: System) -> None:
    """A payload may have an object of that name."""
    agrees = """get_json_object(payload, '$.ledger.total') = ledger.amount and payload <> "ledger.none" """

    location = parse_named(Role.LEDGER, f"bank-b={booked(system, ('a', '01', '9'))}?{urlencode({'agrees': agrees})}")
    [agreement] = agreements_of([probe(location, 1)])

    assert list(agreement.columns) == ["amount"]


@pytest.mark.parametrize(
    ("agrees", "why"),
    [
        ("payload = 1", "names no column of the ledger"),
        ("payload = ledger.amout", "has no column amout; it has amount, branch_id, gid"),
    ],
)
def test_a_column_that_is_not_there_is_refused_before_spark_is_asked(system: System, agrees: str, why: str) -> None:
    ledger = booked(system, ("a", "01", "9"))
    location = parse_named(Role.LEDGER, f"bank-b={ledger}?{urlencode({'agrees': agrees})}")

    with pytest.raises(ConfigurationError, match=why):
        look_into(Plan((location,)))


@pytest.mark.parametrize(
    ("agrees", "why"),
    [
        ("payload = = ledger.amount", "Syntax error"),
        ("amount = ledger.amount", "name `amount` cannot be resolved"),
        ("ledger.amount", "its answer is string, and must be true or false"),
        ("sum(nope(ledger.amount)) > 0", "`nope`"),
    ],
)
def test_a_condition_that_is_none_is_refused(spark: SparkSession, system: System, agrees: str, why: str) -> None:
    ledger = booked(system, ("a", "01", "9"))

    with pytest.raises(ConfigurationError, match="--ledger bank-b: agrees=") as raised:
        audited(spark, system, ledger, agrees)

    assert why in raised.value.message
    assert "\n" not in raised.value.message


def test_a_fraction_among_whole_numbers_is_refused_and_not_cut_off(system: System) -> None:
    ledger = booked(system, ("a", "01", 8.5), columns="gid text, branch_id text, amount integer")
    asked = urlencode({"agrees": f"{TEXT} = ledger.amount"})
    [one] = agreements_of([probe(parse_named(Role.LEDGER, f"bank-b={ledger}?{asked}"), 1)])

    with open_database(one.source.location) as database, pytest.raises(CannotRead) as caught:
        list(agreement._values(one)(one.source, database, "booking", "1 = 1", ()))
    assert "column amount has values that are not int64" in caught.value.message


@pytest.mark.postgres
def test_types_of_postgresql(spark: SparkSession, system: System, postgres_database: ServerDatabase) -> None:
    amounts = {"right": "12345678901234567.89", "wrong": "12345678901234567.88"}
    sent(system, dict.fromkeys(amounts, b'{"amount": 12345678901234567.89, "paid": true}'))
    with psycopg.connect(postgres_database.dsn) as connection:
        connection.execute(
            "create table booking (gid text, branch_id smallint, amount numeric(20,2), paid boolean, at timestamp)"
        )
        for gid, amount in amounts.items():
            connection.execute("insert into booking values (%s, 1, %s, true, now())", (gid, amount))
    agrees = "from_json(payload, 'amount decimal(20,2), paid boolean') = struct(ledger.amount, ledger.paid)"

    report = audited(spark, system, f"{postgres_database.dsn}#booking", f"{agrees} and ledger.at is not null")

    assert found(system, report) == {"wrong": ["differing_effect"]}


def test_the_first_look_alone_makes_no_finding(spark: SparkSession, system: System) -> None:
    """A row that is corrected between the looks was only a matter of time."""
    sent(system, {"a": b'{"amount": 8}'})
    ledger = booked(system, ("a", "01", "9"))
    config = (
        parse_coordinator(f"sqlite:///{system.coordinator}"),
        parse_named(Role.PRODUCER, f"bank-a=sqlite:///{system.bank_a}"),
        parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}"),
        parse_named(Role.LEDGER, f"bank-b={ledger}?{urlencode({'agrees': EACH})}"),
    )
    plan = Plan(config, grace_s=100_000)  # longer ago than the message, which counts as young

    def correct(_: float) -> None:
        with closing(sqlite3.connect(system.bank_b)) as connection, connection:
            connection.execute("update booking set amount = '8'")

    report = run(spark, plan, look_into(plan), pause=correct)

    assert (report.result.suspects, report.result.settled, report.result.violations) == (1, 1, 0)
    assert msgspec.json.decode(to_json(report))["result"]["counts"]["differing_effect"] == 0
