"""`twophase topic …` against a real server process, as an operator runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_process import ServerProcess, serving

_MAIN = "from twophase.cli.app import main; main()"
NOBODY = "http://127.0.0.1:1"


def _run(server: ServerProcess | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    url = server if isinstance(server, str) else f"http://127.0.0.1:{server.port}"
    return subprocess.run(
        [sys.executable, "-c", _MAIN, "topic", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"TWOPHASE_URL": url, "http_proxy": NOBODY, "PATH": ""},
    )


def _said(server: ServerProcess, *arguments: str) -> str:
    done = _run(server, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def test_an_address_without_a_scheme_is_shown_with_the_scheme(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        done = _run(server, "subscribe", "rates", "localhost:1")

        assert done.returncode == 1
        assert done.stderr.startswith("TP-1000: url: 'localhost:1' has no scheme; write http://localhost:1, or ")
        assert "Service/Method" in _run(server, "subscribe", "rates", "localhost:1/no.Service/").stderr


async def test_a_topics_life_from_the_command_line(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert "twophase topic subscribe NAME URL" in _said(server, "list")
        elsewhere = _run(NOBODY, "list", "--server", f"http://127.0.0.1:{server.port}/")
        assert (elsewhere.returncode, elsewhere.stderr) == (0, "")
        assert _said(server, "subscribe", "rates", "http://bank-b:8082/rates", "--remark", "bank B") == (
            "subscribed to topic://rates: http://bank-b:8082/rates\n"
        )
        changed = json.loads(_said(server, "subscribe", "topic://rates", "http://bank-c:8083/rates", "--json"))
        assert (changed["name"], changed["version"], len(changed["subscribers"])) == ("rates", 2, 2)

        heads, row = _said(server, "list").splitlines()
        assert heads.split() == ["TOPIC", "SUBSCRIBERS", "VERSION", "CHANGED"]
        assert row.split()[:3] == ["rates", "2", "2"]
        assert json.loads(_said(server, "list", "--json"))["topics"] == [changed]
        shown = _said(server, "show", "rates").splitlines()
        assert shown[0].startswith("topic://rates, version 2, changed ")
        assert shown[2].split() == ["http://bank-b:8082/rates", "bank", "B"]
        assert json.loads(_said(server, "show", "topic://rates", "--json")) == changed

        _said(server, "unsubscribe", "rates", "http://bank-b:8082/rates")
        left = json.loads(_said(server, "unsubscribe", "rates", "http://bank-c:8083/rates", "--json"))
        assert left["subscribers"] == []
        assert "No subscribers: a message to it is refused." in _said(server, "show", "rates")
        assert _said(server, "delete", "rates") == "deleted topic://rates\n"


async def test_refusals_name_the_next_command(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for arguments, code, text in [
            (("show", "nosuch"), "TP-1003", "twophase topic list"),
            (("unsubscribe", "nosuch", "http://b"), "TP-1004: no such a topic.", "twophase topic list"),
            (("delete", "a/b"), "TP-1003: there is no topic 'a/b'.", "twophase topic list"),
            (("subscribe", "rates", "nowhere"), "TP-1000: url: ", "Correct the named field"),
            (("subscribe", "", "http://b"), "TP-1004: empty topic.", ""),
        ]:
            done = _run(server, *arguments)
            assert (done.returncode, done.stdout) == (1, ""), arguments
            assert done.stderr.startswith(code), done.stderr
            assert text in done.stderr


@pytest.mark.parametrize("arguments", [("list",), ("subscribe", "rates", "http://b"), ("delete", "rates", "--json")])
def test_without_a_server_the_remedy_says_how_to_start_it(arguments: tuple[str, ...]) -> None:
    done = _run(NOBODY, *arguments)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("No server answers at http://127.0.0.1:1: ")
    assert "`twophase server`" in done.stderr
    assert "TWOPHASE_URL" in done.stderr


def test_an_address_that_is_none_is_refused() -> None:
    done = _run("localhost:36789", "list")

    assert (done.returncode, "not an http:// or https:// address" in done.stderr) == (2, True)


async def test_something_else_than_a_server_is_distinguished(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        done = _run(f"http://127.0.0.1:{server.port}/nosuch", "list")

    assert (done.returncode, "is it a twophase server, of this version?" in done.stderr) == (3, True)
