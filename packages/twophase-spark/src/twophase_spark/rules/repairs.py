"""The command that repairs a class, for one message.

The audit only reads: it prints commands, and runs none. Every text that stands in a command is quoted for the shell or
for SQL, because gids and addresses come from elsewhere. What a terminal would obey stands in none.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from twophase.core.lifecycle import State
from twophase.core.shell import argument
from twophase_spark.rules.scope import ServiceScope, Table
from twophase_spark.rules.taxonomy import Flag

_TURNED_AWAY = "its barrier row has no booking, so a repeated call is refused: if the effect is nowhere, remove the row"
_IN_PART = "some rows of the effect are there: add the others, or undo these; another call would book all of them again"


class Repair(msgspec.Struct, frozen=True):
    """One step.

    `command` is for a shell, unless it begins with `--`: then it is SQL for the database named there.
    """

    flag: str
    why: str
    command: str


class Evidence(msgspec.Struct, frozen=True):
    """The parts of a message that need a repair.

    `missing`: branches of a message that succeeded which have no effect at all; `unbooked`, `unguarded`: (service,
    branch) of effects that only its barrier or only its ledger has; `effects`: services that have rows of the gid;
    `services`: where their tables are; `in_part`: effects of which a ledger has some rows only; `unbarred`: those in a
    ledger, also in rows that do not count, that no barrier row keeps from being repeated.
    """

    missing: tuple[str, ...] = ()
    unbooked: tuple[tuple[str, str], ...] = ()
    unguarded: tuple[tuple[str, str], ...] = ()
    effects: tuple[str, ...] = ()
    services: tuple[ServiceScope, ...] = ()
    in_part: tuple[tuple[str, str], ...] = ()
    unbarred: tuple[tuple[str, str], ...] = ()

    def service(self, name: str) -> ServiceScope:
        """Return the service of this name.

        An unknown one has a placeholder for its ledger.
        """
        unknown = ServiceScope(name, ledger=Table("LEDGER"))
        return next((one for one in self.services if one.name == name), unknown)


_NO_EVIDENCE = Evidence()


def repairs_of(
    gid: str, flags: Sequence[str], message: Mapping[str, Any] | None, evidence: Evidence = _NO_EVIDENCE
) -> tuple[Repair, ...]:
    """Return the steps of repair, in this order; a person must have looked first.

    Each class has its own step.

    >>> [step.command for step in repairs_of("order-17", ["parked"], {})]
    ['twophase messages redrive order-17']
    >>> repairs_of("order 17", ["late"], {})[0].command
    "twophase messages retry-now 'order 17'"
    """
    if not gid.isprintable():
        return ()  # a line break would end a comment, and begin a command
    return tuple(
        Repair(flag, why, command)
        for flag in flags
        for why, command in _steps(Flag(flag), gid, message or {}, evidence)
        if (why + command).isprintable()  # addresses and branches of a foreign coordinator
    )


def _steps(flag: Flag, gid: str, message: Mapping[str, Any], evidence: Evidence) -> list[tuple[str, str]]:
    name = argument(gid)
    explain = f"twophase explain {name}"
    if flag is Flag.PARKED:
        return [("when its cause is gone", f"twophase messages redrive {name}")]
    if flag in {Flag.LATE, Flag.IN_FLIGHT}:
        return [("retry at once instead of later", f"twophase messages retry-now {name}")]
    if flag is Flag.LOST and message.get("state") in {State.SUBMITTED, State.SUCCEEDED}:
        return [("a branch of it is in no queue: let its producer send that again, under another id", explain)]
    if flag is Flag.LOST:
        return [
            ("who decided against it, if it is known at all", explain),
            *_calls("the transaction is committed: its calls must follow", gid, message, but=evidence.unbarred),
        ]
    if flag is Flag.MISSING_EFFECT:
        why = "call the branch again; its barrier lets it through once"
        again = _calls(why, gid, message, evidence.missing, but=evidence.in_part)
        some = [(_IN_PART, command) for command in _rows(gid, evidence, [name for name, _ in evidence.in_part])]
        return [*again, *_unbooked(gid, message, evidence), *some] or [("what was called", explain)]
    if flag is Flag.CONTRARY_VERDICT:
        return [("who decided, and why", explain)]
    if flag in {Flag.GHOST, Flag.ORPHAN}:
        why = "what you must undo yourself"
        own = [branch["branch_id"] for branch in message.get("branches") or ()]
        if flag is Flag.ORPHAN and own:
            why += f"; not of {', '.join(own)}, which the message has"
        return [("what became of it", explain), *((why, command) for command in _rows(gid, evidence))]
    if flag is Flag.DUPLICATE_EFFECT:
        why = "which rows are too many: undo all but one of each branch"
        return [(why, command) for command in _rows(gid, evidence)] or [("what is known about it", explain)]
    if flag is Flag.DIFFERING_EFFECT:
        shown = ("the payload that was sent", f"twophase messages show --payload {name}")
        return [shown, *(("the rows that contradict it", command) for command in _rows(gid, evidence))]
    if flag is Flag.LEFT_OUT:
        why = "what the ledger's condition leaves out"
        return [(why, command) for command in _rows(gid, evidence)] or [("what is known about it", explain)]
    if flag is Flag.UNGUARDED_EFFECT:
        why = (
            "the row that keeps a repeated call from taking effect again; "
            "where it is there with the reason 'unfinished' (TP-5011), make that 'action' instead"
        )
        guards = [(why, _guard(evidence.service(one), gid, branch)) for one, branch in _sound(evidence.unguarded)]
        return guards or [("what is known about it", explain)]
    return [("what is known about it", explain)]


def _calls(
    why: str,
    gid: str,
    message: Mapping[str, Any],
    expected: Sequence[str] | None = None,
    but: Sequence[tuple[str, str]] = (),
) -> list[tuple[str, str]]:
    """Return calls of these branches, None for all, but for `but`'s."""
    steps: list[tuple[str, str]] = []
    done = {branch_id for _, branch_id in but}
    for branch in message.get("branches") or ():
        url, branch_id = branch["url"], branch["branch_id"]
        if not url.startswith(("http://", "https://")) or branch_id in done:
            continue
        if expected is not None and branch_id not in expected:
            continue
        query = urlencode({"gid": gid, "trans_type": "msg", "branch_id": branch_id, "op": "action"})
        target = f"{url}{'&' if '?' in url else '?'}{query}"
        steps.append((why, f"curl -X POST {shlex.quote(target)} -H 'Content-Type: application/json' -d @PAYLOAD"))
    return steps


