"""Commands of other distributions, by entry points of `twophase.commands`.

An entry point's name is the command's name, its object a `typer.Typer`. The command is imported when it is run, never
for a list of commands. One that cannot be imported ends with a line that says what to install; the others still work.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

import typer

GROUP: Final = "twophase.commands"


class Plugin(NamedTuple):
    """A command and its distribution; without `entry` it is not installed."""

    name: str
    distribution: str
    summary: str
    entry: EntryPoint | None = None


KNOWN: Final = (Plugin("spark", "twophase-spark", "Audit, archive, query and publish with Spark."),)
"""Commands of this repository's other distributions, installed or not."""


class PluginBroken(Exception):
    """A plug-in that cannot be run; the text says why and what to do."""


def plugins() -> dict[str, Plugin]:
    """Every plug-in by its name, the known ones first; imports none."""
    found = {plugin.name: plugin for plugin in KNOWN}
    for entry in entry_points(group=GROUP):
        known = found.get(entry.name)
        if known is None:
            found[entry.name] = _foreign(entry)
        elif known.entry is None:
            found[entry.name] = known._replace(entry=entry)
    return found


def load(plugin: Plugin) -> Any:
    """Import a plug-in's command.

    Raises:
        PluginBroken: it is not installed, or cannot be imported.
    """
    remedy = f"Run: pip install {plugin.distribution}"
    if plugin.entry is None:
        raise PluginBroken(f"the package {plugin.distribution} is not installed. {remedy}")
    try:
        command = typer.main.get_command(plugin.entry.load())
    except ModuleNotFoundError as error:
        raise PluginBroken(f"the package {error.name!r} is incomplete or missing. {remedy}") from error
    except Exception as error:  # a mistake of another package must not end in a traceback
        where = f"`python -c 'import {plugin.entry.module}'` shows where"
        text = " ".join(str(error).split())
        raise PluginBroken(
            f"{plugin.distribution} cannot be loaded: {type(error).__name__}: {text}; {where}. {remedy}"
        ) from error
    command.name = plugin.name
    return command


def _foreign(entry: EntryPoint) -> Plugin:
    distribution = entry.dist
    if distribution is None:
        return Plugin(entry.name, entry.module, "", entry)
    facts = distribution.metadata
    summary = facts["Summary"] if "Summary" in facts else ""  # noqa: SIM401 -- the type of `facts` has no `get`
    return Plugin(entry.name, distribution.name, summary, entry)
