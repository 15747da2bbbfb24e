"""A producer whose coordinator does not run.

The error appears once, with its cause once, and few frames stand before its text.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest

from benchmarks.servers.ports import nobodys_port
from tests.support.one_try import one_try
from twophase import AsyncClient, Client
from twophase.errors import CoordinatorUnreachable, Fate


def submit_nowhere(endpoint: Any, scheme: str) -> None:
    client = one_try(endpoint(f"{scheme}://127.0.0.1:{nobodys_port()}"))
    message = client.message().add("http://b/in", {})
    if endpoint is AsyncClient:
        asyncio.run(message.submit())
    else:
        message.submit()


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@pytest.mark.parametrize("endpoint", [Client, AsyncClient])
def test_the_traceback_is_one_error_with_its_cause_and_few_frames(endpoint: Any, scheme: str) -> None:
    with pytest.raises(CoordinatorUnreachable) as raised:
        submit_nowhere(endpoint, scheme)

    shown = "".join(traceback.format_exception(raised.value))
    ours = [frame for frame in traceback.extract_tb(raised.value.__traceback__) if "/src/twophase/" in frame.filename]
    assert raised.value.fate is (Fate.UNCHANGED if scheme == "http" else Fate.UNDECIDED)  # gRPC does not say
    assert shown.count("Traceback") == 1
    assert shown.count("direct cause") == 1
    assert len(ours) <= 3
