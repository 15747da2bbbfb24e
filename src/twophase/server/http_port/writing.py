"""Completed responses of one connection, in one write.

A write is a system call that wakes the client, and costs more than all else that is done for a response. A client that
sends requests in groups has them answered in groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from twophase.core import failpoint


def write_together(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, responses: Sequence[bytes]) -> None:
    """Write responses, in this order; without any, write nothing."""
    if not failpoint.ARMED:
        if responses:
            transport.write(b"".join(responses))
        return
    for response in responses:
        failpoint.reach("coordinator.before_acknowledgement")
        transport.write(response)
        # uvloop sends at the end of this turn of its loop: one turn later the bytes are on their way.
        loop.call_soon(loop.call_soon, failpoint.reach, "coordinator.after_acknowledgement")
