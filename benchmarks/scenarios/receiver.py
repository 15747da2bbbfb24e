"""A receiver that is down while messages are submitted.

The figure is the time from its return until everything is delivered. Down means that its port is closed. After the
return each message waits for its next attempt, whose time the server reports (`next_cron_time`); the bar counts from
the last of these times. A sample of the messages is queried just before the return. Messages that are not delivered
when their time has passed are queried again, because one more attempt may have failed in the last moments. The busiest
tenth of a second shows that the attempts are spread.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import datetime
from typing import Final

import msgspec

from benchmarks.load.run import Run
from benchmarks.load.waiting import until
from benchmarks.load.workload import Mode, Workload
from benchmarks.scenarios.figure import Figure, Stage, api, play
from benchmarks.servers.setups import store
from benchmarks.servers.started import Started
from twophase.http_client.client import HttpClient

MESSAGES: Final = 10_000
DOWN_S: Final = 8.0
_SAMPLED: Final = 300
_STRAGGLING_S: Final = 1.0
_PATIENCE_S: Final = 150.0
_BAR_S: Final = 5.0
_SAMPLE_S: Final = 0.1


class _Transaction(msgspec.Struct):
    next_cron_time: str = ""


class _Queried(msgspec.Struct):
    transaction: _Transaction | None = None


class _Remembering(Run):
    """A run that keeps its gids, so that the server can be queried about them."""

    gids: list[str]

    def _new_gid(self) -> bytes:
        gid = super()._new_gid()
        self.gids.append(gid.decode())
        return gid


def play_receiver_down(stage: Stage) -> list[Figure]:
    """Play the scenario of the module; `seconds` is how long the receiver is down."""
    messages, down_s = stage.size or MESSAGES, stage.seconds or DOWN_S
    with store(stage.kind, stage.directory) as made, made.served() as server:
        return play(_delivered(stage, server, messages, down_s))


async def _delivered(stage: Stage, server: Started, messages: int, down_s: float) -> list[Figure]:
    run = _Remembering(api(server.url), Workload(Mode.SUBMIT, drain_s=_PATIENCE_S))
    run.gids = []
    async with run.opened():
        run.sink.stop()
        stage.tell(f"{messages:,} submits while their receiver is down")
        stopped_s = time.perf_counter()
        await run.burst(messages)
        await asyncio.sleep(max(0.0, down_s - (time.perf_counter() - stopped_s)))
        last_due_s = await _last_due_s(server.url, run.gids)
        await run.sink.start()
        back_s, back_at_s = time.perf_counter(), time.time()
        wait_s = max(0.0, last_due_s - back_at_s)
        stage.tell(f"the receiver is back; the last next attempt is due in {wait_s:.1f} s")
        watching = asyncio.ensure_future(_watched(run, messages))
        await until(lambda: run.ledger.delivered >= messages, wait_s + _STRAGGLING_S)
        straggling = [run.gids[number] for number in run.ledger.waiting]
        wait_s = max(wait_s, await _last_due_s(server.url, straggling) - back_at_s)
        busiest, last_s = await watching
    passed_s = last_s - back_s
    return [
        Figure(f"{messages:,} submitted to a receiver that was down: last next attempt due after return", wait_s, "s"),
        Figure("all delivered after return", passed_s, "s"),
        Figure("all delivered after the last next attempt was due", max(0.0, passed_s - wait_s), "s", _BAR_S),
        Figure("of them tried once more just before it was back", len(straggling), "messages"),
        Figure("deliveries in the busiest 0.1 s", busiest / messages, "of all", 0.25),
        Figure("called more than once", run.ledger.duplicates, "messages"),
        Figure(f"not delivered within {_PATIENCE_S:g} s", messages - run.ledger.delivered, "messages", 0),
    ]


async def _watched(run: Run, messages: int) -> tuple[int, float]:
    """Return the most deliveries in one sample, and the time of the last.

    When the time is up, that moment stands instead of the last delivery's.
    """
    counts = [run.ledger.delivered]
    last_s = time.perf_counter()

    def all_there() -> bool:
        nonlocal last_s
        now_s = time.perf_counter()
        if now_s - last_s >= _SAMPLE_S or run.ledger.delivered >= messages:
            counts.append(run.ledger.delivered)
            last_s = now_s
        return run.ledger.delivered >= messages

    await until(all_there, _PATIENCE_S)
    return max(later - earlier for earlier, later in itertools.pairwise(counts)), last_s


async def _last_due_s(server_url: str, gids: list[str]) -> float:
    """Return the due time of the last of the next attempts, by a sample.

    It is in seconds since 1970.
    """
    client = HttpClient()
    last_s = 0.0
    try:
        for gid in gids[:: max(1, len(gids) // _SAMPLED)]:
            url = f"{server_url}/api/dtmsvr/query?gid={gid}"
            response = await client.fetch("GET", url, timeout_ms=10_000)
            found = msgspec.json.decode(response.body, type=_Queried).transaction
            if found is not None and found.next_cron_time:
                last_s = max(last_s, datetime.fromisoformat(found.next_cron_time).timestamp())
    finally:
        await client.close()
    return last_s
