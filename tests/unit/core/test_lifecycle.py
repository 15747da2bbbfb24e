"""The lifecycle table is the one of docs/reference/lifecycle.md.

Its shape alone holds I1, I3, I5 and I7.
"""

from __future__ import annotations

import dis
import sys
from types import FrameType

import pytest

from twophase.core.lifecycle import FINAL, STORED, TRANSITIONS, Action, Event, ReplyKind, State, transition

from .table import expected

ALL = [(state, event) for state in State for event in Event]
_STORING = {Action.INSERT, Action.DECIDE_SUBMIT, Action.FINISH, Action.CHECK_BACK_FIRST}


@pytest.mark.parametrize(("state", "event"), ALL, ids=lambda one: one.name.lower())
def test_each_cell_is_the_one_of_the_design(state: State, event: Event) -> None:
    assert transition(state, event) == expected()[state, event]


def test_the_table_is_total_and_has_nothing_more() -> None:
    assert set(TRANSITIONS) == set(ALL) == set(expected())


def test_final_states_are_those_that_nothing_leaves() -> None:
    left = {state for state, event in ALL if transition(state, event).next_state is not state}

    assert State.PREPARED in left
    assert not FINAL & left
    assert {State.PREPARED, State.SUBMITTED} | FINAL == STORED


def test_a_forgotten_gid_gets_no_second_life() -> None:
    assert {transition(State.FORGOTTEN, event).next_state for event in Event} == {State.FORGOTTEN}


def test_only_submit_and_a_committed_verdict_lead_to_branch_calls() -> None:
    leading = {event for state, event in ALL if State.SUBMITTED is transition(state, event).next_state is not state}

    assert leading == {Event.SUBMIT, Event.SUBMIT_OTHER, Event.CHECK_COMMITTED}


def test_only_a_verdict_leads_to_failed() -> None:
    leading = {event for state, event in ALL if State.FAILED is transition(state, event).next_state is not state}

    assert leading == {Event.ABORT, Event.CHECK_ROLLED_BACK, Event.FORCE_STOP}


def test_from_submitted_only_the_operator_leads_to_failed() -> None:
    leading = {event for event in Event if transition(State.SUBMITTED, event).next_state is State.FAILED}

    assert leading == {Event.FORCE_STOP}


def test_a_state_changes_exactly_when_something_is_stored() -> None:
    for state, event in ALL:
        step = transition(state, event)
        assert (step.next_state is not state) == (step.action in _STORING), (state, event)


def test_nothing_that_is_refused_changes_a_state() -> None:
    refused = [(state, event) for state, event in ALL if transition(state, event).reply is not ReplyKind.OK]

    assert refused
    assert all(transition(state, event).next_state is state for state, event in refused)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.FAILED, Event.SUBMIT),
        (State.FAILED, Event.SUBMIT_OTHER),
        (State.FAILED, Event.CHECK_COMMITTED),
        (State.SUBMITTED, Event.ABORT),
        (State.SUCCEEDED, Event.ABORT),
        (State.SUBMITTED, Event.CHECK_ROLLED_BACK),
        (State.SUCCEEDED, Event.CHECK_ROLLED_BACK),
    ],
    ids=lambda one: one.name.lower(),
)
def test_the_contrary_of_a_decision_is_recorded_as_an_incident(state: State, event: Event) -> None:
    assert transition(state, event).action is Action.INCIDENT


def test_a_lookup_is_a_few_steps_and_runs_no_other_python() -> None:
    """The cost is counted in calls and instructions.

    A time would measure the machine, its other work, and a tracer.
    """
    called: list[str] = []

    def hear(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    sys.setprofile(hear)
    try:
        transition(State.PREPARED, Event.SUBMIT)
    finally:
        sys.setprofile(None)

    assert called == ["transition"], "neither a key's hash nor its comparison is Python"
    assert len(list(dis.get_instructions(transition))) < 12


def test_a_state_prints_as_its_word_and_is_stored_as_its_number() -> None:
    assert f"{State.SUBMITTED}" == "submitted"
    assert int(State.SUBMITTED) == 3
