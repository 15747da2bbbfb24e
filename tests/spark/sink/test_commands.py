"""`twophase spark checkback` and `twophase spark abandon`, as a person runs them.

The answers to check-backs are shown, too.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twophase.core.probe import PROBE_QUERY, interpret_probe
from twophase.core.verdict import VERDICT_HEADER, Verdict
from twophase_spark.cli.commands import app
from twophase_spark.sink.checkback import answer
from twophase_spark.sink.database import engine_of, install_ledger
from twophase_spark.sink.ledger import ROWS_SHOWN, Batch, Decision, Ledger
from twophase_spark.sink.naming import gid_of, stream_batch

GIDS = [gid_of("orders", [number]) for number in range(3)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def ledger(url: str) -> Ledger:
    install_ledger(engine_of(url))
    return Ledger(engine_of(url))


def begun(ledger: Ledger, number: int = 7, query: str = "query", gids: list[str] = GIDS) -> tuple[str, int]:
    """Begin a streaming batch with undecided messages; return it and its task's run."""
    group = stream_batch("orders", query, number)
    assert ledger.begin(Batch(group, "orders", query, number), "id") is Decision.OPEN
    writer = ledger.begin_run(group)
    ledger.write_down(writer, gids)
    return group, writer


def abandon(url: str, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["abandon", "--ledger", url, "--publisher", "orders", *arguments])
    return done.exit_code, done.output


def test_an_undecided_batch_is_in_progress_until_it_is_given_up(url: str, ledger: Ledger) -> None:
    group, _ = begun(ledger)
    assert ledger.verdict(GIDS[0]) is Verdict.IN_PROGRESS

    assert "undecided" in abandon(url)[1]
    assert abandon(url, "--batch", "7") == (0, "Given up: the coordinator rolls its messages back when it asks next.\n")

    assert ledger.verdict(GIDS[0]) is Verdict.ROLLED_BACK
    assert ledger.decide(group, [], 0) is Decision.GIVEN_UP
    assert ledger.begin(Batch(group, "orders", "query", 7), "id") is Decision.GIVEN_UP


def test_a_batch_is_given_up_although_the_barrier_is_cleaned_there(url: str, ledger: Ledger) -> None:
    begun(ledger)
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute("insert into twophase_meta (name, value) values ('horizon_ms', '1')")

    assert abandon(url, "--batch", "7")[0] == 0
    assert ledger.verdict(GIDS[0]) is Verdict.ROLLED_BACK


def test_what_is_published_stays_so_and_only_leftovers_are_given_up(url: str, ledger: Ledger) -> None:
    group, loser = begun(ledger)
    winner = ledger.begin_run(group)
    ledger.write_down(winner, GIDS[:2])
    assert ledger.decide(group, [winner], 2) is Decision.PUBLISHED
    assert [ledger.verdict(gid) for gid in GIDS] == [Verdict.COMMITTED, Verdict.COMMITTED, Verdict.IN_PROGRESS]
    assert [gid for page in ledger.messages(group) for gid in page] == sorted(GIDS[:2])
    assert loser != winner

    code, said = abandon(url, "--batch", group)

    assert (code, "only failed tries" in said) == (0, True)
    assert [ledger.verdict(gid) for gid in GIDS] == [Verdict.COMMITTED, Verdict.COMMITTED, Verdict.ROLLED_BACK]


def test_a_batch_is_found_however_many_came_after_it(url: str, ledger: Ledger) -> None:
    group, _ = begun(ledger)
    winner = ledger.begin_run(group)
    ledger.write_down(winner, GIDS[:2])
    ledger.decide(group, [winner], 2)
    for number in range(100, 100 + ROWS_SHOWN):
        ledger.begin(Batch(stream_batch("orders", "query", number), "orders", "query", number), "id")
    assert group not in {one.group for one in ledger.batches("orders")}

    assert abandon(url, "--batch", "7")[0] == 0
    assert ledger.verdict(GIDS[2]) is Verdict.ROLLED_BACK
    assert [one.number for one in ledger.find("orders", group)] == [7]
    assert ledger.find("others", group) == []


def test_more_batches_than_are_listed_are_reported(url: str, ledger: Ledger) -> None:
    begun(ledger)
    for number in range(ROWS_SHOWN):
        ledger.begin(Batch(stream_batch("others", "query", number), "others", "query", number), "id")

    def listed(*arguments: str) -> tuple[int, int, int]:
        done = CliRunner().invoke(app, ["abandon", "--ledger", url, *arguments])
        assert done.exit_code == 0
        said = done.output
        return said.count("orders"), said.count("others"), said.count("There are more")

    assert listed("--publisher", "orders") == (1, 0, 0)
    assert listed("--publisher", "others") == (0, ROWS_SHOWN, 0)
    assert listed("--publisher", "others", "--limit", "7") == (0, 7, 1)
    assert sum(listed()) == ROWS_SHOWN + 1
    assert listed()[-1] == 1
    assert listed("--all") == (1, ROWS_SHOWN, 0)
    assert listed("--limit", str(ROWS_SHOWN + 1)) == (1, ROWS_SHOWN, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--batch", "7"], "--publisher is missing"), (["--all", "--limit", "7"], "exclude each other")],
)
def test_what_abandon_cannot_be_asked(url: str, arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["abandon", "--ledger", url, *arguments])
    assert (done.exit_code, said in done.output) == (2, True)


