"""`twophase queues …`: topics of queues, their messages, and who reads them."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich import filesize

from twophase.cli.console import echo
from twophase.cli.operating.acting import ByOption, YesOption, confirm, me
from twophase.cli.operating.explanation import span
from twophase.cli.operating.http_api import DEFAULT_SERVER, Api, JsonOption, ServerOption, path_of, print_json
from twophase.cli.operating.plain_table import print_table
from twophase.core.queue_message import QUEUE_PREFIX
from twophase.core.queue_operating import (
    Defined,
    DefineGroup,
    DefineTopic,
    ManyTopics,
    OneTopic,
    Removed,
    RemoveRequest,
    ShownLag,
    ShownTopic,
)

app = typer.Typer(
    name="queues",
    help="Topics of queues: their messages, who reads them, and their settings. For topic://NAME see twophase topic.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

NameArgument = Annotated[str, typer.Argument(help="The topic's name; with a namespace, namespace/topic.")]
WhyOption = Annotated[str, typer.Option("--reason", help="Why you do it; recorded in the audit log.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")]

_LIST_EXAMPLES: Final = """\b
Examples:
  twophase queues list
  twophase queues list --json | jq '.topics[] | {name, lag: ([.lags[].lag] | add)}'"""


@app.command("list", epilog=_LIST_EXAMPLES)
def list_topics(server: ServerOption = DEFAULT_SERVER, *, json: JsonOption = False) -> None:
    """List topics of queues, with their messages and what groups have not done."""
    pages = list(Api(server).pages(path_of("queue-topics"), ManyTopics))
    topics, now_ms = [topic for page in pages for topic in page.topics], pages[-1].now_ms
    if json:
        print_json(ManyTopics(topics, "", now_ms))
        return
    if not topics:
        echo("There are no topics of queues. The first message creates one, and so does: twophase queues create NAME")
        return
    rows: list[tuple[str, ...]] = [("TOPIC", "QUEUES", "MESSAGES", "BYTES", "BEYOND", "OLDEST", "GROUPS", "NOT DONE")]
    rows += [_row(topic, now_ms) for topic in topics]
    print_table(rows)


def _row(topic: ShownTopic, now_ms: int) -> tuple[str, ...]:
    messages = sum(part.end - part.first for part in topic.parts)
    oldest = [part.oldest_ms for part in topic.parts if part.oldest_ms]
    groups = {lag.group for lag in topic.lags}
    return (
        topic.name,
        str(topic.queues),
        str(messages),
        filesize.decimal(topic.bytes),
        filesize.decimal(topic.over_bytes) if topic.over_bytes else "-",
        span(now_ms - min(oldest)) if oldest else "-",
        str(len(groups)),
        str(sum(lag.lag for lag in topic.lags)),
    )


_SHOW_EXAMPLES: Final = """\b
Examples:
  twophase queues show orders
  twophase queues show shop/orders --json"""


@app.command(epilog=_SHOW_EXAMPLES)
def show(name: NameArgument, server: ServerOption = DEFAULT_SERVER, *, json: JsonOption = False) -> None:
    """Show a topic: its settings, its queues, and where each group stands."""
    found = Api(server).get(path_of("queue-topics", _name(name)), OneTopic)
    if json:
        print_json(found)
        return
    topic = found.topic
    kept = span(topic.retention_ms) if topic.retention_ms else "as long as history"
    if topic.retention_bytes:
        kept += f", beyond {filesize.decimal(topic.retention_bytes)} as long as history"
    made = "" if topic.is_defined else " Nothing has made it: these are the default settings."
    echo(f"queue://{topic.name}: {topic.queues} queues, takes {', '.join(topic.kinds)}, keeps messages {kept}.{made}")
    if topic.why_over:
        beyond = f"{filesize.decimal(topic.over_bytes)} of its {filesize.decimal(topic.bytes)}"
        echo(f"{beyond} stay beyond that bound: {topic.why_over}")
    elif topic.bytes:
        echo(f"Its messages have about {filesize.decimal(topic.bytes)}.")
    rows = [("QUEUE", "FIRST", "NEXT", "MESSAGES", "OLDEST")]
    rows += [
        (
            str(part.queue),
            str(part.first),
            str(part.end),
            str(part.end - part.first),
            span(found.now_ms - part.oldest_ms) if part.oldest_ms else "-",
        )
        for part in topic.parts
    ]
    if topic.parts:
        print_table(rows)
    if topic.lags:
        print_table(lag_rows(topic.lags, found.now_ms))
    else:
        echo("No group reads it.")


def lag_rows(lags: list[ShownLag], now_ms: int) -> list[tuple[str, ...]]:
    """Return a table of positions, with its heads.

    >>> lag_rows([ShownLag("billing", "orders", 0, 3, 9, 6, 1_000, 2, 1, 0)], 61_000)[1]
    ('billing', 'orders', '0', '3 of 9', '6', '1 min', '2', '1', 'never')
    """
    heads = ("GROUP", "TOPIC", "QUEUE", "DONE UP TO", "NOT DONE", "OLDEST", "IN FLIGHT", "BEHIND", "ASKED")
    return [
        heads,
        *(
            (
                lag.group,
                lag.topic,
                str(lag.queue),
                f"{lag.next_number} of {lag.end}",
                str(lag.lag),
                span(now_ms - lag.oldest_ms) if lag.oldest_ms else "-",
                str(lag.in_flight),
                str(lag.behind),
                f"{span(now_ms - lag.asked_ms)} ago" if lag.asked_ms else "never",
            )
            for lag in lags
        ),
    ]


_CREATE_EXAMPLES: Final = """\b
Examples:
  twophase queues create orders
  twophase queues create orders --queues 4 --kinds normal,transaction
  twophase queues create shop/orders --retention-days 90 --dry-run
  twophase queues create clicks --retention-days 60 --retention-bytes 50000000000"""
_CHANGE_EXAMPLES: Final = """\b
Examples:
  twophase queues change orders --queues 8
  twophase queues change orders --kinds normal,fifo --reason "in order from now on"
  twophase queues change orders --retention-days 0

