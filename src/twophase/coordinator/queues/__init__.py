"""Queues of topics, which consumers fetch from.

Beside them: questions that go over a producer's own connection.
"""

from twophase.coordinator.queues.contract import (
    HTTP,
    Client,
    Decision,
    Delivered,
    GroupInfo,
    NodeAddress,
    Question,
    QueueApi,
    Sent,
    Servers,
    TopicInfo,
)
from twophase.core.queue_message import QueueMessage

__all__ = [
    "HTTP",
    "Client",
    "Decision",
    "Delivered",
    "GroupInfo",
    "NodeAddress",
    "Question",
    "QueueApi",
    "QueueMessage",
    "Sent",
    "Servers",
    "TopicInfo",
]
