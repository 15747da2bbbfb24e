"""`twophase log …` against a real server process, as an operator runs it."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.support.server_process import ServerProcess, serving

_MAIN = "from twophase.cli.app import main; main()"


def _run(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"TWOPHASE_URL": f"http://127.0.0.1:{server.port}", "PATH": ""},
    )


def _said(server: ServerProcess, *arguments: str) -> str:
    done = _run(server, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _subscribe(server: ServerProcess, *names: str) -> None:
    for name in names:
        _said(server, "topic", "subscribe", name, "http://bank-b:8082/in")


async def test_acts_are_listed_the_newest_first_and_by_filter(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert _said(server, "log", "list") == "No act was found.\n"
        _subscribe(server, "rates", "fees")
        _said(server, "topic", "delete", "rates")
        found = json.loads(_said(server, "log", "list", "--json"))["rows"]
        assert [(row["seq"], row["act"], row["target"]) for row in found] == [
            (3, "delete-topic", "rates"),
            (2, "subscribe", "fees"),
            (1, "subscribe", "rates"),
        ]
        for filters in (["--gid", "fees"], ["--act", "subscribe", "--limit", "1"]):
            assert [row["seq"] for row in json.loads(_said(server, "log", "list", "--json", *filters))["rows"]] == [2]
        assert _said(server, "log", "list", "--who", "desk", "--since", "1d") == "No act was found.\n"
        assert "delete-topic rates, without a token from 127.0.0.1\n   [http" in _said(server, "log", "list")


async def test_an_unbroken_chain_is_verified_and_its_head_printed(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        _subscribe(server, "rates", "fees")
        first, head = _said(server, "log", "verify").splitlines()
        assert first == "2 rows are unbroken. Keep the head elsewhere, for --since:"
        _subscribe(server, "more")
        assert json.loads(_said(server, "log", "verify", "--json", "--since", head))["rows"] == 3
        anew = _run(server, "log", "verify", "--since", "2:" + "0" * 64)
        assert (anew.returncode, "broken at row 2" in anew.stdout) == (1, True)
        assert _run(server, "log", "verify", "--since", "yesterday").returncode == 2


async def test_tokens_that_changed_while_no_server_ran_are_rows_of_the_chain_when_it_is_ready(tmp_path: Path) -> None:
    """A server that is killed as soon as it is ready has written them."""
    tokens = str(tmp_path / "tokens.toml")

    def change(*arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", _MAIN, "token", *arguments, "--tokens", tokens], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr

    change("add", "shop", "--scope", "produce")
    async with serving(tmp_path, "--tokens", tokens) as server:
        await server.kill()
    change("revoke", "shop")
    change("add", "desk", "--scope", "admin")
    async with serving(tmp_path, "--tokens", tokens) as server:
        await server.kill()
    async with serving(tmp_path) as server:
        rows = reversed(json.loads(_said(server, "log", "list", "--act", "token", "--json"))["rows"])
        me = pwd.getpwuid(os.getuid()).pw_name
        found = [(row["target"], row["before"][:7], row["after"][:7], row["who"]) for row in rows]
        assert found[:3] == [("shop", "", "produce", me), ("desk", "", "admin, ", me), ("shop", "produce", "", me)]
        assert _said(server, "log", "verify").startswith("4 rows are unbroken.")
        with closing(sqlite3.connect(tmp_path / "twophase.db")) as connection, connection:
            connection.execute("update audit_log set who = 'stranger' where seq = 2")
        assert "broken at row 2" in _run(server, "log", "verify").stdout


async def test_a_row_that_was_changed_in_the_store_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        _subscribe(server, "rates", "fees", "more")
        with closing(sqlite3.connect(tmp_path / "twophase.db")) as connection, connection:
            connection.execute("update audit_log set who = 'stranger' where seq = 2")
        done = _run(server, "log", "verify")
        assert done.returncode == 1
        assert done.stdout.startswith("The audit log is broken at row 2: it was changed")
