"""`prepare-many` and `submit-many`: each message has an outcome of its own.

A submit of gids begins nothing.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.support.recording_coordinator import RecordingCoordinator
from twophase.core.lifecycle import State
from twophase.testing import InProcessCoordinator


@pytest.fixture
def coordinator() -> Iterator[InProcessCoordinator]:
    with InProcessCoordinator() as coordinator:
        yield coordinator


def ask(coordinator: InProcessCoordinator, what: str, body: Any) -> tuple[int, list[tuple[str, str]]]:
    """Return the status, and code and state of each message.

    For a refusal, return its status, code and message.
    """
    request = urllib.request.Request(f"{coordinator.url}/api/twophase/{what}-many", msgspec.json.encode(body))
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            found = msgspec.json.decode(answer.read())["results"]
            return answer.status, [(one.get("code", ""), one.get("state", "")) for one in found]
    except urllib.error.HTTPError as error:
        with error:
            said = msgspec.json.decode(error.read())
        assert said["remedy"]
        return error.code, [(said["code"], said["message"])]


def message(gid: str, payload: str = "{}", **fields: Any) -> dict[str, Any]:
    steps = [{"action": "http://127.0.0.1:9/in"}]
    return {
        "gid": gid,
        "trans_type": "msg",
        "steps": steps,
        "payloads": [payload],
        "query_prepared": "http://127.0.0.1:9/check",
        "explicit_verdict": True,
        **fields,
    }


def test_each_message_has_its_own_outcome(coordinator: InProcessCoordinator) -> None:
    assert ask(coordinator, "prepare", {"messages": [message("a"), message("b")]}) == (200, [("", ""), ("", "")])
    again = [message("a"), message("b", '{"other":1}'), message("c", trans_type="saga"), message("d", "x" * 1_100_000)]

    status, outcomes = ask(coordinator, "prepare", {"messages": again})

    assert status == 200
    assert outcomes == [("", ""), ("TP-2002", "prepared"), ("TP-1002", ""), ("TP-1001", "")]


def test_a_submit_of_gids_begins_nothing(coordinator: InProcessCoordinator) -> None:
    ask(coordinator, "prepare", {"messages": [message("a"), message("b")]})

    assert ask(coordinator, "submit", {"gids": ["a", "never"]}) == (200, [("", ""), ("TP-2004", "")])
    assert ask(coordinator, "submit", {"gids": ["a"]}) == (200, [("", "")])

    assert ask(coordinator, "prepare", {"messages": [message("a")]}) == (200, [("TP-2001", "submitted")])
    found = coordinator.query("a")
    assert found is not None
    assert found.state is State.SUBMITTED
    assert coordinator.query("never") is None


def test_an_open_message_is_submitted_with_its_branches_only(coordinator: InProcessCoordinator) -> None:
    """Its producer may have added some in its transaction, which a gid does not name."""
    ask(coordinator, "prepare", {"messages": [message("a", open=True)]})
    late = message("a", steps=[{"action": "http://127.0.0.1:9/in"}] * 2, payloads=["{}", "{}"])

    assert ask(coordinator, "submit", {"gids": ["a"]}) == (200, [("TP-2002", "prepared")])
    assert ask(coordinator, "submit", {"messages": [message("a", steps=[], payloads=[])]})[1] == [
        ("TP-2002", "prepared")
    ]

    assert ask(coordinator, "submit", {"messages": [late]}) == (200, [("", "")])
    assert ask(coordinator, "submit", {"gids": ["a"]}) == (200, [("", "")]), "a repetition"


def test_a_submit_of_what_failed_is_reported(coordinator: InProcessCoordinator) -> None:
    ask(coordinator, "prepare", {"messages": [message("a")]})
    abort = urllib.request.Request(f"{coordinator.url}/api/dtmsvr/abort", b'{"gid":"a","trans_type":"msg"}')
    urllib.request.urlopen(abort, timeout=20).close()

    assert ask(coordinator, "submit", {"gids": ["a"]}) == (200, [("TP-2003", "failed")])
    assert ask(coordinator, "prepare", {"messages": [message("a")]}) == (200, [("TP-2001", "failed")])


def test_a_submit_of_whole_messages_begins_them(coordinator: InProcessCoordinator) -> None:
    ask(coordinator, "prepare", {"messages": [message("a"), message("b"), message("failed")]})
    abort = urllib.request.Request(f"{coordinator.url}/api/dtmsvr/abort", b'{"gid":"failed","trans_type":"msg"}')
    urllib.request.urlopen(abort, timeout=20).close()
    asked = [
        message("a"),
        message("b", '{"other":1}'),
        message("failed"),
        message("new"),
        message("w", wait_result=True),
    ]

    status, outcomes = ask(coordinator, "submit", {"messages": asked})

    assert status == 200
    assert outcomes == [("", ""), ("TP-2002", "prepared"), ("TP-2003", "failed"), ("", ""), ("TP-1000", "")]
    states = {gid: found.state for gid in ("a", "b", "new", "w") if (found := coordinator.query(gid)) is not None}
    assert states == {"a": State.SUBMITTED, "b": State.PREPARED, "new": State.SUBMITTED}


def test_a_submit_of_whole_messages_may_be_repeated_after_their_delivery(coordinator: InProcessCoordinator) -> None:
    with RecordingCoordinator().running() as service:
        asked = {"messages": [message("a", steps=[{"action": f"{service.url}/in"}])]}
        assert ask(coordinator, "submit", asked) == (200, [("", "")])
        assert coordinator.wait_final("a") is State.SUCCEEDED
        assert ask(coordinator, "submit", asked) == (200, [("", "")])
        asked["messages"][0]["payloads"] = ['{"other":1}']
        assert ask(coordinator, "submit", asked) == (200, [("TP-2002", "succeed")])


@pytest.mark.parametrize(
    ("what", "body", "named"),
    [
        ("prepare", {}, "missing required field `messages`"),
        ("prepare", {"messages": [message("b"), message("a"), message("a")]}, "messages: 'a' occurs twice"),
        ("prepare", {"messages": [message("a") | {"gid": None}] * 2}, "messages: a missing gid occurs twice"),
        (
            "prepare",
            {"messages": [message(str(number)) for number in range(501)]},
            "messages: there are 501, at most 500",
        ),
        ("prepare", {"messages": [message("a"), {"gid": 1}]}, "$.messages[1].gid"),
        ("submit", {"gids": [str(number) for number in range(501)]}, "gids: there are 501, at most 500"),
        ("submit", {"gids": list(map(str, range(200_001)))}, "values of a request is 200001 values or more"),
        ("prepare", {"messages": [{"steps": [{}] * 200_002}]}, "values of a request is 200001 values or more"),
        ("submit", {"gids": ["a", "a"]}, "gids: 'a' occurs twice"),
        ("submit", {"gids": ["a", ""]}, "gids[1]: gid is empty"),
        ("submit", {"gids": ["g" * 129]}, "gids[0]: gid is 129 bytes, at most 128"),
        ("submit", [], "Expected `object`, got `array`"),
        ("submit", {}, "`messages` or `gids` is needed, but not both"),
        ("submit", {"gids": ["a"], "messages": [message("b")]}, "`messages` or `gids` is needed, but not both"),
        ("submit", {"messages": [message("a"), message("a")]}, "messages: 'a' occurs twice"),
    ],
)
def test_what_cannot_be_read_is_refused_as_a_whole_by_name(
    coordinator: InProcessCoordinator, what: str, body: Any, named: str
) -> None:
    status, [(code, said)] = ask(coordinator, what, body)

    assert (status, code[:4]) == (400, "TP-1")
    assert named in said


def test_nothing_at_all_is_done_at_once(coordinator: InProcessCoordinator) -> None:
    assert ask(coordinator, "prepare", {"messages": []}) == (200, [])
    assert ask(coordinator, "submit", {"gids": []}) == (200, [])
