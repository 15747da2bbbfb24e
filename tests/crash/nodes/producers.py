"""Producers of every kind: they commit, roll back, die, or are late.

Any number runs at a time. They speak the public wire through the round-robin, each request on any free connection, so
that the prepare and the submit of one message mostly reach different nodes. A request without an answer is repeated
with the same gid.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import json
import random

from tests.crash.nodes.ledger import Fate, Ledger

_ANSWER_S = 1.5
_PAUSE_S = 0.05
_TRIES_MAX = 40
_REQUESTS_A_CONNECTION = 100


class Kind(enum.Enum):
    """The behaviour of a producer."""

    COMMITS = "commits and submits"
    ROLLS_BACK = "rolls back and aborts"
    DIES_COMMITTED = "commits, and dies before submit"
    DIES_PREPARED = "prepares, and dies"
    LATE = "begins after the check-back may have come"
    SLOW = "commits while the check-back asks"
    PLAIN = "submits without prepare"
    EARLY = "commits and submits, and the submit counts before it is stored"
    EARLY_DIES = "commits, its early submit is heard once, and it dies"


_WEIGHTS = {
    Kind.COMMITS: 46,
    Kind.ROLLS_BACK: 10,
    Kind.DIES_COMMITTED: 7,
    Kind.DIES_PREPARED: 4,
    Kind.LATE: 3,
    Kind.SLOW: 3,
    Kind.PLAIN: 7,
    Kind.EARLY: 14,
    Kind.EARLY_DIES: 6,
}
_EARLY = {Kind.EARLY, Kind.EARLY_DIES}


class _Unanswered(Exception):
    """No answer: whether the request arrived is unknown."""


class Wire:
    """Connections to the round-robin; any free one serves any request."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self._port = port
        self._chance = chance
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, int]] = []

    async def ask(self, what: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer.

        Raises:
            _Unanswered: none came.
        """
        head = f"POST /api/dtmsvr/{what} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_ANSWER_S):
                if self._free:
                    reader, writer, used = self._free.pop(self._chance.randrange(len(self._free)))
                else:
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                    used = 0
                writer.write(head.encode() + body)
                answer = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
                text = await reader.readexactly(length)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            if writer is not None:
                writer.transport.abort()
            raise _Unanswered from error
        if used + 1 < _REQUESTS_A_CONNECTION and b"connection: close" not in answer:
            self._free.append((reader, writer, used + 1))
        else:
            writer.close()
        return int(answer.split(b" ", 2)[1]), text

    def close(self) -> None:
        """Close the free connections."""
        for _, writer, _ in self._free:
            writer.transport.abort()
        self._free.clear()


class Producers:
    """The load.

    Arguments:
        ledger: where they write down what they did.
        wire: to the nodes.
        partners_port: where they and the branches can be asked.
        chance: decides who behaves how.
        name: the beginning of every gid.
    """

    def __init__(self, ledger: Ledger, wire: Wire, partners_port: int, chance: random.Random, name: str) -> None:
        self._ledger = ledger
        self._wire = wire
        self._partners = f"http://127.0.0.1:{partners_port}"
        self._chance = chance
        self._name = name
        self._numbers = itertools.count()
        self._late: set[asyncio.Task[None]] = set()
        self._kinds, self._weights = list(_WEIGHTS), list(_WEIGHTS.values())
        self.enough = asyncio.Event()

    async def run(self, at_a_time: int) -> None:
        """Send until there is enough; then complete what was begun."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_a_time):
                group.create_task(self._work())
        while self._late:
            await asyncio.wait(self._late)

    async def _work(self) -> None:
        while not self.enough.is_set():
            [kind] = self._chance.choices(self._kinds, self._weights)
            number = next(self._numbers)
            gid = f"{self._name}-{number}"
            branches = 2 if number % 10 == 3 else 1
            self._ledger.open(gid, branches, plain=kind is Kind.PLAIN)
            if kind in {Kind.LATE, Kind.SLOW}:
                task = asyncio.get_running_loop().create_task(self._live(kind, gid, branches))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
            else:
                await self._live(kind, gid, branches)

    async def _live(self, kind: Kind, gid: str, branches: int) -> None:
        ledger, record = self._ledger, self._ledger.records[gid]
        body = self._body(kind, gid, branches)
        if kind is Kind.PLAIN:
            record.settled = await self._insist("submit", body, gid)
            return
        record.prepared = await self._insist("prepare", body, gid, tries=6)
        if not record.prepared or kind is Kind.DIES_PREPARED:
            return
        if kind is Kind.LATE:
            await asyncio.sleep(self._chance.uniform(1.0, 3.0))
        if not ledger.begin(gid):
            ledger.counts["barred"] += 1
            return
        await asyncio.sleep(self._chance.uniform(1.0, 2.5) if kind is Kind.SLOW else 0)
        if kind is Kind.ROLLS_BACK:
            ledger.end(gid, Fate.ROLLED_BACK)
            record.settled = await self._insist("abort", body, gid)
            return
        ledger.end(gid, Fate.COMMITTED)
        if kind is not Kind.DIES_COMMITTED:
            tries = 1 if kind is Kind.EARLY_DIES else _TRIES_MAX
            record.settled = await self._insist("submit", body, gid, tries)
            ledger.counts["check-back submits acknowledged"] += record.settled and kind in _EARLY

    async def _insist(self, what: str, body: bytes, gid: str, tries: int = _TRIES_MAX) -> bool:
        """Send until it is acknowledged or the tries are used up.

        Returns True when it was acknowledged.
        """
        counts = self._ledger.counts
        for _ in range(tries):
            with contextlib.suppress(_Unanswered):
                status, text = await self._wire.ask(what, body)
                counts[f"{what} {status}"] += 1
                if status == 200 or (what == "submit" and status == 409 and _state(text) == "succeed"):
                    return True
                if what == "prepare" and status == 409:
                    # The first try was received, and its check-back has been answered since: never begin.
                    return False
                if status != 503:
                    self._ledger.wrong.append(f"{gid}: {what} was answered {status}: {text.decode()[:200]}")
                    return False
            await asyncio.sleep(_PAUSE_S)
        counts[f"{what} given up"] += 1
        return False

    def _body(self, kind: Kind, gid: str, branches: int) -> bytes:
        plain = kind is Kind.PLAIN
        message = {
            "gid": gid,
            "trans_type": "msg",
            "steps": [{"action": f"{self._partners}/in"}] * branches,
            "payloads": ['{"amount":1}'] * branches,
            "query_prepared": "" if plain else f"{self._partners}/check",
            "timeout_to_fail": 1,
            "durability": "check-back" if kind in _EARLY else "submit",
        }
        return json.dumps(message).encode()


def _state(text: bytes) -> object:
    return json.loads(text).get("state")
