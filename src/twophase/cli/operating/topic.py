"""`twophase topic …`: show and change the subscribers of `topic://name`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from twophase.cli.console import echo
from twophase.cli.operating.http_api import DEFAULT_SERVER, Api, JsonOption, ServerOption, path_of, print_json
from twophase.cli.operating.plain_table import print_table
from twophase.core.address import TOPIC_PREFIX

app = typer.Typer(
    name="topic",
    help="Topics: show and change the subscribers of topic://NAME.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

NameArgument = Annotated[str, typer.Argument(help="The topic's name, without topic://.")]
UrlArgument = Annotated[str, typer.Argument(help="The subscriber's address.")]


class Subscriber(msgspec.Struct):
    """One address of a topic."""

    url: str
    remark: str = ""


class Topic(msgspec.Struct):
    """A topic as the server shows it."""

    name: str
    version: int
    created: str
    changed: str
    subscribers: list[Subscriber]


class Topics(msgspec.Struct):
    """All topics."""

    revision: int
    topics: list[Topic]


class _Done(msgspec.Struct):
    dtm_result: str


_LIST_EXAMPLES: Final = """\b
Examples:
  twophase topic list
  twophase topic list --json | jq -r '.topics[].name'
  TWOPHASE_URL=http://pay:36789 twophase topic list"""


@app.command("list", epilog=_LIST_EXAMPLES)
def list_topics(server: ServerOption = DEFAULT_SERVER, *, json: JsonOption = False) -> None:
    """List all topics, with the number of their subscribers."""
    found = Api(server).get(path_of("topics"), Topics)
    if json:
        print_json(found)
        return
    if not found.topics:
        echo("There are no topics. The first subscriber creates one: twophase topic subscribe NAME URL")
        return
    rows = [("TOPIC", "SUBSCRIBERS", "VERSION", "CHANGED")]
    rows += [(topic.name, str(len(topic.subscribers)), str(topic.version), topic.changed) for topic in found.topics]
    print_table(rows)


_SHOW_EXAMPLES: Final = """\b
Examples:
  twophase topic show rates
  twophase topic show rates --json"""


@app.command(epilog=_SHOW_EXAMPLES)
def show(name: NameArgument, server: ServerOption = DEFAULT_SERVER, *, json: JsonOption = False) -> None:
    """Show a topic's subscribers, in the order in which they are called."""
    found = Api(server).get(path_of("topics", _name(name)), Topic)
    if json:
        print_json(found)
        return
    echo(f"topic://{found.name}, version {found.version}, changed {found.changed}")
    if not found.subscribers:
        echo("No subscribers: a message to it is refused. twophase topic subscribe NAME URL adds one.")
        return
    print_table([("URL", "REMARK"), *((subscriber.url, subscriber.remark) for subscriber in found.subscribers)])


_SUBSCRIBE_EXAMPLES: Final = """\b
Examples:
  twophase topic subscribe rates http://bank-b:8082/rates
  twophase topic subscribe rates grpc://bank-c:8083/bank.Bank/Rates --remark "bank C, since May"
  twophase topic subscribe rates http://bank-b:8082/rates --server http://pay:36789

Messages to the topic go to the new subscriber from now on, at every node within a second; messages that were
taken before do not."""


@app.command(epilog=_SUBSCRIBE_EXAMPLES)
def subscribe(
    name: NameArgument,
    url: UrlArgument,
    server: ServerOption = DEFAULT_SERVER,
    remark: Annotated[str, typer.Option(help="A note for other people.")] = "",
    *,
    json: JsonOption = False,
) -> None:
    """Add an address to a topic; the first one creates the topic."""
    name, api = _name(name), Api(server)
    api.post(path_of("topics", "subscribe"), {"topic": name, "url": url, "remark": remark}, _Done)
    _print_changed(api, name, json, f"subscribed to topic://{name}: {url}")


_UNSUBSCRIBE_EXAMPLES: Final = """\b
Examples:
  twophase topic unsubscribe rates http://bank-b:8082/rates

Messages accepted before still go to it. The topic remains, even without subscribers."""


@app.command(epilog=_UNSUBSCRIBE_EXAMPLES)
def unsubscribe(
    name: NameArgument, url: UrlArgument, server: ServerOption = DEFAULT_SERVER, *, json: JsonOption = False
) -> None:
    """Remove an address from a topic."""
    name, api = _name(name), Api(server)
    api.post(path_of("topics", "unsubscribe"), {"topic": name, "url": url}, _Done)
    _print_changed(api, name, json, f"unsubscribed from topic://{name}: {url}")


_DELETE_EXAMPLES: Final = """\b
Examples:
  twophase topic delete rates

Messages accepted before still go to its subscribers; new ones are refused."""


@app.command(epilog=_DELETE_EXAMPLES)
def delete(name: NameArgument, server: ServerOption = DEFAULT_SERVER, *, json: JsonOption = False) -> None:
    """Remove a topic with all its subscribers."""
    done = Api(server).delete(path_of("topics", _name(name)), _Done)
    if json:
        print_json(done)
        return
    echo(f"deleted topic://{_name(name)}")


def _name(name: str) -> str:
    """Return the name of a topic that is given by name or by address.

    People copy the address.

    >>> _name("topic://rates"), _name("rates")
    ('rates', 'rates')
    """
    return name.removeprefix(TOPIC_PREFIX)


def _print_changed(api: Api, name: str, json: bool, text: str) -> None:  # noqa: FBT001 -- the command's option
    if json:
        print_json(api.get(path_of("topics", name), Topic))
    else:
        echo(text)
