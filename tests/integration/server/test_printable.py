"""A terminal obeys no text of an answer, and none of the server's log."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.support import server_process
from tests.support.scripted_server import answering, serving

EVIL: Final = "card\x1b[2J\x1b]0;owned\x07\x9b2K\u202edesrever\U000e0001"
SHOWN: Final = r"card\x1b[2J\x1b]0;owned\x07\x9b2K\u202edesrever\U000e0001"
_MAIN: Final = "from twophase.cli.app import main; main()"
_TOPIC: Final = {
    "name": EVIL,
    "version": 1,
    "created": "2026-11-01",
    "changed": EVIL,
    "subscribers": [{"url": "http://bank-b/in", "remark": EVIL}],
}
_MESSAGE: Final = {
    "gid": EVIL,
    "state": "submitted",
    "created_ms": 1,
    "decided_by": EVIL,
    "reason": EVIL,
    "check_url": EVIL,
    "branches": [{"branch_id": "01", "payload_bytes": 0, "url": f"http://{EVIL}"}],
    "log": [{"at_ms": 2, "kind": "branch", "branch_id": "01", "result": "failed", "error": EVIL, "target": EVIL}],
}

_ACT: Final = {"seq": 1, "at_ms": 1, "node": 1} | dict.fromkeys(
    ("who", "peer", "act", "target", "reason", "before", "after", "previous", "hash"), EVIL
)


@pytest.mark.parametrize(
    ("arguments", "status", "body"),
    [
        (("topic", "show", "rates"), 200, _TOPIC),
        (("topic", "list"), 200, {"revision": 1, "topics": [_TOPIC]}),
        (("messages", "list"), 200, {"messages": [_MESSAGE], "position": EVIL, "now_ms": 5}),
        (("messages", "show", "g"), 200, {"message": _MESSAGE, "now_ms": 5}),
        (("explain", "g"), 200, {"message": _MESSAGE, "now_ms": 5}),
        (("messages", "park", "g"), 409, {"dtm_result": "FAILURE", "code": "TP-2001", "message": EVIL}),
        (("doctor",), 409, {"dtm_result": "FAILURE", "code": "TP-2001", "message": EVIL}),
        (("log", "list"), 200, {"rows": [_ACT], "position": 0}),
        (("import", "dtm", "redis://127.0.0.1:1/0"), 409, {"code": "TP-2001", "message": EVIL}),
        (("status",), 409, {"dtm_result": "FAILURE", "code": "TP-2001", "message": EVIL}),
    ],
)
async def test_no_text_of_an_answer_reaches_the_terminal_as_a_command(
    arguments: tuple[str, ...], status: int, body: dict[str, object]
) -> None:
    printed = b"".join(await _outputs(arguments, status, body)).decode()

    assert SHOWN in printed
    _assert_printable(printed)


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("topic", "show", "rates"), _TOPIC),
        (("messages", "list"), {"messages": [_MESSAGE], "position": "", "now_ms": 5}),
        (("log", "list"), {"rows": [_ACT], "position": 0}),
    ],
)
async def test_json_for_programs_has_the_same_texts_and_a_terminal_obeys_none(
    arguments: tuple[str, ...], body: dict[str, object]
) -> None:
    printed, _ = await _outputs((*arguments, "--json"), 200, body)

    assert EVIL in list(_texts(msgspec.json.decode(printed)))
    _assert_printable(printed.decode())


@pytest.mark.parametrize("log_format", ["console", "json"])
async def test_no_value_in_the_log_reaches_the_terminal_as_a_command(tmp_path: Path, log_format: str) -> None:
    environment = {f"TWOPHASE_{EVIL}": "1"}
    arguments = ("--set", f"log_format={log_format}")
    async with server_process.serving(tmp_path, *arguments, environment=environment) as server:
        _, errors = await server.terminate()

    assert r"\u202edesrever" in errors
    _assert_printable(errors)
    assert sum("looks like a setting" in line and "desrever" in line for line in errors.splitlines()) == 1


async def _outputs(arguments: tuple[str, ...], status: int, body: dict[str, object]) -> tuple[bytes, bytes]:
    content = msgspec.json.encode(body)
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    async with serving(answering(head.encode() + content)).running() as server:
        command = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _MAIN, *arguments, "--server", f"http://127.0.0.1:{server.port}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "", "COLUMNS": "1000"},
        )
        return await command.communicate()


def _assert_printable(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in text)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in _texts(one)]
    return [str(value)]
