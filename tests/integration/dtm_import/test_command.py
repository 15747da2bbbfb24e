"""`twophase import dtm` in hard cases.

dtm still runs, its store cannot be read, an address holds secrets, or the command is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.integration.dtm_import.command import report, run
from tests.integration.dtm_import.services import Service, gate
from tests.integration.dtm_import.stores import DtmStore, MysqlStore, PostgresStore, RedisStore
from tests.servers.database import Database
from tests.support.server_process import serving
from tests.support.waiting import blocked_until
from twophase.core.lifecycle import State
from twophase.dtm_import.command import app
from twophase.testing import InProcessCoordinator

_MAIN = "from twophase.cli.app import main; main()"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["dtm", *arguments])


def test_a_dtm_that_still_works_is_noticed(dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service) -> None:
    dtm.put("busy", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])
    ends = threading.Event()

    def cron() -> None:
        while not ends.wait(0.05):
            dtm.touch("busy")

    working = threading.Thread(target=cron)
    working.start()
    try:
        tried = run(dtm, coordinator.url, "--watch", "1")
        refused = run(dtm, coordinator.url, "--watch", "1", "--apply")
        assert (tried.exit_code, "stop it, and run this again" in tried.output) == (0, True), tried.output
        assert (refused.exit_code, "dtm still changes its rows" in refused.output) == (3, True), refused.output
        assert coordinator.query("busy") is None
        forced = run(dtm, coordinator.url, "--watch", "1", "--apply", "--force")
        assert forced.exit_code == 0, forced.output
    finally:
        ends.set()
        working.join()
    coordinator.advance(61)  # a message that dtm's cron has just taken up is not called at once
    assert coordinator.wait_final("busy") is State.SUCCEEDED


def test_a_dtm_that_awakes_meanwhile_is_reported(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twophase.dtm_import.target import Target

    take = Target.take

    def taken(self: Target, messages: Any, *, dry_run: bool) -> Any:
        if messages:
            dtm.touch("busy")
        return take(self, messages, dry_run=dry_run)

    dtm.put("busy", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])
    monkeypatch.setattr(Target, "take", taken)

    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, said["still_running"]) == (3, True)


async def test_killed_in_the_middle_it_goes_on_where_it_was(dtm: DtmStore, branches: Service, tmp_path: Path) -> None:
    """The second request's messages have arrived; the command dies before the answer."""
    gids = [f"m-{number:03d}" for number in range(250)]
    for gid in gids:
        done = ("01", "succeed", branches.url("/done"), b"{}")
        dtm.put(gid, "submitted", [done, ("02", "prepared", branches.url("/in"), b"{}")])
    async with serving(tmp_path, "--set", "request_timeout_ms=60000") as server:  # even a busy machine calls once
        url = f"http://127.0.0.1:{server.port}"
        with gate(url, keeps=2) as before:
            process = _spawn(dtm, before.url)
            try:
                blocked_until(before.kept.is_set)
            finally:
                process.send_signal(signal.SIGKILL)
                process.communicate()
            assert process.returncode == -signal.SIGKILL
        code, said = report(dtm, url, "--apply")

        assert (code, said["counts"]) == (0, {"copied submitted": 50, "present submitted": 200})
        blocked_until(lambda: len(branches.calls) >= len(gids))
        for gid in gids:
            await server.until_state(gid, "succeed")
            assert branches.branches(gid) == [("/in", "02")]
        assert report(dtm, url, "--apply")[1]["counts"] == {"present submitted": 250}
        assert len(branches.calls) == len(gids)


def _spawn(dtm: DtmStore, server: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-c", _MAIN, "import", "dtm", dtm.url, *dtm.options),
            *("--server", server, "--watch", "0", "--apply"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")},
    )


def test_an_output_that_cannot_be_written_is_no_fault_of_dtms_store(
    keys: RedisStore, coordinator: InProcessCoordinator
) -> None:
    command = [sys.executable, "-c", _MAIN, "import", "dtm", keys.url, *keys.options, "--server", coordinator.url]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)

    assert (done.returncode, b"The output cannot be written" in done.stderr) == (1, True), done.stderr
    assert b"cannot be read" not in done.stderr


def test_a_server_that_is_not_there_is_reported_first(dtm: DtmStore) -> None:
    done = run(dtm, "http://127.0.0.1:1")

    assert (done.exit_code, "cannot be reached" in done.output, "twophase server" in done.output) == (2, True, True)


def test_a_server_that_is_none_is_reported(dtm: DtmStore, coordinator: InProcessCoordinator) -> None:
    done = run(dtm, f"{coordinator.url}/elsewhere")

    assert (done.exit_code, "answered 404" in done.output) == (2, True), done.output
    assert "not an http:// or https:// address" in run(dtm, "ftp://x").output


@pytest.mark.mariadb
@pytest.mark.postgres
def test_a_database_without_dtms_tables(
    mariadb_database: Database, postgres_database: Database, coordinator: InProcessCoordinator
) -> None:
    for database in (mariadb_database, postgres_database):
        done = invoke(database.dsn, "--server", coordinator.url)
        assert (done.exit_code, "there is no table trans_global" in done.output) == (2, True), done.output
        assert database.password not in done.output


def test_a_schema_that_is_not_known(sql: DtmStore, coordinator: InProcessCoordinator) -> None:
    sql.execute("alter table trans_branch_op drop column bin_data")  # type: ignore[attr-defined]

    done = run(sql, coordinator.url)

    assert (done.exit_code, "trans_branch_op has no column bin_data" in done.output) == (2, True), done.output


