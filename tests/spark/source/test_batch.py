"""Batch reads of a coordinator's tables, without Spark.

Every row comes once, with exactly the columns asked for; filters and partitions work.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime

import msgspec
import pytest

from tests.spark.source import reads
from tests.spark.source.stores import (
    BORN_MS,
    StoreUnderTest,
    add_history,
    body_of,
    fail,
    finish,
    gid_of,
    history_row,
    live,
    reach,
)
from tests.support.secret_files import secret_in
from twophase.core.audit_log import AuditEntry, AuditHead, AuditRow, chained, recomputed
from twophase.core.errors import CannotRead, ConfigurationError
from twophase.core.gid import make_gid
from twophase.core.lifecycle import State
from twophase.core.message import Branch
from twophase_spark.readers.snapshot import has_adbc
from twophase_spark.source.schema.tables import COLUMNS, Kind

MANY = 300
DRIVERS = ["python", "adbc"]


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    if request.param == "adbc" and not (has_adbc("sqlite") and has_adbc("postgresql")):
        pytest.fail("the ADBC drivers belong to the development environment")
    return str(request.param)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_history_with_its_body_in_columns(store: StoreUnderTest, driver: str) -> None:
    branches = (Branch("http://b/in", b"12345"), Branch("http://c/in"))
    add_history(store, history_row(1, 7, state=State.FAILED, body=body_of("g", branches)))

    columns = ",".join(column.name for column in COLUMNS[Kind.HISTORY] if column.name != "payloads")
    [row] = reads.batch(url=store.url, table="history", driver=driver, columns=columns)

    assert row == {
        "created_at": at(BORN_MS + 7),
        "decided_at": at(BORN_MS + 17),
        "finished_at": at(BORN_MS + 27),
        "node": 1,
        "seq": 7,
        "gid": gid_of(1, 7),
        "state": "failed",
        "created_ms": BORN_MS + 7,
        "decided_ms": BORN_MS + 17,
        "finished_ms": BORN_MS + 27,
        "decided_by": "submit",
        "reason": "",
        "attempts": 0,
        "done": 1,
        "branches": [
            {"branch_id": "01", "url": "http://b/in", "payload_bytes": 5},
            {"branch_id": "02", "url": "http://c/in", "payload_bytes": 0},
        ],
        "check_url": "http://a/check?barrier=id",
        "protocol": "http",
        "delay_ms": 0,
    }


def test_a_topics_branch_is_its_calls(store: StoreUnderTest) -> None:
    topic = Branch("topic://rates", b"{}", ("http://b/1", "http://b/2"))
    add_history(store, history_row(1, 1, body=body_of("g", (topic, Branch("http://c")))))

    [row] = reads.batch(url=store.url, table="history", columns="branches")

    assert [(call["branch_id"], call["url"]) for call in row["branches"]] == [
        ("01-01", "http://b/1"),
        ("01-02", "http://b/2"),
        ("02", "http://c"),
    ]


def test_payloads_only_when_named(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 1)

    assert reads.batch(url=store.url, table="history", columns="seq,payloads") == [
        {"seq": 1, "payloads": [b'{"amount":30}']}
    ]


def test_a_body_that_cannot_be_read_leaves_its_row(store: StoreUnderTest, driver: str) -> None:
    finish(store, 1, 1, 1)
    add_history(store, history_row(1, 2, body=b"\xc1 no message"))

    rows = reads.batch(url=store.url, table="history", columns="seq,branches,check_url", driver=driver)

    assert [(row["seq"], row["branches"] is None, row["check_url"] is None) for row in rows] == [
        (1, False, False),
        (2, True, True),
    ]


def test_live_messages(store: StoreUnderTest, driver: str) -> None:
    live(store, ["b", "a"], state=State.PREPARED)

    rows = reads.batch(url=store.url, table="message", driver=driver, columns="gid,state,parked,version,branches")

    assert sorted((row["gid"], row["state"], row["parked"], row["version"]) for row in rows) == [
        ("a", "prepared", False, 1),
        ("b", "prepared", False, 1),
    ]
    assert rows[0]["branches"][0]["url"] == "http://b/in"


def test_attempts(store: StoreUnderTest, driver: str) -> None:
    fail(store, ["a", "b"])

    rows = reads.batch(url=store.url, table="attempt", driver=driver)

    assert [(row["gid"], row["kind"], row["status"], row["error"]) for row in rows] == [
        ("a", "branch", 500, "down"),
        ("b", "branch", 500, "down"),
    ]


def test_the_audit_log_is_read_with_its_chain_and_filtered_by_time(store: StoreUnderTest, driver: str) -> None:
    head, written = AuditHead(), list[AuditRow]()
    for number in range(3):
        entry = AuditEntry("desk", "192.0.2.7", "stop", f"g{number}", "fraud", "prepared")
        written += chained(head, BORN_MS + number, 1, [entry])
        head = AuditHead(written[-1].seq, written[-1].hash)
    store.many(
        f"insert into audit_log values ({', '.join('?' * 12)})", [msgspec.structs.astuple(row) for row in written]
    )

    found = reads.batch(url=store.url, table="audit_log", driver=driver)
    names = ["seq", "at_ms", "node", "who", "peer", "act", "target", "reason", "state_before", "state_after"]
    names += ["previous", "hash"]
    read = [AuditRow(*(row[name] for name in names)) for row in sorted(found, key=lambda row: row["seq"])]
    later = reads.batch(url=store.url, table="audit_log", driver=driver, columns="target", createdAfter=BORN_MS + 2)

    assert read == written
    assert [recomputed(row) for row in read] == [row.hash for row in read]
    assert later == [{"target": "g2"}]
    with pytest.raises(ConfigurationError, match="gids is not one of read of table audit_log"):
        reads.batch(url=store.url, table="audit_log", gids="g1")


@pytest.mark.parametrize("table", ["message", "history", "attempt", "journal", "audit_log"])
def test_an_empty_store_has_no_rows(store: StoreUnderTest, table: str) -> None:
    assert reads.batch(url=store.url, table=table) == []


@pytest.mark.usefixtures("small_parts")
def test_history_is_cut_by_node_and_seq(store: StoreUnderTest) -> None:
    finish(store, 1, 1, MANY)
    finish(store, 2, 5, 6)

    found = reads.parts(url=store.url, table="history", columns="node,seq", partitions=2)

    assert sorted((row["node"], row["seq"]) for part in found for row in part) == [
        *((1, seq) for seq in range(1, MANY + 1)),
        (2, 5),
        (2, 6),
    ]
    assert len(found) == 3


@pytest.mark.usefixtures("small_parts")
def test_live_messages_are_cut_by_gids_that_exist(store: StoreUnderTest) -> None:
    chance = random.Random(7)
    gids = [make_gid(BORN_MS + number, chance.randbytes(10)) for number in range(MANY)] + ["Zz", "~", "é", "0"]
    live(store, gids)

    found = reads.parts(url=store.url, table="message", columns="gid", partitions=4)

    assert sorted(row["gid"] for part in found for row in part) == sorted(gids)
    assert len(found) > 1


@pytest.mark.usefixtures("later")
def test_filters(store: StoreUnderTest, driver: str) -> None:
    finish(store, 1, 1, 9)
    add_history(store, history_row(2, 4, state=State.FAILED))

    def seqs(**options: object) -> list[tuple[int, int]]:
        rows = reads.batch(url=store.url, table="history", columns="node,seq", driver=driver, **options)
        return sorted((row["node"], row["seq"]) for row in rows)

    assert seqs(states="failed") == [(2, 4)]
    assert seqs(states="failed,succeeded", createdAfter=BORN_MS + 8) == [(1, 8), (1, 9)]
    assert seqs(createdBefore=BORN_MS + 2) == [(1, 1)]
    assert seqs(gidPrefix="n2-") == [(2, 4)]
    assert seqs(gidPrefix="N2-") == []
    assert seqs(asOf=BORN_MS + 22) == [(1, 1), (1, 2)]
    assert seqs(asOf='{"1": 3}') == [(1, 1), (1, 2), (1, 3)]


LIVE, DONE = ["n1-a", "N1-b", "n2-c"], [gid_of(1, 4), gid_of(1, 5)]
A, B, C = LIVE
FILTERED: dict[str, list[tuple[dict[str, object], list[str]]]] = {
    "message": [
        ({"states": "prepared"}, [A, B]),
        ({"states": "submitted,failed"}, [C]),
        ({"createdAfter": BORN_MS + 1}, [B]),
        ({"createdBefore": BORN_MS + 1}, [A, C]),
        ({"gidPrefix": "n1-"}, [A]),
        ({"gidPrefix": "N"}, [B]),
        ({"asOf": BORN_MS}, [A, C]),
        ({"states": "prepared", "createdAfter": BORN_MS, "asOf": BORN_MS + 1, "gidPrefix": "n"}, [A]),
    ],
    "journal": [
        ({"states": "prepared"}, [A, B]),
        ({"states": "submitted,succeeded"}, [C, *DONE]),
        ({"createdAfter": BORN_MS + 1}, [B, *DONE]),
        ({"createdBefore": BORN_MS + 5}, [A, B, C, DONE[0]]),
        ({"gidPrefix": "n1-"}, [A, *DONE]),
        ({"asOf": BORN_MS + 4}, [A, B, C, DONE[0]]),
        (
            {"states": "succeeded,prepared", "createdAfter": BORN_MS + 1, "gidPrefix": "n1-", "asOf": BORN_MS + 4},
            DONE[:1],
        ),
    ],
    "attempt": [
        ({"createdAfter": BORN_MS + 1}, [B, C]),
        ({"createdBefore": BORN_MS + 1}, [A]),
        ({"gidPrefix": "N1"}, [B]),
        ({"asOf": BORN_MS + 1}, [A, B]),
        ({"createdAfter": BORN_MS + 1, "createdBefore": BORN_MS + 3, "gidPrefix": "n", "asOf": BORN_MS + 2}, [C]),
    ],
}


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("table", FILTERED)
def test_filters_of_what_is_not_history(store: StoreUnderTest, driver: str, table: str) -> None:
    live(store, LIVE[:2], state=State.PREPARED)
    live(store, LIVE[2:])
    fail(store, LIVE)
    finish(store, 1, 4, 5)

    for options, gids in FILTERED[table]:
        rows = reads.batch(url=store.url, table=table, columns="gid", driver=driver, **options)
        assert sorted(rows, key=str) == [{"gid": gid} for gid in sorted(gids)], options


def test_as_of_a_position_that_does_not_exist_is_refused(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 2)

    with pytest.raises(ConfigurationError, match="do not exist yet"):
        reads.batch(url=store.url, table="history", asOf='{"1": 3}')


def test_columns_are_read_in_the_order_they_were_named(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 1)

    [row] = reads.batch(url=store.url, table="history", columns="seq, gid")

    assert list(row) == ["seq", "gid"]
    with pytest.raises(ConfigurationError, match=r"has no \['sequence'\]"):
        reads.batch(url=store.url, table="history", columns="sequence")


def test_what_ends_while_history_is_read_does_not_belong_to_it(store: StoreUnderTest) -> None:
    finish(store, 1, 1, 3)
    reader, planned = reads.planned(url=store.url, table="history", columns="seq")

    finish(store, 1, 4, 5)
    finish(store, 2, 1, 1)

    assert [row["seq"] for part in planned for row in reads.rows_of(reader, part)] == [1, 2, 3]


def test_in_a_journal_no_message_is_missed_or_read_twice_when_it_ends_meanwhile(store: StoreUnderTest) -> None:
    """Messages end at every moment between the planning and the last task.

    Some end on a node that appears meanwhile.
    """
    gids = [gid_of(node, seq) for node in (1, 3) for seq in range(1, 7)]
    live(store, gids)
    finish(store, 2, 1, 2)
    everything = sorted([*gids, gid_of(2, 1), gid_of(2, 2)])

    def end(node: int, seq: int) -> None:
        store.many("delete from message where gid = ?", [(gid_of(node, seq),)])
        add_history(store, history_row(node, seq))

    end(1, 1)
    reader, planned = reads.planned(url=store.url, table="journal", columns="gid,seq,state,node")
    end(1, 2)
    end(3, 1)
    rows = reads.rows_of(reader, planned[0])
    end(1, 3)
    for part in planned[1:]:
        end(3, len(rows) % 3 + 2)
        rows += reads.rows_of(reader, part)

    assert sorted(row["gid"] for row in rows) == everything
    assert {row["gid"]: row["state"] for row in rows}[gid_of(1, 2)] == "succeeded"
    assert {row["gid"]: row["state"] for row in rows}[gid_of(1, 3)] == "submitted"
    assert all((row["seq"] is None) == (row["state"] == "submitted") for row in rows)


@pytest.mark.usefixtures("small_parts")
def test_a_journals_ranges_of_gids_each_follow_their_own(store: StoreUnderTest) -> None:
    gids = [gid_of(1, seq) for seq in range(1, MANY + 1)]
    live(store, gids)
    reader, planned = reads.planned(url=store.url, table="journal", columns="gid", partitions=3)
    assert len(planned) > 1

    moved = [gid_of(1, seq) for seq in range(1, MANY, 10)]
    store.many("delete from message where gid = ?", [(gid,) for gid in moved])
    for seq in range(1, MANY, 10):
        add_history(store, history_row(1, seq))
    rows = [row["gid"] for part in planned for row in reads.rows_of(reader, part)]

    assert sorted(rows) == gids


def test_a_store_without_the_table_is_refused(store: StoreUnderTest) -> None:
    store.many("alter table history rename to story", [()])

    with pytest.raises(CannotRead, match="no table history; is this a coordinator's store"):
        reads.batch(url=store.url, table="history")


def test_a_column_of_a_wrong_type_is_named(sqlite_store: StoreUnderTest, driver: str) -> None:
    add_history(sqlite_store, (1, 1, "g", 4, "born", 1, 1, "submit", "", 0, 1, b""))

    with pytest.raises(CannotRead, match=r"created_ms|mismatch|born"):
        reads.batch(url=sqlite_store.url, table="history", columns="created_ms", driver=driver)


def test_a_node_whose_history_is_all_removed_is_no_trouble(store: StoreUnderTest) -> None:
    reach(store, 1, 500)

    assert reads.batch(url=store.url, table="history") == []


def test_an_unreachable_server_is_named_without_its_password(tmp_path: object) -> None:
    from pathlib import Path

    reference = secret_in(Path(str(tmp_path)) / "url", "postgresql://me:s3cret@127.0.0.1:1/bank")

    for driver in DRIVERS:
        with pytest.raises(CannotRead) as raised:
            reads.batch(url=reference, table="history", driver=driver)
        assert "s3cret" not in str(raised.value)
        assert "127.0.0.1:1/bank" in str(raised.value)
