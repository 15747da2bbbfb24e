"""All routes of the folder together."""

from __future__ import annotations

from twophase.coordinator.queues import QueueApi
from twophase.server.api.operation import Served
from twophase.server.api.queues.consumers import QueueConsumersApi
from twophase.server.api.queues.producers import QueueProducersApi
from twophase.server.codecs.decode import Decoder
from twophase.server.sessions import Sessions


def queue_routes(queues: QueueApi, sessions: Sessions, decoder: Decoder) -> list[Served]:
    """Return the operations with their handlers; arguments as their classes."""
    return [*QueueConsumersApi(queues, sessions).served(), *QueueProducersApi(queues, sessions, decoder).served()]
