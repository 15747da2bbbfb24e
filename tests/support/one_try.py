"""Clients that make each request once, and give its answer all the time of theirs.

A short `total` of a `RetryPolicy` would end a request that gets no answer as soon, but also one whose answer comes late
from a busy machine.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from twophase.client.base_client import BaseClient
from twophase.core.schedule import Schedule

AnyClient = TypeVar("AnyClient", bound=BaseClient[Any])


def one_try(client: AnyClient) -> AnyClient:
    """Let a client's new messages make no second try of a request.

    The pause before it is longer than the time for all tries.
    """
    bounds = client._channel.bounds
    pause_ms = 2 * bounds.total_ms
    client._channel.bounds = msgspec.structs.replace(bounds, backoff=Schedule(pause_ms, cap_ms=pause_ms))
    return client
