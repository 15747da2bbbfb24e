"""The consumers' side of the model: one topic, one group, two nodes (I8).

Nodes take the topic, read what is done, give messages out, write what was acknowledged, hand the topic over, lose their
epochs and are killed, in every order. A flush that was sent may arrive at any later time. At every moment these hold:
an acknowledgement that was confirmed to a consumer stands in the store, its message is never given out again, and
nothing counts as done that no consumer ever had. Where a topic is taken from an owner that lives, which the protocol
does not do, the first holds all the same: that is what terms are for.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

_MESSAGES = (1, 2)
"""Two messages, as bits."""
_TERMS_MAX = 3
_LIVES_MAX = (2, 1)
"""The times that each node starts."""
_NOTHING = -1


class TopicOwnerRules(msgspec.Struct, frozen=True):
    """The rules as switches: all on is the protocol; one off is a plausible mistake."""

    progress_names_its_term: bool = True
    """The store refuses progress of another term than the present one.

    Off: the fence of the node is enough.
    """
    takes_only_what_is_free: bool = True
    """A node takes a topic that was given up, or whose owner's epoch has ended.

    Off: it takes it from a live owner.
    """
    reads_after_its_term_began: bool = True
    """Progress is read in the term in which it is used.

    Off: it may have been read before.
    """
    gives_out_within_its_lease: bool = True
    """A node whose epoch may have ended gives nothing out.

    Off: until it hears of that.
    """
    stops_before_it_gives_up: bool = True
    """A node that hands a topic over stops, and writes all, before it gives it up.

    Off: it gives it up first.
    """
    confirms_after_the_flush: bool = True
    """An acknowledgement is confirmed once it is durable.

    Off: at once.
    """

    is_taken_from_the_living: bool = False
    """A node takes the topic from an owner that lives.

    Then only what the store keeps is judged.
    """

    @property
    def takes_from_the_living(self) -> bool:
        """True when an owner that lives loses its topic."""
        return self.is_taken_from_the_living or not self.takes_only_what_is_free


class Sent(NamedTuple):
    """A flush of progress that has not arrived."""

    term: int
    done: int


class Node(NamedTuple):
    """One node.

    `term` is 0 while it does not serve. `done` is what memory holds as done, `_NOTHING` before it was read; `early`
    what was read before the term. `given` is with consumers, `waits` are acknowledgements that are not confirmed.
    """

    lives: int = 1
    holds: bool = True
    runs: bool = True
    term: int = 0
    done: int = _NOTHING
    early: int = _NOTHING
    given: int = 0
    waits: int = 0
    stops: bool = False
    sent: Sent | None = None


class Moment(NamedTuple):
    """One state of the consumers' side.

    `owner` is a node's place, `_NOTHING` for none.
    """

    owner: int
    term: int
    stored: int
    confirmed: int
    ever_given: int
    nodes: tuple[Node, Node]


class Found(msgspec.Struct, frozen=True):
    """The number of moments, and the shortest story of a broken promise, if any."""

    moments: int
    story: tuple[str, ...] = ()
    finished: bool = False
    """True when a moment was met in which everything is done."""


Steps = list[tuple[str, Moment]]


class _Broken(Exception):
    """A message that was acknowledged is given out again."""


def explore(rules: TopicOwnerRules) -> Found:
    """Visit every reachable moment, or stop at the first breach."""
    beginning = Moment(_NOTHING, 0, 0, 0, 0, (Node(), Node()))
    origin: dict[Moment, tuple[Moment, str] | None] = {beginning: None}
    waiting = deque(origin)
    finished = False
    while waiting:
        here = waiting.popleft()
        finished = finished or here.stored == sum(_MESSAGES)
        if here.confirmed & ~here.stored and rules.confirms_after_the_flush:
            return Found(len(origin), (*_story(origin, here), "what was acknowledged is undone"))
        if here.stored & ~here.ever_given:
            return Found(len(origin), (*_story(origin, here), "counts as done what no consumer had"))
        try:
            steps = [step for place in (0, 1) for step in _steps(here, place, rules)]
        except _Broken as broken:
            return Found(len(origin), (*_story(origin, here), str(broken)))
        for label, after in steps:
            if after not in origin:
                origin[after] = (here, label)
                waiting.append(after)
    return Found(len(origin), finished=finished)


def _story(origin: dict[Moment, tuple[Moment, str] | None], end: Moment) -> tuple[str, ...]:
    story: list[str] = []
    while (step := origin[end]) is not None:
        end, label = step
        story.append(label)
    return tuple(reversed(story))


def _with(here: Moment, place: int, node: Node, **changes: int) -> Moment:
    nodes = (node, here.nodes[1]) if place == 0 else (here.nodes[0], node)
    return here._replace(nodes=nodes, **changes)


def _steps(here: Moment, place: int, rules: TopicOwnerRules) -> Steps:
    node = here.nodes[place]
    steps = _arrival(here, place, rules)
    if node.holds:
        # Another node ends the epoch of one that was silent for its lease.
        steps.append(
            (f"node {1 - place} ends the epoch of node {place}", _with(here, place, node._replace(holds=False)))
        )
    if not node.runs:
        return steps + _starting(here, place)
    steps.append((f"node {place} is killed", _with(here, place, _empty(node)._replace(runs=False))))
    if not node.holds:
        steps.append(
            (f"node {place} hears of the fence, forgets all", _with(here, place, _empty(node)._replace(runs=False)))
        )
    if node.term:
        steps += _serving(here, place, rules)
    elif node.holds:
        steps += _taking(here, place, rules)
    return steps


def _empty(node: Node) -> Node:
    return Node(node.lives, node.holds, node.runs, sent=node.sent)


def _starting(here: Moment, place: int) -> Steps:
    """Let a node take a slot anew.

    The fence rises, so what it had sent arrives no more.
    """
    node = here.nodes[place]
    if node.lives == _LIVES_MAX[place]:
        return []
    return [(f"node {place} starts again", _with(here, place, Node(node.lives + 1)))]


def _taking(here: Moment, place: int, rules: TopicOwnerRules) -> Steps:
    node, steps = here.nodes[place], Steps()
    if not rules.reads_after_its_term_began and node.early == _NOTHING:
        steps.append((f"node {place} reads progress", _with(here, place, node._replace(early=here.stored))))
    stands = here.owner == 1 - place and here.nodes[1 - place].holds
    if stands and not rules.takes_from_the_living:
        return steps
    term = here.term + 1
    if term <= _TERMS_MAX:
        taken = node._replace(term=term, done=node.early, early=_NOTHING)
        steps.append((f"node {place} takes the topic", _with(here, place, taken, owner=place, term=term)))
    return steps


def _serving(here: Moment, place: int, rules: TopicOwnerRules) -> Steps:
    node, steps = here.nodes[place], Steps()
    if node.done == _NOTHING:
        return [(f"node {place} reads progress", _with(here, place, node._replace(done=here.stored)))]
    for message in _MESSAGES:
        is_sure = node.holds or not rules.gives_out_within_its_lease
        if is_sure and not node.stops and not message & (node.done | node.given):
            if message & here.confirmed and not rules.is_taken_from_the_living:
                raise _Broken(f"node {place} gives out message {message}, which was acknowledged")
            given = node._replace(given=node.given | message)
            after = _with(here, place, given, ever_given=here.ever_given | message)
            steps.append((f"node {place} gives out message {message}", after))
        if message & node.given:
            at_once = 0 if rules.confirms_after_the_flush else message
            acked = node._replace(
                given=node.given & ~message, done=node.done | message, waits=node.waits | message & ~at_once
            )
            after = _with(here, place, acked, confirmed=here.confirmed | at_once)
            steps.append((f"message {message} is acknowledged at node {place}", after))
    if node.sent is None and node.done != here.stored:
        sent = node._replace(sent=Sent(node.term, node.done))
        steps.append((f"node {place} sends progress", _with(here, place, sent)))
    return steps + _handing_over(here, place, rules)


def _handing_over(here: Moment, place: int, rules: TopicOwnerRules) -> Steps:
    node = here.nodes[place]
    owns = here.owner == place and here.term == node.term
    freed = {"owner": _NOTHING} if owns else {}
    if not rules.stops_before_it_gives_up:
        return [(f"node {place} gives the topic up, and goes on", _with(here, place, node, **freed))] if owns else []
    if not node.stops:
        return [(f"node {place} stops giving out", _with(here, place, node._replace(stops=True)))]
    if node.waits or node.sent is not None:
        return []
    gone = node._replace(term=0, done=_NOTHING, given=0, stops=False)
    return [(f"node {place} gives the topic up", _with(here, place, gone, **freed))]


def _arrival(here: Moment, place: int, rules: TopicOwnerRules) -> Steps:
    """Let a flush arrive at the store: the fence, then the term."""
    node = here.nodes[place]
    if node.sent is None:
        return []
    term, done = node.sent
    arrived = node._replace(sent=None)
    is_written = node.holds and ((here.owner == place and here.term == term) if rules.progress_names_its_term else True)
    if not is_written:
        forgets = arrived._replace(term=0, done=_NOTHING, given=0, waits=0, stops=False)
        return [(f"progress of node {place} is refused", _with(here, place, forgets))]
    confirmed = node.waits & done if node.runs and node.term == term else 0
    after = _with(
        here, place, arrived._replace(waits=node.waits & ~confirmed), stored=done, confirmed=here.confirmed | confirmed
    )
    return [(f"progress of node {place} is written", after)]
