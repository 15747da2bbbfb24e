"""Consumers of queues, and producers of transactional messages.

    from twophase import Client
    from twophase.queues import Consumer

    consumer = Consumer(Client("http://localhost:36789"), "billing")

    @consumer.handler("orders", tags="paid")
    def bill(order: Order) -> None: ...

    consumer.run()

Everything here goes over the coordinator's HTTP port. `AsyncConsumer` and `AsyncTransactionProducer` are for asyncio.
"""

from twophase.client.queue_address import queue_address
from twophase.client.queues.blocking import Consumer
from twophase.client.queues.consumers import AsyncConsumer
from twophase.client.queues.handlers import GiveUp, Retry
from twophase.client.queues.messages import Half, Received
from twophase.client.queues.producers import (
    AsyncTransactionListener,
    AsyncTransactionProducer,
    TransactionListener,
    TransactionProducer,
)
from twophase.client.queues.transactions import Sent
from twophase.core.queue_api import Decision

__all__ = [
    "AsyncConsumer",
    "AsyncTransactionListener",
    "AsyncTransactionProducer",
    "Consumer",
    "Decision",
    "GiveUp",
    "Half",
    "Received",
    "Retry",
    "Sent",
    "TransactionListener",
    "TransactionProducer",
    "queue_address",
]
