"""Write the tables of docs/reference that come from the code.

They are settings, errors, limits, audit and more. A page holds `<!-- generated: name -->` … `<!-- end -->`; the part
between them is written here, the rest by people. `make docs` writes, `--check` only compares (a test does that), so no
page can disagree with the code.
"""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from pyspark.sql.pandas.types import from_arrow_schema

from tests.clients import setups
from tests.clients.rocketmq import situations as rocketmq
from tests.spark.cases import ALL as ALL_CASES
from tests.spark.cases import CANCELLED, RECONCILED, Case
from tests.wire import differences
from twophase.client.clients import Client
from twophase.client.draft import Progress
from twophase.client.message import Message
from twophase.client.options import READERS, MessageOptions
from twophase.core import failpoint
from twophase.core.errors import Fate, TwophaseError
from twophase.core.lifecycle import State
from twophase.core.limits import LIMITS
from twophase.queues import Consumer, TransactionProducer
from twophase.server.api.queues.routes import QUEUE_OPERATIONS
from twophase.server.identity.scopes import scopes_of
from twophase.server.setting_table import describe
from twophase_spark.fleet import OPTIONS as AUDIT_OPTIONS
from twophase_spark.locations import PARAMETERS
from twophase_spark.mysql_url import PARAMETERS as MYSQL_PARAMETERS
from twophase_spark.option_table import Option
from twophase_spark.rules.taxonomy import MEANINGS
from twophase_spark.sink.options import OPTIONS as SINK_OPTIONS
from twophase_spark.source.options.read_options import OPTIONS as SOURCE_OPTIONS
from twophase_spark.source.schema.tables import COLUMNS, IN_BODY, Column, arrow_schema

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def error_classes() -> list[type[TwophaseError]]:
    """Return every error class, in the order of the codes."""

    def below(cls: type[TwophaseError]) -> Iterator[type[TwophaseError]]:
        yield cls
        for child in cls.__subclasses__():
            yield from below(child)

    own = (cls for cls in below(TwophaseError) if cls.__module__ == TwophaseError.__module__)
    return sorted(set(own), key=lambda cls: cls.code)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def errors_table() -> str:
    """Return code, name, what happened, fate and remedy of every error."""
    rows = [
        (
            f"`{cls.code}`",
            f"`{cls.__name__}`",
            (cls.__doc__ or "").strip().split("\n", 1)[0],
            cls.fate.value if cls.concerns_a_message else "no message",
            cls.remedy,
        )
        for cls in error_classes()
    ]
    return _table(("Code", "Error", "What happened", "The message's fate", "What to do"), rows)


def values_table(enumeration: type[enum.Enum], head: str) -> str:
    """Return the meaning of each value of an enum.

    It is the text below each member, which Python itself does not keep.
    """
    (tree,) = ast.parse(inspect.getsource(enumeration)).body
    assert isinstance(tree, ast.ClassDef)
    rows = [
        (str(ast.literal_eval(member.value)), str(ast.literal_eval(text.value)))
        for member, text in itertools.pairwise(tree.body)
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr)
    ]
    assert [value for value, _ in rows] == [member.value for member in enumeration], "every value is explained"
    return _table((head, "Meaning"), rows)


def limits_table() -> str:
    """Return every limit of the protocol."""
    return _table(
        ("Limit", "Value", "Unit", "Why"),
        [(limit.name, f"{limit.value:,}".replace(",", " "), limit.unit, limit.why) for limit in LIMITS],
    )


def members_table(public: type) -> str:
    """Return every public member of a class, as it is called, and its meaning."""
    rows = []
    for name, member in inspect.getmembers(public):
        if not name.startswith("_"):
            called = f"`{name}({_parameters(member)})`" if callable(member) else f"`{name}`"
            rows.append((called, (inspect.getdoc(member) or "").split("\n\n", 1)[0]))
    return _table(("Member", "Meaning"), rows)


def _parameters(method: Callable[..., object]) -> str:
    parameters = [parameter for parameter in inspect.signature(method).parameters.values() if parameter.name != "self"]
    return ", ".join("**options" if one.kind is one.VAR_KEYWORD else one.name for one in parameters)


def message_options_table() -> str:
    """Return every option of a message in the SDK, and its field on the wire."""
    meanings = dict(re.findall(r"^(\w+): (.*(?:\n    .*)*)", inspect.getdoc(MessageOptions) or "", re.MULTILINE))
    assert set(meanings) == set(MessageOptions.__annotations__), "every option has its meaning"
    wire = {"delay_ms": "custom_data, delay_ms", "headers": "branch_headers", "not_before_ms": "next_cron_time"}
    rows = [
        (f"`{name}`", re.sub(r"\s+", " ", meaning), f"`{wire.get(READERS[name][0], READERS[name][0])}`")
        for name, meaning in meanings.items()
    ]
    return _table(("Option", "Meaning", "Field"), rows)


def settings_table() -> str:
    """Return every setting of the server."""
    rows = [(f"`{one.name}`", f"`{one.variable}`", f"`{one.default}`", one.description) for one in describe()]
    return _table(("Setting", "Environment", "Default", "What it is"), rows)


_AGREES = {True: "true", False: "false", None: "null"}


