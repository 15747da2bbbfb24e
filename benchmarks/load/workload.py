"""The work of a run, and the bytes that it sends.

Everything that is the same for every message is written beforehand. A message costs the generator two concatenations:
head and body. Its number travels in the payload, so that the sink finds the message of a call at a fixed offset,
independent of the server's treatment of URLs and headers.
"""

from __future__ import annotations

import enum
import json
import random
import time
from collections.abc import Callable
from typing import Final

import msgspec

from twophase.core.errors import ConfigurationError
from twophase.core.gid import GID_CHARACTERS, make_gid
from twophase.core.limits import BRANCHES_MAX, PAYLOAD_BYTES_MAX
from twophase.http_client.address import Address

FIRST_NUMBER: Final = 1_000_000_000
NUMBER_AT: Final = 11
NUMBER_DIGITS: Final = 10
PAYLOAD_BYTES_MIN: Final = NUMBER_AT + NUMBER_DIGITS + 1
BRANCH_DIGITS: Final = 2
_PAD: Final = len(',"pad":""')
_BRANCHES_MAX: Final = min(99, BRANCHES_MAX.value)
_BASE32: Final = bytes(b"0123456789abcdefghjkmnpqrstvwxyz"[byte & 31] for byte in range(256))


class Mode(enum.Enum):
    """The kind of every message of a run."""

    PAIR = "pair"
    """A 2-phase message without its business transaction.

    It is prepare, submit, and the call of every branch."""
    SUBMIT = "submit"
    """submit alone, every branch called: a plain message."""
    PREPARE = "prepare"
    """prepare alone; the prepared messages are aborted when the run is over."""
    APP = "app"
    """A whole transfer by the SDK.

    It is prepare, the business transaction with its barrier row, and submit."""


class Workload(msgspec.Struct, frozen=True):
    """One run. `rate` 0 saturates: every connection sends as soon as it is answered."""

    mode: Mode = Mode.PAIR
    connections: int = 128
    rate: float = 0.0
    seconds: float = 5.0
    warmup_s: float = 1.0
    payload_bytes: int = 28
    branches: int = 1
    durability: str = ""
    receiver_port: int = 0
    """The port of the branch service; 0 is a free one."""
    timeout_to_fail_s: int = 0
    """Seconds from prepare to the first check-back; 0 is the server's default."""
    drain_s: float = 90.0
    """Time after the end for the messages under way.

    It is longer than any pause of the coordinator between two calls of a branch (a minute), so that a late message does
    not count as lost."""

    def check(self) -> Workload:
        """Return the workload itself when it can be run.

        Raises:
            ConfigurationError: it cannot; the text names what to write instead.
        """
        bounds = (
            ("connections", self.connections, 1, 10_000),
            ("rate", self.rate, 0, 1_000_000),
            ("seconds", self.seconds, 0.1, 86_400),
            ("payload", self.payload_bytes, PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX.value),
            ("branches", self.branches, 1, _BRANCHES_MAX),
        )
        for name, value, low, high in bounds:
            if not low <= value <= high:
                raise ConfigurationError(f"--{name} {value:g}: from {low:g} to {high:g} is possible.")
        if self.durability not in {"", "submit", "check-back"}:
            raise ConfigurationError(f"--durability {self.durability}: submit or check-back is possible.")
        return self


Bodies = Callable[[bytes, int], bytes]
"""A writer of the requests' body of one message, by gid and number."""


def steps(workload: Workload, sink_url: str) -> list[dict[str, str]]:
    """Return the branches of each message."""
    return [{"action": f"{sink_url}/{branch + 1:0{BRANCH_DIGITS}}"} for branch in range(workload.branches)]


def payload(workload: Workload, number: str) -> str:
    """Return the payload of each branch.

    It has `workload.payload_bytes` bytes once its number has its digits.
    """
    pad = workload.payload_bytes - PAYLOAD_BYTES_MIN - _PAD
    filling = f',"pad":"{"x" * pad}"' if pad >= 0 else " " * (workload.payload_bytes - PAYLOAD_BYTES_MIN)
    return f'{{"message":{number}{filling}}}'


class Template:
    """The requests of a workload, complete except for gid and number.

    Arguments:
        server: receives the requests.
        workload: describes the messages.
        sink_url: `http://host:port/token`, the address of branches and check-backs.
    """

    def __init__(self, server: Address, workload: Workload, sink_url: str) -> None:
        request: dict[str, object] = {
            "gid": "@gid@",
            "trans_type": "msg",
            "steps": steps(workload, sink_url),
            "payloads": [payload(workload, "@number@")] * workload.branches,
            "query_prepared": f"{sink_url}/check",
        }
        if workload.durability:
            request["durability"] = workload.durability
        if workload.timeout_to_fail_s:
            request["timeout_to_fail"] = workload.timeout_to_fail_s
        text = json.dumps(request, separators=(",", ":")).replace("%", "%%")
        self._body = text.replace("@gid@", "%b").replace("@number@", "%d").encode()
        self._branches = workload.branches
        length = len(self.body(b"g" * GID_CHARACTERS, 0))
        self.prepare_head = _head(server, "prepare", length)
        self.submit_head = _head(server, "submit", length)
        self.abort_head = _head(server, "abort", length)

    def body(self, gid: bytes, number: int) -> bytes:
        """Return the body of prepare, submit and abort of one message."""
        if self._branches == 1:
            return self._body % (gid, FIRST_NUMBER + number)
        return self._body % (gid, *[FIRST_NUMBER + number] * self._branches)


def _head(server: Address, route: str, length: int) -> bytes:
    path = f"{server.path.rstrip('/')}/{route}"
    lines = f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    return f"POST {path}{server.end_of_line}{lines}".encode()


class Gids:
    """A cheap source of new gids of twophase's form.

    The time part is made once a millisecond, the rest from one random draw.

    >>> from twophase.core.gid import born_ms
    >>> abs(born_ms(Gids().new().decode()) - time.time() * 1000) < 1000
    True
    """

    __slots__ = ("_born", "_ms")

    def __init__(self) -> None:
        self._ms = 0
        self._born = b""

    def new(self) -> bytes:
        """Return one gid."""
        ms = time.time_ns() // 1_000_000
        if ms != self._ms:
            self._ms = ms
            self._born = make_gid(ms, bytes(10)).encode()[:-16]
        return self._born + random.randbytes(16).translate(_BASE32)
