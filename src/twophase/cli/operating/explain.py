"""`twophase explain GID`: the situation of one message in words.

It names the command that unblocks the message.
"""

from __future__ import annotations

import shlex
from typing import Annotated, Final

import typer

from twophase.cli.console import echo
from twophase.cli.operating.explanation import Explanation, explain
from twophase.cli.operating.http_api import DEFAULT_SERVER, Api, JsonOption, ServerOption, path_of, print_json
from twophase.cli.operating.queue_explanation import concerns_queues, with_queues
from twophase.core.operating import OneMessage
from twophase.core.queue_operating import QueueSituation

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_EXAMPLES: Final = """\b
Examples:
  twophase explain order-17
  twophase explain order-17 --server http://pay:36789
  twophase explain order-17 --json | jq -r '.remedies[].command'"""


@app.command(name="explain", epilog=_EXAMPLES)
def explain_one(
    gid: Annotated[str, typer.Argument(help="The message's gid.")],
    server: ServerOption = DEFAULT_SERVER,
    *,
    as_json: JsonOption = False,
) -> None:
    """Explain the situation of a message, and what to do.

    What happened to it, who decided, what blocks it, what comes next.
    """
    api = Api(server)
    found = api.get(path_of("messages", gid), OneMessage)
    explanation = explain(found.message, found.now_ms)
    if concerns_queues(found.message):
        situation = api.get(path_of("places", gid), QueueSituation)
        explanation = with_queues(explanation, found.message, situation)
    if as_json:
        print_json(explanation)
    else:
        echo(text_of(explanation, server))


def text_of(explanation: Explanation, server: str = DEFAULT_SERVER) -> str:
    """Return an explanation for a terminal.

    Commands name the server where it is not the default one.
    """
    option = "" if server == DEFAULT_SERVER else f" --server {shlex.quote(server)}"
    parts = [explanation.headline]
    for title, sentences in (
        ("What happened", explanation.happened),
        ("What blocks it", explanation.blocked or ["Nothing."]),
        ("What comes next", explanation.then),
    ):
        parts.append("\n".join([title, *(f"  {sentence}" for sentence in sentences)]))
    if explanation.remedies:
        # Behind the act: what follows `--` is a gid.
        acts = [(*one.command.split(" ", 3), one.when) for one in explanation.remedies]
        lines = [f"  {name} {group} {act}{option} {rest}\n      {when}" for name, group, act, rest, when in acts]
        parts.append("\n".join(["What to do", *lines]))
    return "\n\n".join(parts)
