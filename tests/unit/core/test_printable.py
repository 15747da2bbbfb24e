"""Texts for terminals, and JSON for terminals and programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from io import StringIO
from pathlib import Path

import pytest

from twophase.core.printable import OutputFailed, PrintableStream, drop_output, printable, printable_json, unfiltered

EVIL = "a\x1b[2J\x7f\x9b\u202e\U000e0001"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain, ü", "plain, ü"), (EVIL, r"a\x1b[2J\x7f\x9b\u202e\U000e0001"), ("a\n\tb\r", "a\n\tb\\r")],
)
def test_an_unprintable_character_is_shown_by_its_code(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_caller_chooses_which_unprintable_characters_stay() -> None:
    assert printable("a\nb\t", kept="") == r"a\nb\t"


@pytest.mark.parametrize("text", ["plain, ü", EVIL])
def test_printable_json_means_the_same(text: str) -> None:
    shown = printable_json(json.dumps({"a": text}, ensure_ascii=False, indent=1))

    assert json.loads(shown) == {"a": text}
    assert shown.replace("\n", "").isprintable()


def test_printable_json_of_printable_text_is_the_text() -> None:
    assert printable_json('{"a": 1}') == '{"a": 1}'


def test_a_stream_takes_nothing_that_a_terminal_would_obey() -> None:
    behind = StringIO()
    stream = PrintableStream(behind)
    assert stream.write("a\x1b") == 2
    stream.writelines(["b\x9b", "c"])
    assert behind.getvalue() == r"a\x1bb\x9bc"
    assert stream.getvalue() == behind.getvalue()
    assert unfiltered(stream) is unfiltered(behind) is behind  # type: ignore[arg-type]  # a stream in all but its class


def test_a_full_disk_is_told_from_what_else_may_fail() -> None:
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 -- its close fails
    stream = PrintableStream(full)
    stream.write("kept in the buffer")

    for writing in (stream, stream.rich_proxied_file):
        with pytest.raises(OutputFailed, match="No space"):
            writing.flush()

    with contextlib.suppress(OSError):
        full.close()


def test_a_reader_that_has_gone_is_no_full_disk() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    nobody_reads = os.fdopen(writing, "w", encoding="utf-8")
    stream = PrintableStream(nobody_reads)
    stream.write("kept in the buffer")

    with pytest.raises(BrokenPipeError):
        stream.flush()

    with contextlib.suppress(BrokenPipeError):
        nobody_reads.close()


def test_what_a_full_disk_does_not_take_is_dropped_and_the_rest_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w", encoding="utf-8") as takes, Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", takes)
        monkeypatch.setattr(sys, "stderr", full)
        takes.write("kept")
        full.write("dropped")

        drop_output()

        full.flush()  # as the interpreter does at its end
        assert (tmp_path / "log").read_text(encoding="utf-8") == "kept"


def test_a_process_without_streams_has_nothing_to_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)

    drop_output()