def test_a_dtm_from_before_topics(sql: DtmStore, coordinator: InProcessCoordinator, branches: Service) -> None:
    sql.execute("drop table kv")  # type: ignore[attr-defined]
    sql.put("old", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])

    assert report(sql, coordinator.url, "--apply")[1]["counts"] == {"copied submitted": 1}


@pytest.mark.mariadb
def test_a_mysql_user_who_may_only_read_is_enough(
    mysql: MysqlStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    store, database = mysql, mysql.database
    store.put("read", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])
    name, host = database.name, f"{database.host}:{database.port}"
    for user, right in (("r" + name[-8:], "select"), ("n" + name[-8:], "insert")):
        store.execute(f"create user '{user}'@'%' identified by 'hush'")
        store.execute(f"grant {right} on `{name}`.* to '{user}'@'%'")
    try:
        good = invoke(
            f"mysql://r{name[-8:]}:hush@{host}/{name}", "--server", coordinator.url, "--watch", "0", "--apply"
        )
        bad = invoke(f"mysql://n{name[-8:]}:hush@{host}/{name}", "--server", coordinator.url)
        wrong = invoke(f"mysql://r{name[-8:]}:whisper@{host}/{name}", "--server", coordinator.url)
    finally:
        for user in ("r" + name[-8:], "n" + name[-8:]):
            store.execute(f"drop user '{user}'@'%'")

    assert good.exit_code == 0, good.output
    for refused in (bad, wrong):
        assert (refused.exit_code, "Reading is enough" in refused.output) == (2, True), refused.output
        assert not {"hush", "whisper"} & set(refused.output.split())


@pytest.mark.postgres
def test_a_postgres_user_who_may_only_read_is_enough(
    postgres: PostgresStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    store, database = postgres, postgres.database
    store.put("read", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])
    name, host = database.name, f"{database.host}:{database.port}"
    for user in (f"r_{name}", f"n_{name}"):
        store.execute(f"create role {user} login password 'hush'")
    store.execute(f"grant select on all tables in schema public to r_{name}")
    try:
        good = invoke(
            f"postgresql://r_{name}:hush@{host}/{name}", "--server", coordinator.url, "--watch", "0", "--apply"
        )
        bad = invoke(f"postgresql://n_{name}:hush@{host}/{name}", "--server", coordinator.url)
    finally:
        store.execute(f"drop owned by r_{name}")
        for user in (f"r_{name}", f"n_{name}"):
            store.execute(f"drop role {user}")

    assert good.exit_code == 0, good.output
    assert (bad.exit_code, "Reading is enough" in bad.output) == (2, True), bad.output


def test_a_wrong_prefix_finds_nothing_and_another_programs_key_is_reported(
    keys: RedisStore, coordinator: InProcessCoordinator
) -> None:
    keys.run("SET", f"{keys.database.name}_u", "text")

    done = run(keys, coordinator.url)

    assert (done.exit_code, "not dtm's" in done.output, "--prefix" in done.output) == (2, True, True), done.output


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:hu%40sh@127.0.0.1:1/dtm",
        "postgresql://me:hu%40sh@127.0.0.1:1/dtm",
        "redis://me:hu%40sh@127.0.0.1:1/0",
    ],
)
def test_a_store_that_is_not_there_keeps_its_password_secret(url: str, coordinator: InProcessCoordinator) -> None:
    done = invoke(url, "--server", coordinator.url)

    assert (done.exit_code, "cannot be read" in done.output) == (2, True), done.output
    assert "sh@" not in done.output
    assert "hu%40sh" not in done.output
    assert "hu@sh" not in done.output


def test_a_wrong_password_for_redis_is_reported_without_it(keys: RedisStore, coordinator: InProcessCoordinator) -> None:
    done = invoke(f"redis://:whisper@{keys.database.host}:{keys.database.port}/0", "--server", coordinator.url)

    assert (done.exit_code, "Reading is enough" in done.output) == (2, True), done.output
    assert "whisper" not in done.output


@pytest.mark.parametrize("url", ["dtm.bolt", "boltdb:///dtm.bolt", "sqlserver://db/dtm", "sqlite:///dtm.db"])
def test_a_store_that_cannot_be_read_is_reported(url: str, coordinator: InProcessCoordinator) -> None:
    done = invoke(url, "--server", coordinator.url)

    assert (done.exit_code, "mysql://" in done.output) == (2, True), done.output


@pytest.mark.parametrize(
    ("url", "module"), [("mysql://db/dtm", "pymysql"), ("postgresql://db/dtm", "psycopg"), ("redis://db/0", "redis")]
)
def test_a_missing_driver_names_the_extra(
    url: str, module: str, coordinator: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "twophase.dtm_import.redis", raising=False)

    done = invoke(url, "--server", coordinator.url)

    assert (done.exit_code, "twophase[dtm-import]" in done.output) == (2, True), done.output


def test_a_time_zone_that_is_none_is_reported(coordinator: InProcessCoordinator) -> None:
    done = invoke("mysql://db/dtm", "--server", coordinator.url, "--time-zone", "Nowhere/Land")

    assert (done.exit_code, "not a time zone" in done.output) == (2, True)


def test_the_report_as_json_is_json_alone(keys: RedisStore, coordinator: InProcessCoordinator) -> None:
    assert json.loads(run(keys, coordinator.url, "--json").stdout)["counts"] == {}
