"""The choice of the port for RocketMQ's clients: one or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twophase.coordinator.queues import QueueApi
from twophase.core.errors import ConfigurationError
from twophase.core.hooks import Clock
from twophase.http_client.byte_budget import ByteBudget
from twophase.server.api.grpc_port import installed
from twophase.server.browsers import BrowserGuard
from twophase.server.identity.gate import Gate
from twophase.server.sessions import Sessions
from twophase.server.settings import Settings
from twophase.server.tls import ServerTls

if TYPE_CHECKING:
    from twophase.server.rocketmq.port import RocketmqPort


def rocketmq_port_of(
    settings: Settings,
    queues: QueueApi,
    sessions: Sessions,
    clock: Clock,
    on_refused: Callable[[str], None],
    gate: Gate,
    browsers: BrowserGuard,
    budget: ByteBudget,
    tls: ServerTls | None,
) -> RocketmqPort | None:
    """Return the port, if the settings want it; the arguments are its own.

    Raises:
        ConfigurationError: gRPC is not installed.
    """
    if settings.rocketmq_port == "off":
        return None
    if not installed():
        raise ConfigurationError("rocketmq_port: it needs `pip install 'twophase[grpc]'`; or set rocketmq_port=off.")
    from twophase.server.rocketmq.port import RocketmqPort  # noqa: PLC0415 -- protobuf loads only where it is wanted

    return RocketmqPort(settings, queues, sessions, clock, on_refused, gate, browsers, budget, tls)
