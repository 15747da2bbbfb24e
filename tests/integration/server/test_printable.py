"""A terminal obeys no text of a coordinator's answer."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import msgspec
import pytest

from tests.support.scripted_server import answering, serving

EVIL: Final = "card\x1b[2J\x1b]0;owned\x07\x9b2K\u202edesrever"
SHOWN: Final = r"card\x1b[2J\x1b]0;owned\x07\x9b2K\u202edesrever"
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


@pytest.mark.parametrize(
    ("arguments", "status", "body"),
    [
        (("topic", "show", "rates"), 200, _TOPIC),
        (("topic", "list"), 200, {"revision": 1, "topics": [_TOPIC]}),
        (("messages", "list"), 200, {"messages": [_MESSAGE], "position": EVIL, "now_ms": 5}),
        (("messages", "show", "g"), 200, {"message": _MESSAGE, "now_ms": 5}),
        (("explain", "g"), 200, {"message": _MESSAGE, "now_ms": 5}),
        (("messages", "park", "g"), 409, {"dtm_result": "FAILURE", "code": "TP-2001", "message": EVIL}),
        (("status",), 409, {"dtm_result": "FAILURE", "code": "TP-2001", "message": EVIL}),
    ],
)
async def test_no_text_of_an_answer_reaches_the_terminal_as_a_command(
    arguments: tuple[str, ...], status: int, body: dict[str, object]
) -> None:
    content = msgspec.json.encode(body)
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    async with serving(answering(head.encode() + content)).running() as server:
        command = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _MAIN, *arguments, "--server", f"http://127.0.0.1:{server.port}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "", "COLUMNS": "1000"},
        )
        outputs = await command.communicate()

    printed = b"".join(outputs).decode()
    assert SHOWN in printed
    assert all(character.isprintable() or character == "\n" for character in printed)
