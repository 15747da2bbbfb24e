"""The assignment of a worker, and its ready line.

The assignment comes over standard input, so that no store's password stands in an argument. Standard input stays open:
when it ends, the supervisor is gone, and the worker drains. The ready line goes over standard output.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from twophase.server import advertised
from twophase.server.settings import Settings
from twophase.stores.rows import Secrets

_PIECE_BYTES: Final = 1024


class Ready(msgspec.Struct, frozen=True):
    """The ready line of a worker."""

    urls: list[str]


class Assignment(msgspec.Struct, frozen=True):
    """The settings of one worker.

    Arguments:
        settings: with ports that the supervisor has chosen.
        number: from 1.
        folder: of the workers' sockets for metrics; only this user may enter it.
        secrets: by which it holds its node slot, and by which the workers of this number before held one.
    """

    settings: Settings
    number: int
    folder: str
    secrets: Secrets

    def line(self) -> bytes:
        """Return it as a line for a worker's standard input."""
        return msgspec.json.encode(self) + b"\n"


def of_worker(settings: Settings, number: int) -> Settings:
    """Return the settings of one worker, counted from 1.

    RocketMQ's clients reach each worker at the next port. They keep a stream to each node of a topic's route, and ask
    the owner of the topic; so a worker has a port that leads to it alone.
    """
    port = settings.rocketmq_port
    if not isinstance(port, int) or not port:
        return settings
    address = advertised.of_worker(settings.rocketmq_address, number)
    return msgspec.structs.replace(settings, rocketmq_port=port + number - 1, rocketmq_address=address)


def rocketmq_ports(settings: Settings, number: int) -> set[int]:
    """Return the ports of all workers for RocketMQ's clients.

    Arguments:
        settings: of one worker.
        number: this worker's, from 1.

    >>> sorted(rocketmq_ports(Settings(rocketmq_port=8082, workers=3), 2))
    [8081, 8082, 8083]
    """
    port = settings.rocketmq_port
    if not isinstance(port, int) or not port:
        return set()
    first = port - number + 1
    return set(range(first, first + settings.workers))


def read_assignment() -> Assignment:
    """Read this worker's assignment from standard input."""
    return msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)


def report_ready(ready: Ready) -> None:
    """Report to the supervisor that this worker accepts requests.

    What is printed from now on goes to standard error: the supervisor reads no more.
    """
    sys.stdout.buffer.write(msgspec.json.encode(ready) + b"\n")
    sys.stdout.buffer.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def watch_supervisor(loop: asyncio.AbstractEventLoop, on_gone: Callable[[], object]) -> None:
    """Call `on_gone` once the supervisor is gone."""

    def readable() -> None:
        if not os.read(sys.stdin.fileno(), _PIECE_BYTES):
            loop.remove_reader(sys.stdin.fileno())
            on_gone()

    loop.add_reader(sys.stdin.fileno(), readable)
