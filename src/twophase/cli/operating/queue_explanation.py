"""The part of a message's explanation that is about queues and producers.

A message of a queue is final for the coordinator once it is in its queue; whether a group has it is what people want to
know. A half message waits for a producer that no address reaches.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twophase.cli.operating.explanation import RESTS, Explanation, Remedy, clock
from twophase.core.operating import ShownMessage
from twophase.core.queue_message import QUEUE_PREFIX
from twophase.core.queue_operating import SENT_AGAIN, QueueSituation, ShownHalf, ShownPlace, ShownWait
from twophase.core.shell import argument

_PRODUCER: Final = "producer://"
_DECIDES: Final = "A commit or a rollback of its producer decides it at any time."


def concerns_queues(message: ShownMessage) -> bool:
    """Return True for a message that goes to a queue, or a half message."""
    return message.check_url.startswith(_PRODUCER) or any(one.url.startswith(QUEUE_PREFIX) for one in message.branches)


def with_queues(explanation: Explanation, message: ShownMessage, situation: QueueSituation) -> Explanation:
    """Return the explanation with the message's places, and its producer's silence.

    >>> place = ShownPlace("01", "orders", 0, 7, [ShownWait("billing", "waits", "it waits for a consumer")])
    >>> done = Explanation("g has succeeded: 1 branch delivered.", [], [], [])
    >>> with_queues(done, ShownMessage("g", "succeed", 0), QueueSituation([place], None, 0)).blocked
    ['Group billing has not done number 7 of orders, queue 0: it waits for a consumer.']
    >>> letter = ShownPlace("01", "orders", 0, 7, [ShownWait("billing", "dead letter", "it is a dead letter")])
    >>> with_queues(done, ShownMessage("g", "succeed", 0), QueueSituation([letter], None, 0)).blocked
    ['Group billing gave up number 7 of orders, queue 0: it is a dead letter, unless it has done it after a reset.']
    >>> with_queues(done, ShownMessage("g", "succeed", 0), QueueSituation([letter], None, 0)).remedies[0].command
    'twophase letters list billing'
    >>> gone = ShownPlace("01", "orders", 0, 7, [ShownWait("billing", "done", "it is done")])
    >>> with_queues(done, ShownMessage("g", "succeed", 0), QueueSituation([gone], None, 0)).happened[-1]
    'Group billing has done it, or does not select its tag.'
    >>> again = ShownWait("billing", "done", f"{SENT_AGAIN}twophase explain queue-7f")
    >>> sent = ShownPlace("01", "orders", 0, 7, [again])
    >>> with_queues(done, ShownMessage("g", "succeed", 0), QueueSituation([sent], None, 0)).happened[-1]
    'Group billing gave it up, and its dead letter was sent again: twophase explain queue-7f'
    """
    happened, blocked, then = list(explanation.happened), list(explanation.blocked), list(explanation.then)
    remedies = list(explanation.remedies)
    if situation.half is not None:
        blocked, then, remedies = _of_half(message, situation.half, situation.now_ms)
    for place in situation.places:
        happened.append(f"Branch {place.branch_id} is number {place.number} of {place.topic}, queue {place.queue}.")
        happened += [_done(one) for one in place.groups if one.situation == "done"]
        blocked += [_undone(place, one) for one in place.groups if one.situation != "done"]
        if not place.groups:
            blocked.append(f"No group reads {place.topic} yet; the first one begins with its oldest message.")
        remedies += _of_place(place)
    return msgspec.structs.replace(explanation, happened=happened, blocked=blocked, then=then, remedies=remedies)


def _done(one: ShownWait) -> str:
    if one.why.startswith(SENT_AGAIN):
        return f"Group {one.group} {one.why}"
    return f"Group {one.group} has done it, or does not select its tag."


def _undone(place: ShownPlace, one: ShownWait) -> str:
    number = f"number {place.number} of {place.topic}, queue {place.queue}"
    if one.situation == "dead letter":  # which a reset leaves among the dead letters
        return f"Group {one.group} gave up {number}: {one.why}, unless it has done it after a reset."
    return f"Group {one.group} has not done {number}: {one.why}."


def _of_half(message: ShownMessage, half: ShownHalf, now_ms: int) -> tuple[list[str], list[str], list[Remedy]]:
    """Return what blocks a half message, what comes next, and what to do."""
    limit = f" of {half.answers_max}, after which it is parked" if half.answers_max else ""
    blocked = [f"{half.why[:1].upper()}{half.why[1:]}."] if half.situation != "waits" else []
    if half.answers:
        answered = clock(half.answered_ms, now_ms)
        blocked.append(f"Its producers answered 'unknown' {half.answers} times{limit}; the last time at {answered}.")
    gid = argument(message.gid)
    stop = Remedy(f"twophase messages stop {gid}", "to roll it back although its producer has not said so")
    if half.situation == "parked":
        redrive = Remedy(f"twophase messages redrive {gid}", "to ask its producers again, with all attempts")
        return blocked, [RESTS, _DECIDES], [redrive, stop]
    then = [_DECIDES]
    if half.situation == "away":
        then.insert(0, f"As soon as a producer of {half.producers!r} connects, it is asked. Silence decides nothing.")
    elif half.due_ms:
        then.insert(0, f"One of the producers of {half.producers!r} is asked at {clock(half.due_ms, now_ms)}.")
    return blocked, then, [stop] if blocked else []


def _of_place(place: ShownPlace) -> list[Remedy]:
    return [
        Remedy(f"twophase letters list {argument(one.group)}", "to see it; `twophase letters redrive` sends it again")
        if one.situation == "dead letter"
        else Remedy(
            f"twophase groups show {argument(one.group)}", f"to see what group {one.group} has not done, and who asks"
        )
        for one in place.groups
        if one.situation != "done"
    ]