The number of queues only grows. Messages that are in a queue stay there. Those of message groups go on to the queues
that the topic began with, so that none overtakes another; only messages without a message group go to the new ones."""
QueuesOption = Annotated[int | None, typer.Option("--queues", help="The number of its queues, 1 to 64.")]
KindsOption = Annotated[
    str | None, typer.Option("--kinds", help="The kinds that it takes: normal, fifo, delay, transaction.")
]
RetentionOption = Annotated[
    int | None,
    typer.Option("--retention-days", help="Keep its messages at least this many days; 0: as long as history."),
]
BytesOption = Annotated[
    int | None,
    typer.Option(
        "--retention-bytes",
        help="Beyond these bytes keep them as long as history only; 0: the server's queue_retention_bytes.",
    ),
]
_DAY_MS: Final = 24 * 3600 * 1000


@app.command(epilog=_CREATE_EXAMPLES)
def create(
    name: NameArgument,
    queues: QueuesOption = None,
    kinds: KindsOption = None,
    retention_days: RetentionOption = None,
    retention_bytes: BytesOption = None,
    reason: WhyOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Make a topic before its first use."""
    asked = DefineTopic(by or me(), reason, queues, _kinds(kinds), _ms(retention_days), retention_bytes, dry_run)
    define(server, path_of("queue-topics", _name(name), "define"), asked, json=json)


@app.command(epilog=_CHANGE_EXAMPLES)
def change(
    name: NameArgument,
    queues: QueuesOption = None,
    kinds: KindsOption = None,
    retention_days: RetentionOption = None,
    retention_bytes: BytesOption = None,
    reason: WhyOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Change the settings of a topic; those that are left out stay."""
    asked = DefineTopic(by or me(), reason, queues, _kinds(kinds), _ms(retention_days), retention_bytes, dry_run)
    Api(server).get(path_of("queue-topics", _name(name)), OneTopic)  # a misspelt name makes no topic
    define(server, path_of("queue-topics", _name(name), "define"), asked, json=json)


def define(server: str, path: str, asked: DefineTopic | DefineGroup, *, json: bool) -> None:
    """Make or change a topic or a group, and print what became of it."""
    done = Api(server).post(path, asked, Defined)
    if json:
        print_json(done)
    elif done.before == done.after:
        echo(f"{done.name}: it was so already: {done.after}")
    elif not done.before:
        echo(f"{done.name}: {'would be made' if asked.dry_run else 'made'}: {done.after}")
    else:
        echo(f"{done.name}: {'would be changed' if asked.dry_run else 'changed'} from {done.before} to {done.after}")


def _kinds(text: str | None) -> list[str] | None:
    return None if text is None else [kind.strip() for kind in text.split(",") if kind.strip()]


def _ms(days: int | None) -> int | None:
    return None if days is None else days * _DAY_MS


_REMOVE_EXAMPLES: Final = """\b
Examples:
  twophase queues remove orders --dry-run
  twophase queues remove orders --reason "replaced by orders-2"
  twophase queues remove orders --override --yes

Consumers must have stopped for a minute, and no message that is not final may go to it. With --override it is removed
although messages are not done. Their rows in history stay."""


@app.command(epilog=_REMOVE_EXAMPLES)
def remove(
    name: NameArgument,
    reason: WhyOption = "",
    by: ByOption = "",
    server: ServerOption = DEFAULT_SERVER,
    *,
    override: Annotated[bool, typer.Option("--override", help="Also messages that are not done.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Remove a topic with its messages, and what groups have done of it."""
    api, path = Api(server), path_of("queue-topics", _name(name), "remove")
    would = api.post(path, RemoveRequest(by or me(), reason, override, True), Removed)
    if dry_run:
        _print_removed(would, json, "would be removed")
        return
    if not yes and (would.messages or would.positions):
        confirm(f"Remove {would.name} with {would.messages} messages, of which {would.undone} are not done?")
    messages = 0
    while True:
        done = api.post(path, RemoveRequest(by or me(), reason, override), Removed)
        messages += done.messages
        if not done.more:
            break
    _print_removed(Removed(done.name, messages, would.undone, would.positions), json, "removed")


def _print_removed(done: Removed, json: bool, what: str) -> None:  # noqa: FBT001 -- the command's option
    if json:
        print_json(done)
        return
    echo(
        f"{done.name}: {what}, with {done.messages} messages, of which {done.undone} are not done, and the positions of"
        f" groups in {done.positions} queues"
    )


def _name(name: str) -> str:
    """Return the name of a topic that is given by name or by address.

    >>> _name("queue://shop/orders"), _name("orders")
    ('shop/orders', 'orders')
    """
    return name.removeprefix(QUEUE_PREFIX)
