"""docs/reference/lifecycle.md says what the lifecycle table says."""

from __future__ import annotations

import pytest

from scripts import lifecycle
from twophase.core.lifecycle import Action, Event, ReplyKind, State, Transition, transition


def test_the_page_is_up_to_date() -> None:
    assert lifecycle.PAGE.read_text(encoding="utf-8") == lifecycle.page(), "run `python scripts/lifecycle.py`"


def test_the_check_passes_on_the_page_as_it_stands() -> None:
    assert lifecycle.main(["--check"]) == 0


def test_the_check_notices_a_changed_cell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def changed(state: State, event: Event) -> Transition:
        if (state, event) == (State.SUBMITTED, Event.ABORT):
            return Transition(State.FAILED, Action.FINISH, ReplyKind.OK)
        return transition(state, event)

    monkeypatch.setattr(lifecycle, "transition", changed)

    assert lifecycle.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err


def test_the_diagram_shows_every_change_of_state_and_nothing_else() -> None:
    lines = lifecycle.diagram().splitlines()

    changes = [(s, e) for s in State for e in Event if transition(s, e).next_state is not s]
    assert len(lines) == 1 + len(changes) + 2
    assert "    prepared --> submitted: check committed" in lines
    assert "    [*] --> prepared: prepare" in lines
    assert "    failed --> [*]" in lines
    assert not [line for line in lines if line.strip().startswith(("succeeded --> ", "failed --> ")) and ":" in line]
