"""One hostile client, as a process of its own.

`python -m benchmarks.scenarios.flood NAME HTTP_PORT GRPC_PORT [TOKEN]` attacks until it is ended, as fast as the server
lets it. Each attack is one that stalled a server or used up its memory before there were bounds, or would without them.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from benchmarks.scenarios.attacks import calls, compressed, handshakes, http2, owner, queues, requests
from benchmarks.scenarios.attacks.client import Play, Victim
from benchmarks.scenarios.figure import play


class Attack(msgspec.Struct, frozen=True):
    """One attack, and the server that it needs."""

    play: Play
    tls: bool = False
    """The server has a certificate."""
    token: str = ""
    """The client's entry in the server's file of tokens.

    Without one the server has no such file.
    """
    settings: tuple[str, ...] = ()
    """More settings of the server."""
    stores: tuple[str, ...] = ("sqlite",)
    port: str = "grpc_port"
    """The setting of the second port, which may be the one for RocketMQ's clients."""


OWNER: Final = "hostile"
BOUNDED: Final = "bounded"
"""The same with a quota of bytes."""
ROCKETMQ: Final = "rocketmq_port"
_BOTH: Final = ("sqlite", "postgres")

ATTACKS: Final[dict[str, Attack]] = {
    "unfinished bodies": Attack(requests.unfinished_bodies),
    "unfinished gRPC calls": Attack(http2.unfinished_calls),
    "answers that never end": Attack(calls.answers_without_end),
    "refused requests, pipelined": Attack(requests.refused_requests),
    "offers to upgrade, pipelined": Attack(requests.upgrades),
    "bodies of 120 000 branches": Attack(requests.many_steps),
    "half heads": Attack(requests.half_heads),
    "answers that are not read": Attack(requests.unread_answers),
    "requests that drip, at both ports": Attack(requests.drips),
    "nine silent receivers": Attack(calls.silent_receivers),
    "forty receivers that drip": Attack(calls.dripping_receivers),
    "receivers that refuse, each a new one": Attack(calls.refusing_receivers, settings=("log_level=info",)),
    "forty silent check addresses": Attack(calls.silent_check_addresses),
    "names that are unknown": Attack(calls.unknown_names),
    "HTTP/2 pings": Attack(http2.pings),
    "HTTP/2 frames of four kinds": Attack(http2.frames_of_four_kinds),
    "HTTP/2 frames of four kinds, below the limits": Attack(http2.frames_below_the_limits),
    "HTTP/2 frames of five more kinds": Attack(http2.frames_of_five_kinds),
    "compressed gRPC messages": Attack(compressed.submits),
    "compressed gRPC reflection": Attack(compressed.reflection),
    "unfinished TLS handshakes": Attack(handshakes.unfinished, tls=True),
    "finished TLS handshakes": Attack(handshakes.finished, tls=True),
    "large messages for 300 silent receivers": Attack(calls.large_messages_for_silent_receivers),
    "four receivers of answers that never end": Attack(calls.four_receivers_of_long_answers),
    "requests of forty connections, pipelined": Attack(requests.requests_of_forty_connections),
    "messages of forty connections, pipelined": Attack(requests.messages_of_forty_connections),
    "calls of forty gRPC connections": Attack(http2.calls_of_forty_connections),
    "RocketMQ streams that never read": Attack(queues.streams_that_never_read, port=ROCKETMQ),
    "RocketMQ messages that wait": Attack(queues.messages_that_wait, port=ROCKETMQ),
    "RocketMQ long polls": Attack(queues.long_polls, port=ROCKETMQ),
    "RocketMQ bodies that are not read": Attack(queues.bodies_that_are_not_read, port=ROCKETMQ),
    "undecided RocketMQ halves": Attack(queues.undecided_halves, port=ROCKETMQ),
    "RocketMQ acknowledgements of 30 000 receipts": Attack(queues.acknowledgements_of_many, port=ROCKETMQ),
    "RocketMQ credentials of 60 kB, where tokens are needed": Attack(
        queues.long_credentials, token=OWNER, port=ROCKETMQ
    ),
    "with a token, silent receivers": Attack(calls.silent_receivers, token=OWNER, stores=_BOTH),
    "with a token, large bodies": Attack(owner.large_bodies, token=OWNER, stores=_BOTH),
    "with a token, a store to be filled": Attack(owner.stored_bytes, token=OWNER, stores=_BOTH),
    "with a token, its quota of bytes": Attack(owner.stored_bytes, token=BOUNDED, stores=_BOTH),
    "with a token, 500 messages a request": Attack(owner.many_at_once, token=OWNER, stores=_BOTH),
    "with a token, pages and queries": Attack(owner.pages_and_queries, token=OWNER, stores=_BOTH),
    "with a token, a finished message again": Attack(owner.decided_again, token=OWNER, stores=_BOTH),
}


def main() -> None:
    """Attack until the process is ended; a line says that it begins."""
    name, http, grpc, *token = sys.argv[1:]
    print("attacks", flush=True)
    play(ATTACKS[name].play(Victim(int(http), int(grpc), *token)))


if __name__ == "__main__":
    main()