def _unbooked(gid: str, message: Mapping[str, Any], evidence: Evidence) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    for name, branch in _sound([effect for effect in evidence.unbooked if effect not in evidence.in_part]):
        table = evidence.service(name).barrier
        where = f"trans_type = 'msg' and {_is(table, gid)} and {_is(table, branch, table.branch)} and op = 'action'"
        steps.append((_TURNED_AWAY, _sql(name, f"delete from {table.name} where {where}")))  # noqa: S608 -- shown, not run
        steps += _calls("then call the branch again", gid, message, [branch])
    return steps


def _rows(gid: str, evidence: Evidence, services: Sequence[str] | None = None) -> list[str]:
    """Return queries for these services' rows of the gid; None for all.

    They read a service's ledger, or its barrier when no ledger of it was given.
    """
    statements: list[str] = []
    for name in filter(str.isprintable, evidence.effects if services is None else dict.fromkeys(services)):
        service = evidence.service(name)
        table = service.ledger or service.barrier
        query = f"select * from {table.name} where {_is(table, gid)} order by {table.branch}"  # noqa: S608 -- shown, not run
        statements.append(_sql(name, query))
    return statements


def _guard(service: ServiceScope, gid: str, branch: str) -> str:
    table = service.barrier
    row = f"'msg', {_text(table, gid)}, {_text(table, branch)}, 'action', '01', 'action'"
    columns = "trans_type, gid, branch_id, op, barrier_id, reason"
    return _sql(service.name, f"insert into {table.name} ({columns}) values ({row})")  # noqa: S608 -- shown, not run


def _sound(effects: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(service, branch) for service, branch in effects if (service + branch).isprintable()]


def _sql(service: str, statement: str) -> str:
    """Return SQL with the name of its database.

    Every quote in it is doubled or closed, and so it is for a shell: pasted there by mistake, it runs nothing.
    """
    return f"-- in the database of {service}: {statement};"


def _is(table: Table, text: str, column: str = "") -> str:
    return f"{column or table.gid} = {_text(table, text)}"


def _text(table: Table, text: str) -> str:
    quoted = text.replace("'", "''")
    return "'" + (quoted.replace("\\", "\\\\") if table.engine == "mysql" else quoted) + "'"
