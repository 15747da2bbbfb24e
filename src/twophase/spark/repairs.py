"""The command that repairs a class, for one message. The audit only reads: it prints commands, and runs none.

Every text that stands in a command is quoted for the shell or for SQL, because gids and addresses come from elsewhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from twophase.spark.taxonomy import Flag


class Repair(msgspec.Struct, frozen=True):
    """One step. `command` is for a shell, unless it begins with `--`: then it is SQL for the database named there."""

    flag: str
    why: str
    command: str


def repairs_of(gid: str, flags: Sequence[str], message: Mapping[str, Any] | None) -> tuple[Repair, ...]:
    """What to run, in this order, once a person has looked: each class' own step.

    >>> [step.command for step in repairs_of("order-17", ["parked"], {})]
    ['twophase messages redrive order-17']
    >>> repairs_of("order 17", ["late"], {})[0].command
    "twophase messages retry-now 'order 17'"
    """
    if not gid.isprintable():
        return ()  # a line break would end a comment, and begin a command
    return tuple(
        Repair(flag, why, command) for flag in flags for why, command in _steps(Flag(flag), gid, message or {})
    )


def _steps(flag: Flag, gid: str, message: Mapping[str, Any]) -> list[tuple[str, str]]:
    name = shlex.quote(gid)
    explain = f"twophase explain {name}"
    if flag is Flag.PARKED:
        return [("when its cause is gone", f"twophase messages redrive {name}")]
    if flag in {Flag.LATE, Flag.IN_FLIGHT}:
        return [("try at once instead of at the next turn", f"twophase messages retry-now {name}")]
    if flag is Flag.LOST:
        return [
            ("who decided against it, if it is known at all", explain),
            *_calls("the transaction is committed: its calls must follow", gid, message),
        ]
    if flag is Flag.MISSING_EFFECT:
        return _calls("call the branch again; its barrier lets it through once", gid, message) or [
            ("what was called", explain)
        ]
    if flag is Flag.CONTRARY_VERDICT:
        return [("who decided, and why", explain)]
    if flag in {Flag.GHOST, Flag.ORPHAN}:
        return [
            ("what became of it", explain),
            ("what has to be undone, by your own means", _sql(f"select * from LEDGER where {_where(gid)}")),  # noqa: S608 -- shown, not run
        ]
    if flag is Flag.DUPLICATE_EFFECT:
        why = "which rows are too many: undo all but one of each branch"
        statement = f"select * from LEDGER where {_where(gid)} order by branch_id"  # noqa: S608 -- shown, not run
        return [(why, _sql(statement))]
    if flag is Flag.UNGUARDED_EFFECT:
        return [("the row that keeps a repeated call from taking effect again", _sql(_barrier_row(gid)))]
    return [("what is known about it", explain)]


def _calls(why: str, gid: str, message: Mapping[str, Any]) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    for branch in message.get("branches") or ():
        url = branch["url"]
        if not url.startswith(("http://", "https://")):
            continue
        query = urlencode({"gid": gid, "trans_type": "msg", "branch_id": branch["branch_id"], "op": "action"})
        target = f"{url}{'&' if '?' in url else '?'}{query}"
        steps.append((why, f"curl -X POST {shlex.quote(target)} -H 'Content-Type: application/json' -d @PAYLOAD"))
    return steps


def _barrier_row(gid: str) -> str:
    columns = "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason)"
    return f"{columns} select 'msg', gid, branch_id, 'action', '01', 'action' from LEDGER where {_where(gid)}"  # noqa: S608 -- shown, not run


def _sql(statement: str) -> str:
    return f"-- in the consumer's database: {statement};"


def _where(gid: str) -> str:
    return "gid = '" + gid.replace("'", "''") + "'"
