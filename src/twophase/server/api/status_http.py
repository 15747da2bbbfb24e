"""The route behind `twophase status`: the situation at a glance.

The counts read two indexes of live rows, as a scrape does, and are shared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final, Protocol

from starlette.requests import Request

from twophase.coordinator.gauges import Gauges
from twophase.core.hooks import Clock
from twophase.core.operating import ServerStatus, ShownConsumers, ShownDestination, ShownNode
from twophase.server.api.operation import Operation, Served, answer_of
from twophase.server.api.recent import Recent
from twophase.server.codecs.encode import Answer
from twophase.stores.base import Overview
from twophase.stores.rows import NodeSeen

STATUS: Final = Operation(
    path="/api/twophase/status",
    tag="operators",
    summary="The server, its nodes, and the messages that are not final, at a glance",
    description="Counts are those of the last second at most; `destinations` are those of this node with "
    "branch calls in progress or waiting at this moment, the busiest first; `queues` are its groups with most to do.",
    answer=ServerStatus,
)
_DESTINATIONS_MAX: Final = 10
_QUEUES_MAX: Final = 10


class Queries(Protocol):
    """The part of the coordinator that this route uses."""

    @property
    def ready(self) -> bool: ...

    async def nodes(self) -> Sequence[NodeSeen]: ...

    def busiest(self, limit: int) -> list[tuple[str, int, int]]: ...

    def gauges(self) -> Gauges: ...


class StatusApi:
    """The handler.

    Arguments:
        questions: the coordinator.
        clock: the time of the store.
        lease_ms: the lease of a node, 0 where the store has one.
        overview: the counts.
    """

    def __init__(self, questions: Queries, clock: Clock, lease_ms: int, overview: Recent[Overview]) -> None:
        self._questions = questions
        self._clock = clock
        self._lease_ms = lease_ms
        self._overview = overview
        self._nodes = Recent(questions.nodes)

    def served(self) -> list[Served]:
        """Return the operation with its handler."""
        return [Served(STATUS, self._tell)]

    async def _tell(self, _request: Request) -> Answer:
        overview, nodes = await self._overview.of(), await self._nodes.of()
        gauges = self._questions.gauges()
        own, queues = gauges.node, sorted(gauges.queues, key=lambda one: -one.lag)[:_QUEUES_MAX]
        status = ServerStatus(
            version=version("twophase"),
            ready=self._questions.ready,
            now_ms=self._clock.now_ms(),
            lease_ms=self._lease_ms,
            prepared=overview.prepared,
            submitted=overview.submitted,
            parked=overview.parked,
            oldest_prepared_ms=overview.oldest_prepared_ms,
            oldest_submitted_ms=overview.oldest_submitted_ms,
            nodes=[ShownNode(node.node, node.held, node.seen_ms, answers=node.node == own) for node in nodes],
            destinations=[ShownDestination(*one) for one in self._questions.busiest(_DESTINATIONS_MAX)],
            queues=[ShownConsumers(one.group, one.topic, one.lag, one.in_flight, one.behind) for one in queues],
            halves=sum(gauges.halves),
        )
        return answer_of(status)
