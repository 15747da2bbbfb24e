"""The table of every scenario, with its name and its purpose."""

from __future__ import annotations

from typing import Final

import msgspec

from benchmarks.scenarios.abandoned import play_abandoned
from benchmarks.scenarios.checks import play_checks
from benchmarks.scenarios.cleaning import play_cleaning
from benchmarks.scenarios.crossing import play_crossing
from benchmarks.scenarios.figure import Scenario
from benchmarks.scenarios.filled import play_filled
from benchmarks.scenarios.floods import play_floods
from benchmarks.scenarios.latency import play_latency
from benchmarks.scenarios.memory import play_memory
from benchmarks.scenarios.plain import play_plain
from benchmarks.scenarios.receiver import play_receiver_down
from benchmarks.scenarios.rocketmq import play_rocketmq
from benchmarks.scenarios.sdk import play_sdk
from benchmarks.scenarios.sizes import play_sizes
from benchmarks.scenarios.stalled import play_stalled
from benchmarks.scenarios.start import play_start

_HEEDED: Final = frozenset({"setup", "directory", "size", "seconds"})


class Entry(msgspec.Struct, frozen=True):
    """One scenario. `heeds` names the options of the command that change it."""

    play: Scenario
    summary: str
    heeds: frozenset[str] = _HEEDED

    @property
    def stores(self) -> bool:
        """Return whether it is played on a store."""
        return "setup" in self.heeds


SCENARIOS: Final[dict[str, Entry]] = {
    "latency": Entry(play_latency, "500 msg/s, open loop: what a user waits for"),
    "grpc": Entry(play_plain, "over gRPC, beside a coordinator that commits once a call"),
    "rocketmq": Entry(play_rocketmq, "transactions, orphans and idle consumers of RocketMQ's clients, beside echoes"),
    "crossing": Entry(
        play_crossing,
        "messages prepared at one node and submitted at another, beside the same node",
        _HEEDED - {"size"},
    ),
    "sdk": Entry(play_sdk, "CPU of the SDK for prepare and submit, sync and async", frozenset({"size"})),
    "filled": Entry(play_filled, "throughput with 1 M live and 5 M finished messages in the store"),
    "abandoned": Entry(play_abandoned, "10 000 prepares whose producers died; one producer hangs"),
    "receiver-down": Entry(play_receiver_down, "10 000 messages for a receiver that is down, and comes back"),
    "cleaning": Entry(play_cleaning, "throughput while old history is removed, beside nothing to remove"),
    "sizes": Entry(play_sizes, "payloads of 1 KiB to 1 MiB and 1 to 63 branches: what a byte and a branch cost"),
    "memory": Entry(play_memory, "memory when idle and saturated, and whether it grows", _HEEDED - {"size"}),
    "start": Entry(
        play_start,
        "from the command to ready, on an empty store and on a full one, half of it due",
        _HEEDED - {"seconds"},
    ),
    "checks": Entry(
        play_checks, "throughput with tokens and signed calls, beside a server without", _HEEDED - {"size"}
    ),
    "floods": Entry(play_floods, "one hostile client beside an ordinary one, by forty-one attacks"),
    "stalled": Entry(play_stalled, "a receiver that never answers, at 2 000 msg/s for 5 minutes"),
}
