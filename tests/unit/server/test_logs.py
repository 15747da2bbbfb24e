"""Log lines are JSON, bounded in length and number.

They carry neither payloads nor secrets.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import structlog

from twophase.server.logs import RateLimit, configure


@contextlib.contextmanager
def logging_to(stream: io.StringIO, log_format: str = "auto") -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    configure("info", stream, log_format)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with logging_to(stream):
        yield stream


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object(lines: io.StringIO) -> None:
    structlog.get_logger().info("ready", urls=["http://127.0.0.1:1"])
    (line,) = written(lines)
    assert (line["event"], line["level"], line["urls"]) == ("ready", "info", ["http://127.0.0.1:1"])
    assert line["at"].endswith("Z")


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_terminal_obeys_no_text_in_a_line(log_format: str) -> None:
    stream = io.StringIO()
    with logging_to(stream, log_format):
        structlog.get_logger().info("x\x1b[2J\nforged", target="\x9b2J\u202e", values=["\x1b"], error=OSError("\x1b"))
        try:
            raise ValueError("\x1b[2J")
        except ValueError:
            logging.getLogger("other").exception("failed")
    text = stream.getvalue()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert not any(line.startswith("forged") for line in text.splitlines())
    if log_format == "json":
        assert written(stream)[0]["target"] == "\x9b2J\u202e"


def test_a_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers write to one standard error.

    A line in two pieces could hold a piece of another's.
    """
    stream = io.StringIO()
    written_texts: list[str] = []
    monkeypatch.setattr(stream, "write", written_texts.append)
    with logging_to(stream):
        structlog.get_logger().info("ready")
        logging.getLogger("library").warning("words")
    assert len(written_texts) == 2
    assert all(text.endswith("}\n") for text in written_texts)


def test_a_line_that_cannot_be_written_is_dropped() -> None:
    """A full disk fails in `flush`, behind the buffer."""
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 -- its close fails
    with logging_to(cast("io.StringIO", full)):
        structlog.get_logger().info("ready")
        structlog.get_logger().info("x" * io.DEFAULT_BUFFER_SIZE)
    with pytest.raises(OSError, match="No space"):
        full.close()


def test_lines_below_the_level_are_not_written(lines: io.StringIO) -> None:
    structlog.get_logger().debug("chatter")
    assert written(lines) == []


@pytest.mark.parametrize("name", ["payload", "body", "password", "api_token", "Authorization", "secret", "cookie"])
def test_payloads_and_secrets_are_left_out(lines: io.StringIO, name: str) -> None:
    structlog.get_logger().info("x", **{name: "hunter2"})
    assert "hunter2" not in lines.getvalue()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@db/x",
        "postgresql://user:a@hunter2@db/x",
        "postgresql://user:a/hunter2@db/x",
        "postgresql://db/x?user=me&password=hunter2",
        "postgresql://db/x?password=a@hunter2",
    ],
)
def test_credentials_in_urls_are_left_out(lines: io.StringIO, url: str) -> None:
    structlog.get_logger().info("x", store=url, what=f"{url}: connecting failed.")
    assert "hunter2" not in lines.getvalue()


def test_long_texts_are_cut(lines: io.StringIO) -> None:
    structlog.get_logger().info("x", what="a" * 100_000)
    assert len(lines.getvalue()) < 3_000


def test_lines_of_libraries_become_ours(lines: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").warning("from %s", "elsewhere")
    (line,) = written(lines)
    assert (line["event"], line["logger"], line["level"]) == ("from elsewhere", "uvicorn.error", "warning")


def test_a_trace_goes_into_the_line(lines: io.StringIO) -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError as error:
        structlog.get_logger().error("fault", exc_info=error)
    (line,) = written(lines)
    assert "RuntimeError: boom" in line["exception"]


def test_what_json_does_not_know_is_written_as_text(lines: io.StringIO) -> None:
    structlog.get_logger().info("x", thing=object)
    assert "class 'object'" in written(lines)[0]["thing"]


def test_a_flood_of_one_event_is_bounded_and_counted() -> None:
    now_s = 0.0
    limit = RateLimit(lines_max=3, window_s=10.0, now_s=lambda: now_s)
    passed = 0
    for _ in range(100):
        try:
            limit(None, "info", {"event": "flood"})
            passed += 1
        except structlog.DropEvent:
            pass
    assert passed == 3
    assert limit(None, "info", {"event": "other"}) == {"event": "other"}
    now_s = 11.0
    assert limit(None, "info", {"event": "flood"})["left_out"] == 97


def _passed(limit: RateLimit, *targets: str) -> int:
    """Return how many lines of one event about these targets are written."""
    passed = 0
    for target in targets:
        with contextlib.suppress(structlog.DropEvent):
            limit(None, "info", {"event": "branch failed", "target": target})
            passed += 1
    return passed


def test_a_flood_of_one_event_about_many_targets_is_bounded_and_counted() -> None:
    now_s = 0.0
    limit = RateLimit(now_s=lambda: now_s)
    assert _passed(limit, *(f"http://bank/{number}" for number in range(5_000))) == 200
    assert limit(None, "info", {"event": "other", "target": "http://bank/1"}).keys() == {"event", "target"}
    now_s = 11.0
    assert limit(None, "info", {"event": "branch failed", "target": "http://bank/new"})["left_out"] == 4_800


def test_a_flood_about_many_targets_does_not_open_the_windows_of_others() -> None:
    limit = RateLimit(event_lines_max=10_000, now_s=lambda: 0.0)
    _passed(limit, *(f"http://old/{number}" for number in range(200)))
    assert _passed(limit, *["http://bank"] * 100) == 20
    _passed(limit, *(f"http://new/{number}" for number in range(400)))
    assert _passed(limit, *["http://bank"] * 100) == 0


def test_the_memory_of_the_limit_is_bounded() -> None:
    limit = RateLimit()
    for number in range(5_000):
        limit(None, "info", {"event": f"event {number}", "target": f"http://bank/{number}"})
    assert len(limit._of_targets) == len(limit._of_events) == 512
