"""The times of a connection: what takes too long is ended.

The listener's sweep stands in for a timer for each connection.
"""

from __future__ import annotations

import asyncio
from abc import ABC
from collections import deque
from typing import Any

from twophase.core.errors import InvalidRequest
from twophase.server.http_port.in_turns import HEAD, NOTHING
from twophase.server.http_port.parser import RequestParser


class TimedParser(RequestParser, ABC):
    """A `RequestParser` with timeouts; `Connection` is the rest of it."""

    _below: asyncio.Transport | None
    _gone: bool
    _lingers: bool
    _pending: deque[Any]

    def enforce_timeouts(self, now_s: float) -> None:
        """End what takes too long; called by the listener's sweep."""
        limits = self.port.timeouts
        age_s = now_s - self.since_s
        if self._gone or (self._below is not None and self._end_farewell(self._below)):
            return
        if self._lingers:
            if age_s > limits.linger_s:
                self.transport.abort()
        elif self.flow.write_paused:
            if age_s > limits.write_s:
                self.transport.abort()
        elif self.reading == NOTHING:
            if not self._pending and age_s > limits.idle_s:
                self.transport.close()
        elif self.flow.read_paused or self._waits:
            return  # it is not the client that keeps the rest back
        elif age_s > (limits.head_s if self.reading == HEAD else limits.body_s):
            self.refuse(408, InvalidRequest("the request did not arrive in time."))

    def _end_farewell(self, below: asyncio.Transport) -> bool:
        """End a TLS connection that is closed here and has sent everything.

        A client that reads nothing between two requests, as a pool does, leaves the farewell unanswered.
        """
        closing = self.transport.is_closing()
        if closing and not (self.transport.get_write_buffer_size() or below.get_write_buffer_size()):
            below.close()
        return closing
