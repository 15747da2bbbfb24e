"""Write docs/reference/lifecycle.md: the diagram and every cell of the table.

Without arguments it writes the page from the lifecycle table; `--check` only compares, and prints how to write it (a
test does that), so the page cannot disagree with the code. It looks at nothing but `twophase.core`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from twophase.core.lifecycle import STORED, Action, Event, ReplyKind, State, transition

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "lifecycle.md"

STATES: dict[State, str] = {
    State.ABSENT: "no message of that gid",
    State.FORGOTTEN: "no message of that gid, and the gid was born before the oldest history kept",
    State.PREPARED: "known, but not decided; branches are not called",
    State.SUBMITTED: "decided: the branches are called until all have succeeded",
    State.SUCCEEDED: "final: every branch has succeeded (dtm's wire spells it `succeed`)",
    State.FAILED: "final: no branch is called",
}
EVENTS: dict[Event, str] = {
    Event.PREPARE: "the producer prepares",
    Event.PREPARE_OTHER: "the same gid is prepared with other branches",
    Event.SUBMIT: "the producer submits",
    Event.SUBMIT_OTHER: "the same gid is submitted with other branches",
    Event.ABORT: "the producer aborts",
    Event.CHECK_COMMITTED: "the check-back answered: committed",
    Event.CHECK_ROLLED_BACK: "the check-back answered: rolled back",
    Event.CHECK_UNDECIDED: "the check-back answered: in progress or unknown, or not at all",
    Event.ALL_SUCCEEDED: "every branch has succeeded",
    Event.BRANCH_NOT_DONE: "a round of calls left branches open",
    Event.FORCE_STOP: "an operator stops the message",
    Event.PARK: "retries are stopped, the message is kept",
    Event.REDRIVE: "a parked message starts again",
    Event.HURRY: "an operator retries the message now",
    Event.REDIRECT: "an operator gives another address",
}
ACTIONS: dict[Action, str] = {
    Action.NOTHING: "",
    Action.INSERT: "stored",
    Action.DECIDE_SUBMIT: "the decision is stored¹, then the branches are called",
    Action.FINISH: "moved into history",
    Action.RESCHEDULE: "tried again later",
    Action.PARK: "marked as parked",
    Action.REDRIVE: "the mark is cleared",
    Action.CHECK_BACK_FIRST: "the producer is asked first; without a verdict only an operator's override fails it",
    Action.RECORD: "recorded",
    Action.INCIDENT: "**incident**",
    Action.HURRY: "tried now, but not before its time",
    Action.REDIRECT: "the address is stored and tried now, but not before its time",
}
REPLIES: dict[ReplyKind, str] = {
    ReplyKind.OK: "",
    ReplyKind.CONFLICT: "conflict",
    ReplyKind.CONTENT_CONFLICT: "content conflict",
    ReplyKind.NOT_FOUND: "not found",
    ReplyKind.CANNOT_TELL: "cannot tell",
}

_HEAD = """\
# The lifecycle of a message

<!-- Written by scripts/lifecycle.py from twophase/core/lifecycle.py. Do not edit: change the table, run the script. -->

One table decides what every request, verdict and result does to a message. The running coordinator reads it, the model
check in `tests/model` explores it, and this page is generated from it. Time is not an event: no message changes its
state because it is old.

```mermaid
{diagram}
```

## States

{states}

## Every event in every state

A cell names the next state if it changes, what is done, and the reply if it is not success. `–` means that nothing
changes, and that a repeated request is answered as success again. Everything stored is durable before the reply¹. A
*conflict* is dtm's 409 FAILURE. An *incident* contradicts a decision: it is recorded and counted, and changes nothing.

{table}

¹ A submit of a message that chose [check-back durability](wire.md#check-back-durability) is answered, and its branches
are called, before the decision is stored. The table then applies to the state in the node's memory; the stored state
stays prepared until the branches have succeeded, or one has failed.
"""


def diagram() -> str:
    """Return the transitions that change a state, as a mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for state in State:
        for event in Event:
            after = transition(state, event).next_state
            if after is not state:
                source = _name(state) if state in STORED else "[*]"
                lines.append(f"    {source} --> {_name(after)}: {_words(event)}")
    lines += [f"    {_name(state)} --> [*]" for state in State if state in STORED and _is_final(state)]
    return "\n".join(lines)


def table() -> str:
    """Return every cell, an event a row."""
    heads = ["event", *(_name(state) for state in State)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for event in Event:
        cells = [_cell(state, event) for state in State]
        lines.append(f"| **{_words(event)}**: {EVENTS[event]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page() -> str:
    """Return the whole page."""
    states = "\n".join(["| state | meaning |", "|---|---|", *(f"| {_name(one)} | {STATES[one]} |" for one in State)])
    return _HEAD.format(diagram=diagram(), states=states, table=table())


def _cell(state: State, event: Event) -> str:
    step = transition(state, event)
    arrow = f"→ {_name(step.next_state)}" if step.next_state is not state else ""
    said = [part for part in (arrow, ACTIONS[step.action], REPLIES[step.reply]) if part]
    return "; ".join(said) or "–"


def _is_final(state: State) -> bool:
    return all(transition(state, event).next_state is state for event in Event)


def _name(state: State) -> str:
    return state.name.lower()


def _words(event: Event) -> str:
    return event.name.lower().replace("_", " ")


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it; 1 when it is out of date."""
    wanted = page()
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"{PAGE} is out of date: run `python scripts/lifecycle.py`", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
