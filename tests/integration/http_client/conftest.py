"""Fixtures: the client runs on both loops.

A leftover call, timer or connection fails the test that left it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from twophase.http_client.client import HttpClient


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The coordinator runs on uvloop, a producer on the loop of its program."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


MakeClient = Callable[..., HttpClient]


@pytest.fixture
async def make_client() -> AsyncIterator[MakeClient]:
    """Clients that are closed at the end.

    An error that the loop has reported by then fails the test.
    """
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with contextlib.AsyncExitStack() as stack:

        def make(**settings: Any) -> HttpClient:
            client = HttpClient(**settings)
            stack.push_async_callback(client.close)
            return client

        yield make
    assert not reported


@pytest.fixture
def client(make_client: MakeClient) -> HttpClient:
    """One client with small bounds."""
    return make_client(response_bytes_max=100_000, header_bytes_max=8192)
