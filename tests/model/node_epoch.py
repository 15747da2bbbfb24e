"""The nodes' side of the model: one unfinished row and two nodes (I2, I9).

The nodes call, plan, flush, are fenced and return. The row's owner must drive it. So at every moment the owner knows
the row, or is about to read it; or the owner's epoch has ended, and a live node adopts the row. A change that outlives
the memory from which it came may break this.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import NamedTuple

import msgspec

_VERSIONS_MAX = 3
_UNKNOWN = -1


class NodeEpochRules(msgspec.Struct, frozen=True):
    """The rules as switches: all on is the protocol; one off is a plausible mistake."""

    forgets_at_once: bool = True
    """A fenced node discards its plans and its knowledge in one step.

    Off: an answer may come in between.
    """
    keeps_what_is_with_the_store: bool = True
    """Another node's message stays in memory while the store has a change of it.

    Off: without a permit it is evicted.
    """
    reads_what_it_adopts: bool = True
    """A node that adopts rows reads what is due from the beginning.

    Off: from where it stood.
    """


class Phase(enum.IntEnum):
    """A node's phase."""

    WORKS = 0
    HALTED = 1
    """It has learnt that its epoch has ended."""
    EMPTIED = 2
    """It has discarded its plans, and not yet its knowledge."""
    AWAY = 3


class Node(NamedTuple):
    """One node.

    `knows` is the version that it holds in memory, `plans` the one on which its change under way was decided.
    """

    tenure: int = 0
    holds: bool = True
    phase: Phase = Phase.WORKS
    knows: int = _UNKNOWN
    plans: int = _UNKNOWN
    calls: bool = False
    will_read: bool = False


class Moment(NamedTuple):
    """One state of the nodes' side. `owner` is (node, epoch)."""

    version: int
    owner: tuple[int, int]
    final: bool
    nodes: tuple[Node, Node]


class Found(msgspec.Struct, frozen=True):
    """The number of moments, and the shortest story of an abandoned row, if any.

    A row is abandoned when no node drives it.
    """

    moments: int
    story: tuple[str, ...] = ()


Steps = dict[str, Moment]


def explore(rules: NodeEpochRules) -> Found:
    """Visit every reachable moment, or stop at the first breach."""
    beginning = Moment(1, (0, 0), False, (Node(knows=1), Node()))
    origin: dict[Moment, tuple[str, ...]] = {beginning: ()}
    waiting = deque(origin)
    while waiting:
        here = waiting.popleft()
        if not _is_seen_to(here):
            return Found(len(origin), origin[here])
        for place in (0, 1):
            for label, after in _steps(here, place, rules).items():
                if after not in origin:
                    origin[after] = (*origin[here], f"node {place}: {label}")
                    waiting.append(after)
    return Found(len(origin))


def _is_seen_to(here: Moment) -> bool:
    owner = here.nodes[here.owner[0]]
    return here.final or not _stands(here) or owner.knows != _UNKNOWN or owner.will_read


def _stands(here: Moment) -> bool:
    """Return True when the epoch that owns the row has not ended."""
    place, tenure = here.owner
    return here.nodes[place].holds and here.nodes[place].tenure == tenure


def _with(here: Moment, place: int, node: Node) -> Moment:
    return here._replace(nodes=(node, here.nodes[1]) if place == 0 else (here.nodes[0], node))


def _steps(here: Moment, place: int, rules: NodeEpochRules) -> Steps:
    node = here.nodes[place]
    steps = _ending(here, place, rules)
    if node.calls:
        planned = node.knows if node.plans == _UNKNOWN else node.plans
        steps["a branch answers"] = _with(here, place, node._replace(calls=False, plans=planned))
    if node.phase is not Phase.WORKS:
        return steps
    if node.plans != _UNKNOWN:
        steps |= _flush(here, place)
        if not rules.keeps_what_is_with_the_store and here.owner[0] != place:
            steps["finds no place, forgets the other's row"] = _with(here, place, node._replace(knows=_UNKNOWN))
    elif node.knows != _UNKNOWN:
        steps["calls a branch"] = _with(here, place, node._replace(calls=True))
    elif not here.final:
        steps["is asked about the row, looks it up"] = _with(
            here, place, node._replace(knows=here.version, plans=here.version)
        )
    if node.holds:
        steps |= _sharing(here, place, rules)
    return steps


def _sharing(here: Moment, place: int, rules: NodeEpochRules) -> Steps:
    """Return the steps of a node that holds its slot with others' rows and epochs."""
    steps: Steps = {}
    node, other = here.nodes[place], here.nodes[1 - place]
    if other.holds and other.tenure == 0:
        steps["ends the other's tenure"] = _with(here, 1 - place, other._replace(holds=False))
    if not _stands(here):
        adopting = node._replace(will_read=node.will_read or rules.reads_what_it_adopts)
        steps["adopts the row"] = _with(here, place, adopting)._replace(owner=(place, node.tenure))
    if node.will_read:
        mine = here.owner == (place, node.tenure) and not here.final
        known = here.version if mine and node.knows == _UNKNOWN else node.knows
        steps["reads what is due"] = _with(here, place, node._replace(will_read=False, knows=known))
    return steps


def _ending(here: Moment, place: int, rules: NodeEpochRules) -> Steps:
    """Let a node learn that its epoch has ended, forget, and join anew."""
    node = here.nodes[place]
    forgotten = node._replace(knows=_UNKNOWN, will_read=False, phase=Phase.AWAY)
    if node.phase is Phase.WORKS and not node.holds:
        return {"hears of the fence, halts": _with(here, place, node._replace(phase=Phase.HALTED))}
    if node.phase is Phase.HALTED and rules.forgets_at_once:
        return {"forgets all": _with(here, place, forgotten._replace(plans=_UNKNOWN))}
    if node.phase is Phase.HALTED:
        known = node.knows if node.plans == _UNKNOWN else _UNKNOWN
        emptied = node._replace(plans=_UNKNOWN, knows=known, phase=Phase.EMPTIED)
        return {"gives up what it planned": _with(here, place, emptied)}
    if node.phase is Phase.EMPTIED:
        return {"forgets what it knows": _with(here, place, forgotten)}
    if node.phase is Phase.AWAY:
        back = Node(node.tenure + 1, plans=node.plans, calls=node.calls, will_read=True)
        return {"takes a place, reads from the beginning": _with(here, place, back)}
    return {}


def _flush(here: Moment, place: int) -> Steps:
    """Let the change meet the fence, then the row.

    Written, it makes the row this node's, by compare-and-set.
    """
    node = here.nodes[place]._replace(plans=_UNKNOWN)
    if not node.holds:
        fenced = node._replace(knows=_UNKNOWN, phase=Phase.HALTED)
        return {"its flush meets the fence": _with(here, place, fenced)}
    if here.final or here.version != here.nodes[place].plans:
        mine = here.owner == (place, node.tenure) and not here.final
        known = here.version if mine and node.knows != _UNKNOWN else _UNKNOWN
        return {"loses its compare-and-set": _with(here, place, node._replace(knows=known))}
    steps = {"finishes the message": _with(here, place, node._replace(knows=_UNKNOWN))._replace(final=True)}
    if here.version < _VERSIONS_MAX:
        later = here.version + 1
        known = _UNKNOWN if node.knows == _UNKNOWN else later
        written = _with(here, place, node._replace(knows=known))
        steps["reschedules the message"] = written._replace(version=later, owner=(place, node.tenure))
    return steps
