"""The situations in which the tests drive RocketMQ's official clients.

`docs/reference/rocketmq-clients.md` takes its tables from here (`make docs`), and a test compares: each situation has
tests that drive every client, and the page claims what they do and nothing else.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.clients.rocketmq.languages import LANGUAGES

NAMES: Final = {"python": "Python", "java": "Java", "node": "Node.js", "go": "Go"}
"""The languages as people write them, in the order of the columns."""
_HERE: Final = Path(__file__).parent
_FIXTURES: Final = frozenset({"command", "start", "proxied"})
"""The fixtures by which a test drives a client of every language."""


class Situation(msgspec.Struct, frozen=True):
    """A situation, and the tests that drive clients in it.

    Arguments:
        tests: as `file::name`, without `test_` and `.py`.
        notes: by language, what a client cannot do itself, and what is tested instead.
    """

    title: str
    tests: tuple[str, ...]
    notes: Mapping[str, str] = {}


_SILENT: Final = "says nothing, and is asked again"
_ONLY_LOGS: Final = "refused, which the client only logs"

SITUATIONS: Final = (
    Situation("happy path", ("transactions::what_is_committed_arrives_and_what_is_rolled_back_does_not",)),
    Situation(
        "rollback",
        (
            "transactions::what_is_committed_arrives_and_what_is_rolled_back_does_not",
            "transactions::an_orphan_is_rolled_back_by_a_check",
        ),
    ),
    Situation("orphan, committed by another instance", ("transactions::an_orphan_is_committed_by_another_instance",)),
    Situation(
        "unknown, repeated",
        ("transactions::a_producer_that_does_not_know_is_asked_again",),
        {"java": _SILENT, "node": _SILENT, "go": _SILENT},
    ),
    Situation(
        "producer away for longer than 15 intervals, and back",
        ("lost_and_late::half_messages_wait_for_a_producer_that_is_away_for_longer_than_all_checks",),
    ),
    Situation(
        "server `kill -9` and restart",
        (
            "restart::what_was_committed_or_waits_survives_kill_9",
            "restart::a_push_consumer_goes_on_after_kill_9_and_gets_nothing_again",
            "restart::a_delayed_message_survives_kill_9_and_comes_once",
            "restart::a_producer_is_asked_again_after_a_restart",
        ),
        {"go": "all but the question after the restart: the client notices the broken stream after up to five minutes"},
    ),
    Situation(
        "half message sent twice",
        (
            "lost_and_late::a_half_message_that_comes_twice_is_one_message",
            "lost_and_late::a_half_message_whose_answer_is_lost_is_committed_once",
            "lost_and_late::a_message_whose_answer_is_lost_is_sent_again_and_comes_once",
        ),
        {"node": "a half message by a proxy, a normal one by the client"},
    ),
    Situation("commit after a check", ("transactions::a_commit_after_a_check_delivers_once",)),
    Situation(
        "check answered after the commit",
        ("lost_and_late::a_check_that_is_answered_after_the_commit_delivers_nothing_more",),
    ),
    Situation(
        "contrary decision",
        ("transactions::a_repeated_commit_is_accepted_and_a_contrary_decision_refused",),
        {"go": _ONLY_LOGS},
    ),
    Situation("stale receipt", ("consumers::a_receipt_from_before_a_redelivery_counts_no_more",)),
    Situation("dead letter", ("consumers::a_message_that_keeps_failing_becomes_a_dead_letter",)),
    Situation(
        "FIFO",
        (
            "consumers::messages_of_one_group_are_consumed_in_order",
            "several_queues::messages_of_each_message_group_stay_in_order",
        ),
    ),
    Situation("tags", ("consumers::a_consumer_gets_the_tags_that_it_wants",)),
    Situation("delay", ("consumers::a_delayed_message_arrives_when_it_is_due",)),
    Situation(
        "recall",
        ("consumers::a_delayed_message_is_taken_back", "consumers::a_delayed_message_is_stopped_by_an_operator"),
        {"go": "by an operator: the client has no recall"},
    ),
)


def languages_of(test: str) -> frozenset[str]:
    """Return the languages whose client a test drives.

    Raises:
        AttributeError, ModuleNotFoundError: there is no such test.
    """
    file, _, name = test.partition("::")
    function: Callable[..., Any] = getattr(importlib.import_module(f"{__package__}.test_{file}"), f"test_{name}")
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize" and mark.args[0] == "command":
            return frozenset(mark.args[1])
    return frozenset(LANGUAGES) if _FIXTURES & set(inspect.signature(function).parameters) else frozenset()


def driven(situation: Situation) -> frozenset[str]:
    """Return the languages whose client some test of a situation drives."""
    return frozenset[str]().union(*map(languages_of, situation.tests))


def versions_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and the rows of the table of clients."""
    node = json.loads((_HERE / "node" / "package.json").read_text())["dependencies"]
    (package,) = node
    _, jar = (_HERE / "java" / "client.sha256").read_text().split()
    java, java_version = jar.removesuffix(".jar").rsplit("-", 1)
    module = re.search(r"^require (\S*rocketmq\S*) v(\S+)$", (_HERE / "go" / "go.mod").read_text(), re.MULTILINE)
    assert module is not None, "go.mod names the client"
    found = {
        "python": ("rocketmq-python-client", version("rocketmq-python-client")),
        "java": (f"org.apache.rocketmq:{java}", java_version),
        "node": (package, node[package]),
        "go": module.groups(),
    }
    return ("Language", "Package", "Version"), [
        (name, f"`{found[key][0]}`", found[key][1]) for key, name in NAMES.items()
    ]


def situations_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and the rows of the table of situations."""

    def cells(situation: Situation) -> list[str]:
        those = driven(situation)
        return [situation.notes.get(key, "yes") if key in those else "–" for key in NAMES]

    rows = [(one.title, *cells(one), ", ".join(map(_shown, one.tests))) for one in SITUATIONS]
    return ("Situation", *NAMES.values(), "Tests"), rows


def _shown(test: str) -> str:
    file, _, name = test.partition("::")
    return f"`test_{file}.py::test_{name}`"
