"""Any sequence of events keeps I1, I3, I5 and I7, also repeated and reordered.

The events are applied through the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from twophase.core.lifecycle import FINAL, Action, Event, ReplyKind, State, transition

_COMMITS = frozenset({Event.SUBMIT, Event.SUBMIT_OTHER, Event.CHECK_COMMITTED})
_FAILS = frozenset({Event.ABORT, Event.CHECK_ROLLED_BACK, Event.FORCE_STOP})
_REQUESTS = (Event.PREPARE, Event.SUBMIT, Event.ABORT)
_WORDLESS = frozenset(Event) - _COMMITS - _FAILS
_OTHERS = st.sampled_from([event for event in Event if event is not Event.FORCE_STOP])


def play(events: Sequence[Event], start: State = State.ABSENT) -> State:
    """Return the state after those events."""
    state = start
    for event in events:
        state = transition(state, event).next_state
    return state


class AnySequence(RuleBasedStateMachine):
    """Events in any order.

    Beside the table's state stands what the promises allow to be true.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = State.ABSENT
        self.said: list[Event] = []
        self.decision: State | None = None

    def _happen(self, event: Event) -> None:
        before = self.state
        step = transition(before, event)
        self.state = step.next_state
        self.said.append(event)
        if self.state in (State.SUBMITTED, State.FAILED) and self.state is not before:
            assert self.decision is None or event is Event.FORCE_STOP, "I3: decided twice"
            self.decision = self.state
        assert (
            self.state is before
            or event not in _WORDLESS
            or event
            in (
                Event.PREPARE,
                Event.PREPARE_OTHER,
                Event.ALL_SUCCEEDED,
            )
        ), "I5: decided without anybody's word"

    @rule(event=_OTHERS)
    def something_happens(self, event: Event) -> None:
        self._happen(event)

    @rule()
    @precondition(lambda self: self.state not in FINAL)
    def an_operator_forces(self) -> None:
        self._happen(Event.FORCE_STOP)

    @rule(times=st.integers(2, 4))
    @precondition(lambda self: self.said)
    def the_last_event_is_repeated(self, times: int) -> None:
        event, before = self.said[-1], self.state
        for _ in range(times):
            step = transition(self.state, event)
            assert step.next_state is before, "I7: a repetition changed the state"
            assert step.action not in (Action.INSERT, Action.DECIDE_SUBMIT, Action.FINISH), "I7: stored again"

    @rule(event=st.sampled_from(_REQUESTS))
    def a_request_is_sent_twice(self, event: Event) -> None:
        first = transition(self.state, event).reply
        self._happen(event)
        assert transition(self.state, event).reply is first, "I7: answered differently"

    @invariant()
    def branches_are_called_only_after_a_word_that_commits(self) -> None:
        if self.state in (State.SUBMITTED, State.SUCCEEDED):
            assert _COMMITS & set(self.said), "I1: a ghost"

    @invariant()
    def failed_only_after_a_word_that_fails(self) -> None:
        if self.state is State.FAILED:
            assert _FAILS & set(self.said), "I5: failed by nobody"

    @invariant()
    def the_decision_stands(self) -> None:
        if self.decision is State.SUBMITTED:
            assert self.state in (State.SUBMITTED, State.SUCCEEDED), "I3: a decision was undone"
        elif self.decision is State.FAILED:
            assert self.state is State.FAILED, "I3: a decision was undone"


TestAnySequence = AnySequence.TestCase


@given(st.lists(st.sampled_from(sorted(_WORDLESS)), max_size=30))
def test_what_carries_no_verdict_never_decides(events: list[Event]) -> None:
    assert play(events) in (State.ABSENT, State.PREPARED)


@given(
    st.permutations([Event.PREPARE, Event.SUBMIT, Event.CHECK_COMMITTED, Event.CHECK_UNDECIDED, Event.PREPARE_OTHER]),
    st.lists(st.sampled_from([Event.PREPARE, Event.SUBMIT, Event.CHECK_COMMITTED, Event.CHECK_UNDECIDED])),
)
def test_the_words_of_a_committed_transaction_agree_in_any_order(order: list[Event], again: list[Event]) -> None:
    assert play([*order, *again]) is State.SUBMITTED


@given(
    st.permutations([Event.ABORT, Event.CHECK_ROLLED_BACK, Event.CHECK_UNDECIDED, Event.PREPARE]),
    st.lists(st.sampled_from([Event.ABORT, Event.CHECK_ROLLED_BACK, Event.CHECK_UNDECIDED, Event.PREPARE])),
)
def test_the_words_of_a_rolled_back_transaction_agree_in_any_order(order: list[Event], again: list[Event]) -> None:
    assert play([*order, *again], State.PREPARED) is State.FAILED


@given(st.lists(st.sampled_from(list(Event)), max_size=30), st.sampled_from(sorted(FINAL)))
def test_nothing_moves_a_final_message(events: list[Event], final: State) -> None:
    assert play(events, final) is final


@given(st.sampled_from(list(State)), st.sampled_from(list(Event)))
def test_an_acknowledged_event_that_comes_again_is_acknowledged_again(state: State, event: Event) -> None:
    first = transition(state, event)

    if first.reply is ReplyKind.OK and event not in (Event.PREPARE_OTHER, Event.SUBMIT_OTHER):
        assert transition(first.next_state, event).reply is ReplyKind.OK