def test_a_message_of_several_batches_waits_for_all_of_them(url: str, ledger: Ledger) -> None:
    begun(ledger, query="before the checkpoint was lost")
    second, writer = begun(ledger, query="after")

    code, said = abandon(url, "--batch", "7")
    assert (code, "Several batches" in said, second in said) == (1, True, True), "two batches have this number"
    assert ledger.give_up(stream_batch("orders", "before the checkpoint was lost", 7)) is Decision.GIVEN_UP
    assert ledger.verdict(GIDS[0]) is Verdict.IN_PROGRESS
    assert not ledger.known_elsewhere(writer, GIDS).published
    assert set(ledger.known_elsewhere(writer, GIDS).given_up) == set(GIDS)
    assert ledger.decide(second, [writer], 3) is Decision.PUBLISHED
    assert ledger.verdict(GIDS[0]) is Verdict.COMMITTED

    _, third = begun(ledger, query="lost once more")
    assert set(ledger.known_elsewhere(third, GIDS).published) == set(GIDS)


def test_a_decision_is_made_once(ledger: Ledger) -> None:
    group, writer = begun(ledger)
    other = ledger.begin_run(group)
    ledger.write_down(other, GIDS[:1])
    assert ledger.decide(group, [writer], 3) is Decision.PUBLISHED

    assert ledger.decide(group, [other], 1) is Decision.PUBLISHED
    assert sorted(gid for page in ledger.messages(group) for gid in page) == sorted(GIDS)


def test_there_is_no_such_batch(url: str, ledger: Ledger) -> None:
    assert "no batches" in abandon(url)[1]
    assert abandon(url, "--batch", "3")[0] == 1


def test_a_ledger_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    code, said = abandon(f"sqlite:///{tmp_path / 'none' / 'ledger.db'}")
    assert (code, said.count("\n")) == (2, 1)
    assert "TP-8104" in said
    code, said = abandon("postgresql://me:s3cr@h/x")
    assert (code, "s3cr" in said) == (2, False)


def test_abandon_makes_no_ledger_in_a_database_that_was_not_meant(tmp_path: Path) -> None:
    missing, other = tmp_path / "leger.db", tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("create table mine (n int)")

    for file in (missing, other):
        code, said = abandon(f"sqlite:///{file}")
        assert (code, "has no ledger of the Spark sink" in said) == (2, True)
    assert not missing.exists()
    with contextlib.closing(sqlite3.connect(other)) as connection:
        assert connection.execute("select name from sqlite_master").fetchall() == [("mine",)]


@pytest.mark.parametrize(
    ("parameters", "status", "verdict"),
    [
        ({"gid": GIDS[0]}, 500, "unknown"),
        ({"gid": GIDS[0], "barrier": "another"}, 500, "unknown"),
        ({"gid": "never", "barrier": "yes"}, 500, "unknown"),
        ({"gid": GIDS[0], "barrier": "yes"}, 425, "in_progress"),
        ({}, 400, None),
    ],
)
def test_the_answer_to_a_check_back(
    url: str, ledger: Ledger, parameters: dict[str, str], status: int, verdict: str | None
) -> None:
    begun(ledger)
    known = {name: ledger.identity() if value == "yes" else value for name, value in parameters.items()}

    said = answer(engine_of(url), known)

    assert (said.status, said.headers.get(VERDICT_HEADER)) == (status, verdict)


@pytest.mark.parametrize(("barrier", "state"), [("yes", "ready"), ("another", "wrong_database")])
def test_the_answer_to_a_probe_of_the_check_address(url: str, ledger: Ledger, barrier: str, state: str) -> None:
    identity = ledger.identity() if barrier == "yes" else barrier

    said = answer(engine_of(url), dict(PROBE_QUERY) | {"barrier": identity})

    assert interpret_probe(said.status, said.headers.get(VERDICT_HEADER), said.body, "").state == state


def test_a_ledger_out_of_order_is_no_verdict(tmp_path: Path) -> None:
    assert answer(engine_of(f"sqlite:///{tmp_path / 'empty.db'}"), {"gid": "g", "barrier": "b"}).status == 500


def test_the_command_serves_until_it_is_stopped(url: str, ledger: Ledger) -> None:
    group, writer = begun(ledger)
    ledger.decide(group, [writer], 3)
    command = [sys.executable, "-m", "twophase", "spark", "checkback", "--ledger", url, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{address}?gid={GIDS[0]}&barrier={ledger.identity()}", timeout=60) as reply:
            assert (reply.status, reply.headers[VERDICT_HEADER]) == (200, "committed")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(address.replace("/check", "/elsewhere"), timeout=60)
        caught.value.close()
        assert caught.value.code == 404
        process.terminate()
