"""The connections that a server may have, and the open files that they need."""

from __future__ import annotations

import resource
from typing import Final

import msgspec
import structlog

from twophase.server.settings import Settings

_FILES_BESIDE_CONNECTIONS: Final = 256
_log = structlog.get_logger("twophase.server")


def calls_max(settings: Settings) -> int:
    """Return the connections for branch calls and as many for check-backs.

    Neither waits for the other's connections.
    """
    return 2 * settings.in_flight_max


def affordable(settings: Settings) -> Settings:
    """Return the settings, with connections bounded by the open files allowed."""
    grpc_ports = 1 if settings.rocketmq_port == "off" else 2
    beside = calls_max(settings) + grpc_ports * settings.grpc_connections_max + _FILES_BESIDE_CONNECTIONS
    needed = settings.connections_max + beside
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= needed:
        return settings
    connections_max = max(allowed - beside, allowed // 2, 1)
    _log.warning("too few open files are allowed", allowed=allowed, needed=needed, connections_max=connections_max)
    return msgspec.structs.replace(settings, connections_max=connections_max)