def situations_table() -> str:
    """Return each situation of the audit's tests, with every side and the verdict."""

    def sides(case: Case) -> tuple[str, ...]:
        state = "unknown" if case.state is None else case.state.name.lower()
        decided = case.decided_by if case.state in {State.SUCCEEDED, State.FAILED} else ""
        barriers = ", ".join(f"{service} {branch}" for service, branch in case.barriers)
        return (
            f"{state} ({decided})" if decided else state,
            case.producer or "",
            barriers,
            ", ".join(map(str, case.ledger)),
            ", ".join(case.left_out),
            _AGREES[case.agrees] if case in RECONCILED else "",
            ", ".join(case.branches[place][0] for place in case.entries),
        )

    titles = {meaning.flag.value: meaning.title for meaning in MEANINGS}
    rows = [
        (case.gid.replace("_", " "), *sides(case), ", ".join(titles[flag] for flag in case.flags) or "in order")
        for case in (*ALL_CASES, *RECONCILED, *CANCELLED)
    ]
    sides_of = ("Message", "Producer's row", "Barrier rows", "Ledger of bank-b", "Left out", "`agrees`", "In queues")
    return _table(("Situation", *sides_of, "Verdict"), rows)


def audit_table() -> str:
    """Return every class of the audit."""
    rows = [(one.title, "yes" if one.violation else "no", one.what, one.remedy) for one in MEANINGS]
    return _table(("Class", "Breaks a promise", "What it means", "What to do"), rows)


def failpoints_list() -> str:
    """Return every failpoint, by process."""
    return "".join(f"* `{name}`\n" for name in sorted(failpoint.NAMES))


def clients_table() -> str:
    """Return the published clients of dtm that the tests drive, and their languages."""
    return _table(("Language", "Package", "Version"), setups.versions()) + "\n" + _table(*setups.scenarios_table())


def rocketmq_clients_table() -> str:
    """Return RocketMQ's official clients, and the situations of their tests."""
    return _table(*rocketmq.versions_table()) + "\n" + _table(*rocketmq.situations_table())


def shared_table() -> str:
    """Return the clients that the tests drive together on one barrier table."""
    return _table(*setups.shared_table())


def options_table(options: Sequence[Option]) -> str:
    """Return every option of a table of options."""
    rows = [(f"`{one.name}`", one.takers or "any", one.default_shown, one.meaning) for one in options]
    return _table(("Option", "For", "Default", "What it does"), rows)


def terms_table(options: Sequence[Option]) -> str:
    """Return every option of a table whose options are for all."""
    rows = [(f"`{one.name}`", one.default_shown, one.meaning) for one in options]
    return _table(("Option", "Default", "What it does"), rows)


def source_columns_table() -> str:
    """Return every column of the Spark source's tables."""

    def listed(columns: Sequence[Column]) -> str:
        fields = from_arrow_schema(arrow_schema(tuple(columns))).fields
        return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)

    rows = [(f"`{kind}`", listed([one for one in columns if one not in IN_BODY])) for kind, columns in COLUMNS.items()]
    return _table(("Table", "Columns"), [*rows, ("a message's body", listed(IN_BODY))])


def compatibility_table() -> str:
    """Return the requests that twophase answers otherwise than dtm."""
    rows = [(one.what, one.dtm, one.ours, one.why) for one in differences.PARTICULAR]
    return _table(("Request", "dtm", "twophase", "Why"), rows)


def compatibility_list() -> str:
    """Return the differences that hold everywhere."""
    return _table(("What", "Why"), differences.GENERAL)


def queue_routes_table() -> str:
    """Return the routes of queues' clients, with scopes and fields."""
    rows = []
    for operation in QUEUE_OPERATIONS:
        fields = msgspec.structs.fields(operation.request)
        asked = ", ".join(f"`{one.name}`" if one.required else f"`{one.name}`={_shown(one.default)}" for one in fields)
        answered = ", ".join(f"`{one.name}`" for one in msgspec.structs.fields(operation.answer))
        scopes = " or ".join(f"`{scope}`" for scope in sorted(scopes_of(operation.path)))
        rows.append((f"`{operation.path}`", operation.summary, scopes, asked, answered))
    return _table(("Path", "What it does", "Scope", "Fields", "Answer"), rows)


def _shown(default: object) -> str:
    return "null" if default is None else msgspec.json.encode(default).decode()


GENERATORS = {
    "compatibility": compatibility_table,
    "everywhere": compatibility_list,
    "errors": errors_table,
    "fates": lambda: values_table(Fate, "Fate"),
    "progress": lambda: values_table(Progress, "State"),
    "limits": limits_table,
    "settings": settings_table,
    "message_options": message_options_table,
    "message_members": lambda: members_table(Message),
    "client_members": lambda: members_table(Client),
    "consumer_members": lambda: members_table(Consumer),
    "producer_members": lambda: members_table(TransactionProducer),
    "queue_routes": queue_routes_table,
    "audit": audit_table,
    "situations": situations_table,
    "audit_options": lambda: terms_table(AUDIT_OPTIONS),
    "location_options": lambda: options_table(PARAMETERS),
    "mysql_parameters": lambda: terms_table(MYSQL_PARAMETERS),
    "source_options": lambda: options_table(SOURCE_OPTIONS),
    "sink_options": lambda: options_table(SINK_OPTIONS),
    "source_columns": source_columns_table,
    "failpoints": failpoints_list,
    "clients": clients_table,
    "shared": shared_table,
    "rocketmq_clients": rocketmq_clients_table,
}


def renewed(page: str) -> str:
    """Return the page with every generated block as the code now has it."""
    return _BLOCK.sub(lambda match: match[1] + GENERATORS[match[2]]() + match[3], page)


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name those that are out of date.

    Returns 1 when there are any.
    """
    stale = []
    for path in sorted(REFERENCE.glob("*.md")):
        page = path.read_text()
        new = renewed(page)
        if new != page:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(new)
    for name in stale:
        print(f"{'out of date' if '--check' in arguments else 'written'}: docs/reference/{name}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
