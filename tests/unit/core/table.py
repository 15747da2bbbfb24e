"""The lifecycle table, written down a second time, by hand.

A changed cell must be changed twice; docs/reference/lifecycle.md shows it to people.
"""

from __future__ import annotations

from twophase.core.lifecycle import Action, Event, ReplyKind, State, Transition

COLUMNS = ("absent", "forgotten", "prepared", "submitted", "succeeded", "failed")

EXPECTED = """
prepare          | insert P | cannot_tell| -                 | conflict         | conflict         | conflict
prepare_other    | insert P | cannot_tell| content_conflict  | conflict         | conflict         | conflict
submit           | insert S | cannot_tell| decide_submit S   | -                | conflict         | incident conflict
submit_other     | insert S | cannot_tell| content_conflict  | content_conflict | content_conflict | incident conflict
abort            | not_found| not_found  | finish F          | incident conflict| incident conflict| -
check_committed  | -        | -          | decide_submit S   | -                | -                | incident
check_rolled_back| -        | -          | finish F          | incident         | incident         | -
check_undecided  | -        | -          | reschedule        | -                | -                | -
all_succeeded    | -        | -          | incident          | finish D         | -                | record
branch_not_done  | -        | -          | incident          | reschedule       | record           | record
force_stop       | not_found| not_found  | check_back_first F| finish F         | conflict         | -
park             | not_found| not_found  | park              | park             | conflict         | conflict
redrive          | not_found| not_found  | redrive           | redrive          | conflict         | conflict
hurry            | not_found| not_found  | hurry             | hurry            | -                | -
redirect         | not_found| not_found  | redirect          | redirect         | conflict         | conflict
"""
"""The table: a row is an event, a column a state.

A cell holds the action where there is one, the next state where it changes (P prepared, S submitted, D succeeded, F
failed), and the reply where it is not ok; - stands for none of them.
"""

_STATES = {"P": State.PREPARED, "S": State.SUBMITTED, "D": State.SUCCEEDED, "F": State.FAILED}


def expected() -> dict[tuple[State, Event], Transition]:
    """Return the table above as the code's own types."""
    cells: dict[tuple[State, Event], Transition] = {}
    for line in EXPECTED.strip().splitlines():
        name, *written = (part.strip() for part in line.split("|"))
        assert len(written) == len(COLUMNS), line
        for column, cell in zip(COLUMNS, written, strict=True):
            state = State[column.upper()]
            cells[state, Event[name.upper()]] = _cell(state, cell.split())
    return cells


def _cell(state: State, words: list[str]) -> Transition:
    action, next_state, reply = Action.NOTHING, state, ReplyKind.OK
    for word in words:
        if word in _STATES:
            next_state = _STATES[word]
        elif word.upper() in ReplyKind.__members__:
            reply = ReplyKind[word.upper()]
        elif word != "-":
            action = Action[word.upper()]
    return Transition(next_state, action, reply)
