"""One hostile client, as a process of its own.

`python -m benchmarks.scenarios.flood NAME HTTP_PORT GRPC_PORT` attacks until it is ended, as fast as the server lets
it. Each attack is one that stalled a server or used up its memory before there were bounds.
"""

from __future__ import annotations

import sys
from typing import Final

from benchmarks.scenarios.attacks import calls, handshakes, http2, requests
from benchmarks.scenarios.attacks.client import Attack
from benchmarks.scenarios.figure import play

ATTACKS: Final[dict[str, Attack]] = {
    "unfinished bodies": requests.unfinished_bodies,
    "unfinished gRPC calls": http2.unfinished_calls,
    "answers that never end": calls.answers_without_end,
    "refused requests, pipelined": requests.refused_requests,
    "offers to upgrade, pipelined": requests.upgrades,
    "bodies of 120 000 branches": requests.many_steps,
    "half heads": requests.half_heads,
    "nine silent receivers": calls.silent_receivers,
    "forty silent check addresses": calls.silent_check_addresses,
    "names that are unknown": calls.unknown_names,
    "HTTP/2 pings": http2.pings,
    "HTTP/2 frames of four kinds": http2.frames_of_four_kinds,
    "HTTP/2 frames of four kinds, below the limits": http2.frames_below_the_limits,
    "unfinished TLS handshakes": handshakes.unfinished,
}
OVER_TLS: Final = frozenset({"unfinished TLS handshakes"})
"""Those whose server has a certificate."""


def main() -> None:
    """Attack until the process is ended."""
    name, http, grpc = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    play(ATTACKS[name](http, grpc))


if __name__ == "__main__":
    main()
