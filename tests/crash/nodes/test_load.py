"""The end of a run's load."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.crash.nodes.load import Load


def test_enough_returns_when_the_last_producer_has_ended_and_partners_still_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as node, ThreadPoolExecutor(1) as ending:
        node.settimeout(20)
        load = Load([node.getsockname()[1]], seed=1, at_a_time=1)
        load.start()
        asked, _ = node.accept()
        enough = ending.submit(load.enough)
        with asked, pytest.raises(TimeoutError):
            enough.result(0.2)
        node.close()  # the producer gets no answer any more: it gives up
        enough.result(20)
        assert load.alive, "partners answer"
        load.stop()
        assert not load.alive
