"""Every command is documented, and every documented command exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from prometheus_client.parser import text_string_to_metric_families

from tests.docs.pages import ROOT, fences, pages
from twophase.cli.app import app
from twophase.coordinator.gauges import Gauges, KeptGauge, QueueGauge
from twophase.server.metrics import Metrics, Snapshot
from twophase.stores.base import Overview, Purged

_PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
_MAKEFILE = (ROOT / "Makefile").read_text()


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a group of commands.

    A leaf is recognised by its shape, because typer has classes of click's in several modules.
    """
    if not hasattr(group, "list_commands"):
        yield path, group
        return
    for name in group.list_commands(None):
        yield from _commands(group.get_command(None, name), f"{path} {name}")


COMMANDS = dict(_commands(typer.main.get_command(app), "twophase"))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_is_documented_and_helpful(name: str) -> None:
    assert f"`{name}" in _PAGE
    assert COMMANDS[name].help


def test_documented_commands_exist() -> None:
    code = re.compile(r"^(twophase(?: [a-z][a-z-]*)+)", re.MULTILINE)
    inline = re.compile(r"`(twophase(?: [a-z][a-z-]*)+)")
    named: set[str] = set()
    for page in pages():
        text = page.read_text()
        named.update(inline.findall(text), *(code.findall(block) for block in fences(text)))
    unknown = {name for name in named if not any(f"{name} ".startswith(f"{known} ") for known in COMMANDS)}
    groups = {name.rpartition(" ")[0] for name in COMMANDS} - {"twophase"}
    assert unknown - groups == set()


def test_every_make_target_explains_itself_and_documented_ones_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", _MAKEFILE, re.MULTILINE)) - {"ready"}
    explained = set(re.findall(r"^([a-z]+):.*## \S", _MAKEFILE, re.MULTILINE))
    named = {name for page in pages() for name in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert targets == explained
    assert named - targets == set()


def test_every_metric_is_documented() -> None:
    metrics = Metrics()
    metrics.branch_answered("succeeded", "http://b", 0.1)
    metrics.check_back_answered("committed", 0.1)
    metrics.flush_failed("TP-4004")
    metrics.purged(Purged(1, 0, more=False, horizon_ms=1, oldest_ms=1))
    numbers: dict[str, Any] = dict.fromkeys(set(Gauges.__struct_fields__) - {"queues", "halves", "kept"}, 0)
    kept = KeptGauge("orders", 1, 1, 1, {"group": 1})
    gauges = Gauges(**numbers, queues=(QueueGauge("billing", "orders", 1, 1),), kept=(kept,))
    overview = Overview(1, 1, 0, 1, 1)
    text = metrics.render(Snapshot(overview, gauges, 0, 2, ready=True)).decode()
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(text)
        if family.name.startswith("twophase_")
    }
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(twophase_\w+)`", page, re.MULTILINE))
    assert shown == documented
