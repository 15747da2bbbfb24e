"""Requests of operators about queues and their answers.

Plain values that travel as JSON, known to the server's API and to the command line, which needs nothing of the
server's. Names of topics and groups have their namespace before them, as `shop/orders`. Times are milliseconds since
1970 by the store's clock; a time without a value is 0.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twophase.core.operating import ActRequest

SENT_AGAIN: Final = "gave it up, and its dead letter was sent again: "
"""Begins `why` of a message that is `done` because its letter was redriven."""


class ShownLag(msgspec.Struct, frozen=True):
    """The position of a group in one queue of a topic.

    Arguments:
        next_number: every message with a lower number is done.
        end: the number that the next message gets.
        lag: messages that are not done.
        oldest_ms: when the oldest of them was appended.
        in_flight: those with consumers, or resting before their next delivery.
        behind: those that wait behind others of their message group.
        asked_ms: when a consumer has asked for messages last, at the node that answers.
    """

    group: str
    topic: str
    queue: int
    next_number: int
    end: int
    lag: int
    oldest_ms: int = 0
    in_flight: int = 0
    behind: int = 0
    asked_ms: int = 0


class ShownQueue(msgspec.Struct, frozen=True):
    """One queue of a topic: its entries have numbers from `first` to before `end`."""

    queue: int
    first: int
    end: int
    oldest_ms: int = 0


class ShownTopic(msgspec.Struct, frozen=True):
    """A topic of queues.

    Arguments:
        queues: the number of its queues.
        kinds: the kinds of messages that it takes.
        retention_ms: how long its messages are kept at least; 0: as long as history.
        is_defined: False for a topic with messages whose settings are the default ones, because nothing has made it.
        parts: its queues that have had a message.
        lags: the positions of the groups that read it.
        retention_bytes: beyond these bytes its messages are kept as long as history only; 0: no bound.
        bytes: of its messages, estimated.
        over_bytes: of those that are beyond the bound and stay.
        why_over: what holds these, and what to do; empty when nothing does.
    """

    name: str
    queues: int
    kinds: list[str]
    retention_ms: int
    is_defined: bool
    parts: list[ShownQueue]
    lags: list[ShownLag]
    retention_bytes: int = 0
    bytes: int = 0
    over_bytes: int = 0
    why_over: str = ""


class ShownGroup(msgspec.Struct, frozen=True):
    """A group of consumers.

    Arguments:
        attempts_max: deliveries of a message before it goes into the dead letters; 0: no limit.
        backoff_ms: the pauses between deliveries; the last one repeats.
        letters: its dead letters.
        lags: its positions.
    """

    name: str
    attempts_max: int
    backoff_ms: list[int]
    is_defined: bool
    letters: int
    lags: list[ShownLag]


class ManyTopics(msgspec.Struct, frozen=True):
    """A page of topics of queues, by name; `position` is empty at the end."""

    topics: list[ShownTopic]
    position: str
    now_ms: int


class OneTopic(msgspec.Struct, frozen=True):
    """A topic, and what time it is for the store."""

    topic: ShownTopic
    now_ms: int


class ManyGroups(msgspec.Struct, frozen=True):
    """A page of groups, by name; `position` is empty at the end."""

    groups: list[ShownGroup]
    position: str
    now_ms: int


class OneGroup(msgspec.Struct, frozen=True):
    """A group, and what time it is for the store."""

    group: ShownGroup
    now_ms: int


class DefineTopic(ActRequest):
    """The settings of a topic; one that is left out stays as it is, or is the default.

    `dry_run`: only report what would change.
    """

    queues: int | None = None
    kinds: list[str] | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    dry_run: bool = False


class DefineGroup(ActRequest):
    """The settings of a group; one that is left out stays as it is, or is the default.

    `dry_run`: only report what would change.
    """

    attempts_max: int | None = None
    backoff_ms: list[int] | None = None
    dry_run: bool = False


class Defined(msgspec.Struct, frozen=True):
    """The settings before and after, as JSON text; `before` is empty for a new one.

    Equal texts: it stood so already, and nothing was changed.
    """

    name: str
    before: str
    after: str


class RemoveRequest(ActRequest):
    """The body of a removal.

    `override`: also what a group has not done. `dry_run`: only report what would be removed.
    """

    override: bool = False
    dry_run: bool = False


class Removed(msgspec.Struct, frozen=True):
    """The result of a removal, or what it would be.

    Arguments:
        messages: entries of the topic that go; of a group none does.
        undone: messages that a group had not done.
        positions: positions of groups that go.
        more: messages are left, and the topic with them: repeat the request.
    """

    name: str
    messages: int
    undone: int
    positions: int
    more: bool = False


class ResetRequest(ActRequest):
    """The body of a reset.

    Arguments:
        topic: the topic in which the group gets another position.
        to: `earliest`, `latest` or `time`.
        at_ms: for `time`: the first message that was appended then or later is the next one.
        queue: only this queue; None for all.
        dry_run: only report what would change.
    """

    topic: str = ""
    to: str = ""
    at_ms: int = 0
    queue: int | None = None
    dry_run: bool = False


class ShownReset(msgspec.Struct, frozen=True):
    """A new position of a group in a queue.

    Arguments:
        before, after: the first number that is not done.
        repeated: messages that were done, and are given out again.
        skipped: messages that were not done, and are given out no more.
    """

    queue: int
    before: int
    after: int
    repeated: int
    skipped: int


class Reset(msgspec.Struct, frozen=True):
    """The positions that a reset changed, or would change."""

    group: str
    topic: str
    queues: list[ShownReset]


class ShownHalf(msgspec.Struct, frozen=True):
    """A half message: its producer has not decided yet.

    Arguments:
        topic: of its first branch to a queue; empty without one.
        producers: the name whose producers are asked.
        client_id: the producer that sent it, which is asked first.
        due_ms: when it is looked at next; 0 while it is parked.
        answers: checks that were answered with "unknown".
        answers_max: the number of them that parks it; 0: no limit.
        answered_ms: when the last of them was answered.
        situation: `waits`, `asked`, `busy`, `away` or `parked`.
        why: the same in words.
    """

    gid: str
    topic: str
    producers: str
    client_id: str
    created_ms: int
    due_ms: int
    answers: int
    answers_max: int
    answered_ms: int
    situation: str
    why: str


class ManyHalves(msgspec.Struct, frozen=True):
    """A page of half messages; `position` is empty at the end."""

    halves: list[ShownHalf]
    position: str
    now_ms: int


class ShownLetter(msgspec.Struct, omit_defaults=True, frozen=True):
    """A dead letter of a group.

    Arguments:
        number: its place among the group's dead letters.
        gid: its own.
        topic: the topic from which it comes.
        message_id: of the message, there as here.
        stored_ms: when it became a dead letter.
        redriven: True when a redrive has sent it to the group again.
        body: only where it is asked for; `body_base64` instead where it is no text.
    """

    number: int
    gid: str
    topic: str
    message_id: str
    stored_ms: int
    body_bytes: int
    tag: str = ""
    keys: list[str] = []
    properties: dict[str, str] = {}
    redriven: bool = False
    body: str = ""
    body_base64: str = ""


class ManyLetters(msgspec.Struct, frozen=True):
    """A page of a group's dead letters, the oldest first.

    `position`: where the next page begins; 0 at the end.
    """

    group: str
    letters: list[ShownLetter]
    position: int
    now_ms: int


class RedriveLetters(ActRequest):
    """The body of a redrive of dead letters.

    Arguments:
        numbers: the letters; at most 100.
        topic: where they go; empty for where they come from.
        body: replaces the body; only of one letter.
        body_base64: the same, for a body that is no text.
        tag: replaces the tag.
        set_properties: properties that are added or replaced.
        remove_properties: names of properties that are removed.
        dry_run: only report what would be sent.
    """

    numbers: list[int] = msgspec.field(default_factory=list)
    topic: str = ""
    body: str | None = None
    body_base64: str | None = None
    tag: str | None = None
    set_properties: dict[str, str] = msgspec.field(default_factory=dict)
    remove_properties: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False


class RedrivenLetter(msgspec.Struct, frozen=True):
    """The result of a redrive for one letter.

    Arguments:
        gid: of the message that the group gets; empty for none.
        result: `sent`, `sent before`, `would be sent`, or `refused`.
        why: the reason of a refusal.
    """

    number: int
    gid: str
    topic: str
    result: str
    why: str = ""


class RedrivenLetters(msgspec.Struct, frozen=True):
    """The result of a redrive, letter by letter."""

    group: str
    letters: list[RedrivenLetter]


class ShownWait(msgspec.Struct, frozen=True):
    """The situation of one message for one group.

    Arguments:
        situation: `done`, `dead letter`, `in progress`, `rests`, `waits behind its message group`, `waits`, or
            `not asked for`.
        why: the same in words.
    """

    group: str
    situation: str
    why: str


class ShownPlace(msgspec.Struct, frozen=True):
    """The place of a branch in a queue, and what keeps each group from it.

    Arguments:
        groups: a text for each group that reads the topic.
    """

    branch_id: str
    topic: str
    queue: int
    number: int
    groups: list[ShownWait]


class QueueSituation(msgspec.Struct, frozen=True):
    """The places of a message in queues, and its producer's silence."""

    places: list[ShownPlace]
    half: ShownHalf | None
    now_ms: int
