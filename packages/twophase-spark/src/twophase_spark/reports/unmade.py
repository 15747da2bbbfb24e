"""The report files of a run that made no report.

Each states that, so that no older success is believed. They are made without PySpark, because its absence is one of the
reasons.
"""

from __future__ import annotations

import contextlib
import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from twophase.core.credentials import without_credentials
from twophase.core.errors import TwophaseError

NOT_MADE: Final = "not-made"
"""The verdict in JSON."""
STOPPED: Final = "Stopped; nothing can be said."
AUDIT_FORMAT: Final = 2
SLO_FORMAT: Final = 1
"""Format of their JSON; equal to `report.FORMAT` and `slo.FORMAT`."""
_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold at all, not even escaped.

A gid of a foreign table may have them.
"""
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: could not check, {as_of}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 4rem; }}
h1 {{ border-left: .5rem solid #b26a00; padding-left: 1rem; font-size: 1.9rem; }}
p {{ white-space: pre-line; }}
</style>
</head>
<body>
<h1>Could not check</h1>
<p>{sentence}</p>
<p>As of {as_of}.</p>
</body>
</html>
"""


class ReportFiles(msgspec.Struct):
    """The paths of reports; None where none was asked for.

    `format`: of this command's JSON; `made`: they hold what this run has found, and no later failure (a terminal that
    is gone, Spark that cannot be stopped) takes any of that back.
    """

    html: Path | None = None
    json: Path | None = None
    junit: Path | None = None
    title: str = "twophase audit"
    format: int = AUDIT_FORMAT
    made: bool = False

    def say_not_made(self, why: str) -> None:
        """Write `why` in place of a report.

        A file that cannot be written is skipped: the failure itself is more important.
        """
        if self.made:
            return
        why = as_told(why)
        as_of = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        plain = {"format": self.format, "verdict": NOT_MADE, "sentence": why, "as_of": as_of}
        page = _PAGE.format(title=html.escape(self.title), as_of=as_of, sentence=html.escape(why))
        for path, content in (
            (self.html, page.encode()),
            (self.json, msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"),
            (self.junit, _suite(self.title, why)),
        ):
            if path is not None:
                with contextlib.suppress(OSError, ValueError):  # the latter: a path with a NUL
                    path.write_bytes(content)


def last_line(error: Exception) -> str:
    """Return the line that describes an error.

    Of an error in a Spark worker it is the line that names it, not the whole trace.
    """
    if isinstance(error, TwophaseError):
        return f"{error.code}: {error.message}"
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # noqa: BLE001 -- Spark's errors ask Java for their text, which may have ended
        lines = []
    ours = [line for line in lines if "TP-" in line]
    chosen = ours[-1].partition("TP-") if ours else None
    if chosen is not None:
        return chosen[1] + chosen[2]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


def as_told(text: str) -> str:
    """Return `text` without credentials and without characters that no encoding has.

    A path of the command line need not be UTF-8.
    """
    return without_credentials(text).encode("utf-8", "replace").decode()


def as_xml_text(text: str) -> str:
    """Return `text` without characters that XML cannot hold."""
    return _ILLEGAL.sub("\ufffd", text)


def _suite(title: str, why: str) -> bytes:
    """Return one case, which is an error.

    So a build never takes silence for success.
    """
    counts = {"tests": "1", "failures": "0", "errors": "1", "skipped": "0", "time": "0"}
    suite = ET.Element("testsuite", {"name": title, **counts})
    case = ET.SubElement(suite, "testcase", classname="twophase.coverage", name="the audit could be made")
    ET.SubElement(case, "error", message=as_xml_text(why))
    ET.indent(suite)
    text: str = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()
