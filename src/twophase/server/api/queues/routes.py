"""All routes of the folder together."""

from __future__ import annotations

from typing import Final

from twophase.coordinator.queues import QueueApi
from twophase.server.api.operation import Operation, Served
from twophase.server.api.queues import consumers, producers
from twophase.server.api.queues.consumers import QueueConsumersApi
from twophase.server.api.queues.producers import QueueProducersApi
from twophase.server.codecs.decode import Decoder
from twophase.server.sessions import Sessions

QUEUE_OPERATIONS: Final[tuple[Operation, ...]] = (
    consumers.RECEIVE,
    consumers.ACK,
    consumers.NACK,
    consumers.EXTEND,
    consumers.GIVE_BACK,
    consumers.DEAD_LETTER,
    producers.HALF,
    producers.DECIDE,
    producers.QUESTIONS,
    consumers.LEAVE,
)
"""All operations, in the order in which people read them."""


def queue_routes(queues: QueueApi, sessions: Sessions, decoder: Decoder) -> list[Served]:
    """Return the operations with their handlers; arguments as their classes."""
    return [*QueueConsumersApi(queues, sessions).served(), *QueueProducersApi(queues, sessions, decoder).served()]
