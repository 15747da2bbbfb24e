"""Messages as tables in a terminal.

Texts from outside are never read as markup, and no terminal obeys them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from rich.table import Table

from twophase.cli.console import cell
from twophase.cli.operating.acting import state_in_words
from twophase.cli.operating.explanation import clock, span
from twophase.core.operating import ShownBranch, ShownMessage
from twophase.core.printable import printable

_GID_WIDTH_MAX: Final = 36


def table_of(messages: Sequence[ShownMessage], now_ms: int) -> Table:
    """Return a table with a row for each message."""
    table = _table("gid", "state", "age", "decided by", "failed rounds", "next", "to")
    # A gid is there to be copied, so it stays in one piece as long as it leaves room for the rest.
    if all(len(message.gid) <= _GID_WIDTH_MAX for message in messages):
        table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for message in messages:
        done = sum(branch.done for branch in message.branches)
        destinations = dict.fromkeys(_host(branch.url) for branch in message.branches)
        table.add_row(
            *map(
                cell,
                (
                    message.gid,
                    _state(message),
                    span(now_ms - message.created_ms),
                    message.decided_by,
                    str(message.attempts or ""),
                    _next(message, now_ms),
                    f"{done}/{len(message.branches)} {' '.join(destinations)}",
                ),
            )
        )
    return table


def one_message(one: ShownMessage, now_ms: int) -> Iterable[Table]:
    """Yield a message as three tables: itself, its branches, its record."""
    facts = _table("", "")
    facts.show_header = False
    for name, value in (
        ("gid", one.gid),
        ("state", _state(one)),
        ("created", clock(one.created_ms, now_ms)),
        ("decided", f"{clock(one.decided_ms, now_ms)} by {one.decided_by}" if one.decided_ms else ""),
        ("finished", clock(one.finished_ms, now_ms) if one.finished_ms else ""),
        ("reason", one.reason),
        ("next", clock(one.due_ms, now_ms) if one.due_ms else ""),
        ("failed rounds", str(one.attempts or "")),
        ("check-back", one.check_url),
        ("prepared with", one.prepared_check_url),
    ):
        if value:
            facts.add_row(name, cell(value))
    yield facts
    branches = _table("branch", "done", "bytes", "address")
    for branch in one.branches:
        done = "yes" if branch.done else "no"
        branches.add_row(*map(cell, (branch.branch_id, done, str(branch.payload_bytes), branch.url)))
    yield branches
    if one.log:
        log = _table("at", "what", "branch", "status", "result", "told")
        for entry in one.log:
            at, status = clock(entry.at_ms, now_ms), str(entry.status or "")
            log.add_row(*map(cell, (at, entry.kind, entry.branch_id, status, entry.result, entry.error)))
        yield log


def payload_of(branch: ShownBranch) -> str:
    """Return a branch's payload under a headline.

    Characters that a terminal would not print are escaped.

    >>> print(payload_of(ShownBranch("01", payload_bytes=3, payload="a\\x1b[")))
    Payload of branch 01, 3 bytes:
    a\\x1b[
    """
    if branch.payload_base64:
        return f"Payload of branch {branch.branch_id}, {branch.payload_bytes} bytes, base64:\n{branch.payload_base64}"
    return f"Payload of branch {branch.branch_id}, {branch.payload_bytes} bytes:\n{printable(branch.payload)}"


def _state(one: ShownMessage) -> str:
    state = state_in_words(one.state)
    return f"{state}, parked" if one.parked else state


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc or url
    except ValueError:
        return url  # it is no address, and is shown as it is


def _next(one: ShownMessage, now_ms: int) -> str:
    if one.parked or not one.due_ms:
        return ""
    return f"in {span(one.due_ms - now_ms)}" if one.due_ms > now_ms else "now"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
