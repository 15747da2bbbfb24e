"""The requests of queues, sent by clients that own nothing there.

They are sent at every door, by every kind of client, with the names and the client id of the owner's.

Another owner's message, half message or receipt is answered as an unknown one or, where the request would make or
decide the message, as a taken one, in the same words whatever its state is. No request of another changes a message
or ends a poll, and no question reaches another. Groups of consumers have no owner: a token with `consume` and without
destinations reads every topic for every group, so the consumers here have destinations. A route that is in no row of
this matrix or of `test_owner_matrix.py` fails there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc.aio
import pytest

from tests.integration.server.queue_requests import (
    ASKS,
    CLAIMS,
    ENDS,
    GROUP,
    HALVES,
    LETTERS,
    LISTS,
    MATRIX,
    METHOD,
    NAMES,
    OTHERS_TOPIC,
    READS,
    RECEIPTS,
    TOPIC,
    Asked,
    Thing,
)
from tests.integration.server.running import Running, running
from tests.support.fake_coordinator import Client, get, post
from tests.support.identities import bearer, token_of, write
from tests.support.queue_api import PATIENCE_S, queue_api_of
from tests.support.rocketmq_wire import HALF, STREAMS, Wire, message, packed, seconds, settings_command
from tests.support.waiting import until
from twophase.core.errors import Forbidden, Unauthenticated
from twophase.core.queue_api import LEAVE_PATH, PREFIX
from twophase.core.queue_message import gid_of
from twophase.rocketmq_wire.codes import Code, MessageType
from twophase.rocketmq_wire.descriptors import kind
from twophase.server.identity.scopes import Scope, scopes_of

HEADER, BASE_URL, ROCKETMQ = "token in a header", "token in the base URL", "RocketMQ's port"
CHECK_MS: Final = 3_000_000
DAY_MS: Final = 86_400_000
POLLS: Final = 3
SETTINGS: Final[dict[str, Any]] = {
    "rocketmq_port": 0,
    "timeout_to_fail_ms": CHECK_MS,
    "check_back_first_ms": CHECK_MS,
    "check_back_cap_ms": CHECK_MS,
}

STRANGERS: Final[dict[str, tuple[tuple[Scope, ...], str, tuple[str, ...]]]] = {
    "another-producer": ((Scope.PRODUCE,), "", ()),
    "producer-with-a-prefix": ((Scope.PRODUCE,), "own-", ()),
    "consumer-of-another-topic": ((Scope.PRODUCE, Scope.CONSUME), "", (f"queue://{OTHERS_TOPIC}",)),
    "observer": ((Scope.PRODUCE, Scope.OBSERVE, Scope.PAYLOAD, Scope.TOPICS), "", ()),
    "operator-with-a-prefix": (tuple(Scope), "own-", (f"queue://{OTHERS_TOPIC}",)),
}
"""Clients that own no message here: their scopes, gid prefix and destinations."""
ANONYMOUS: Final = "anonymous"
"""A client without a token."""
STATES: Final = ("waiting", "committed", "rolled-back", "delayed", "kept", "given", "done")
DELIVERED: Final = ("kept", "given", "done")
TAKEN: Final = "the gid is taken."
VARYING: Final = re.compile(r'"now_ms":[0-9]+|^date: .*$', re.MULTILINE)


class Doors:
    """The doors of a server, for the clients of this file; all call themselves `me`."""

    def __init__(self, server: Running) -> None:
        self.server = server
        (url,) = [url for url in server.server.urls if url.startswith("rocketmq://")]
        self._address = url.removeprefix("rocketmq://")
        self._wires: dict[str, Wire] = {}

    def wire(self, name: str) -> Wire:
        """Return a client's connection to RocketMQ's port."""
        if name not in self._wires:
            self._wires[name] = Wire(self._address, "" if name == ANONYMOUS else token_of(name))
        return self._wires[name]

    async def close(self) -> None:
        for wire in self._wires.values():
            await wire.close()

    def session(self, name: str) -> Any:
        """Return what the server knows of a client; None for nothing."""
        return self.server.server.sessions._known.get(f"{name}/me")

    async def ask(self, door: str, name: str, route: str, asked: Asked, thing: Thing) -> str:
        """Return all of an answer, with the names of the thing replaced by what they are."""
        if door == ROCKETMQ:
            text = await self._called(name, route.rpartition("/")[2], asked.fields(thing))
        else:
            text = await self._http(door, name, route, asked, thing)
        for value, what in zip(thing[:5], thing._fields, strict=False):
            text = text.replace(value or "no such value", f"{{{what}}}")
        return text

    async def _http(self, door: str, name: str, route: str, asked: Asked, thing: Thing) -> str:
        prefix = f"/t/{token_of(name)}" if door == BASE_URL else ""
        path = f"{prefix}{route.replace('{name:path}', thing.group)}{asked.query}"
        headers = bearer(name) if door == HEADER and name != ANONYMOUS else ()
        body = json.dumps(asked.fields(thing)).encode()
        client = Client(*await asyncio.open_connection("127.0.0.1", self.server.port))
        try:
            await client.send(get(path, *headers) if asked.kind == LISTS else post(path, body, *headers))
            response = await client.response(timeout_s=PATIENCE_S)
        finally:
            client.close()
        return VARYING.sub("", f"{response.status} {response.body.decode()}")

    async def _called(self, name: str, method: str, fields: dict[str, Any]) -> str:
        wire = self.wire(name)
        if method == "ReceiveMessage":
            return str([str(part) for part in await wire.receive(**fields) if not part.HasField("delivery_timestamp")])
        if method not in STREAMS:
            return str(await wire.ask(method, **fields))
        stream, answer = await self.stream(name, packed("TelemetryCommand", **fields))
        stream.cancel()
        return str(answer)

    async def stream(self, name: str, settings: bytes) -> tuple[Any, Any]:
        """Open a stream, and send settings over it; return it and the first answer."""
        stream = self.wire(name).telemetry()
        answer = asyncio.ensure_future(stream.read())
        with contextlib.suppress(grpc.aio.AioRpcError):  # a refused stream has ended before
            await stream.write(settings)
        async with asyncio.timeout(PATIENCE_S):
            return stream, await answer


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    tokens = write(tmp_path, "owner", [Scope.PRODUCE, Scope.CONSUME, Scope.OBSERVE])
    write(tmp_path, "operator", [Scope.OBSERVE, Scope.OPERATE, Scope.PAYLOAD])
    for name, (scopes, prefix, destinations) in STRANGERS.items():
        write(tmp_path, name, scopes, gid_prefix=prefix, destinations=destinations)
    async with running(tmp_path, tokens=tokens, **SETTINGS) as server:
        doors = Doors(server)
        yield doors
        await doors.close()


def _doors_of(route: str, name: str) -> tuple[str, ...]:
    """Return the doors of a client; in the base URL a token may only produce."""
    if route.startswith(METHOD):
        return (ROCKETMQ,)
    in_url = name in STRANGERS and STRANGERS[name][0] == (Scope.PRODUCE,) and Scope.PRODUCE in scopes_of(route)
    return (HEADER, BASE_URL) if in_url else (HEADER,)


def _is_accepted(door: str, answer: str) -> bool:
    return f"code: {Code.OK.value}\n" in answer if door == ROCKETMQ else answer.startswith("200 ")


async def _made(doors: Doors) -> dict[str, Thing]:
    """Make a message of the owner in each state, and a dead letter."""
    tomorrow = kind("google.protobuf.Timestamp")()
    tomorrow.FromMilliseconds(doors.server.clock.now_ms() + DAY_MS)
    kinds: dict[str, dict[str, Any]] = dict.fromkeys(("waiting", "committed", "rolled-back"), HALF)
    kinds["delayed"] = {"message_type": MessageType.DELAY, "delivery_timestamp": tomorrow}
    gids: dict[str, str] = {}
    for state in ("kept", "given", "done", "dead", "waiting", "committed", "rolled-back", "delayed"):
        gids[state] = await _send(doors, state, **kinds.get(state, {}))
        assert gids[state] == gid_of("", TOPIC, f"id-{state}")
    received = {**await _received(doors, batch_size=1, auto_renew=True), **await _received(doors, batch_size=3)}
    async with queue_api_of(doors.server.port, token="owner") as api:
        assert await api.outcomes(f"{PREFIX}ack", received["done"]) == [""]
        assert await api.of(f"{PREFIX}dead-letter", received["dead"]) == (200, "")
        for decision, state in (("commit", "committed"), ("rollback", "rolled-back")):
            assert await api.decide(gids[state], decision) == (200, "")
    return {state: Thing(f"id-{state}", gids[state], received.get(state, "")) for state in STATES}


async def _received(doors: Doors, **fields: Any) -> dict[str, str]:
    """Receive as the owner; return the receipts by state."""
    fields = {"invisible_duration": seconds(3600)} | fields
    found = [part.message.system_properties for part in await doors.wire("owner").receive(**fields)]
    return {one.message_id.removeprefix("id-"): one.receipt_handle for one in found if one.message_id}


def _unknown(things: dict[str, Thing]) -> Thing:
    """Return a message that does not exist; its receipt has the form of one."""
    first, place, *_ = things["given"].receipt.split("-")
    return Thing("id-unknown", f"queue-{32 * '0'}", f"{first}-{place}-0-77-7777", "nosuch-topic", "nosuch-group", 99)


async def _stored(doors: Doors, things: dict[str, Thing]) -> list[Any]:
    """Return all that is known of the owner's messages, deliveries and letters."""
    one = things["waiting"]
    shown = [
        await doors.ask(HEADER, name, route, asked, one)
        for route, name in ((HALVES, "owner"), (LETTERS, "operator"))
        for asked in MATRIX[route]
    ]
    views = [await doors.server.view(thing.gid) for thing in things.values()]
    served = doors.server.server.coordinator.queues.serving.served(topic=TOPIC)
    deliveries = {
        (key, queue): (
            cursor.done.pairs,
            {number: (at.attempts, at.receipt, at.until_ms, at.client_id) for number, at in cursor.undone.items()},
        )
        for key, subscription in served.items()
        for queue, cursor in subscription.cursors.items()
    }
    return [*shown, views, deliveries]


def _asked_about(asked: Asked, things: dict[str, Thing]) -> list[Thing]:
    if asked.kind == RECEIPTS:
        delivered = [things[state] for state in DELIVERED]
        return delivered + [thing._replace(topic=OTHERS_TOPIC) for thing in delivered]
    return list(things.values()) if asked.kind in {READS, CLAIMS} else [things["waiting"]]


async def test_a_strangers_request_is_answered_as_for_nothing_and_changes_nothing(doors: Doors) -> None:
    stream = await doors.wire("owner").settle()
    cells = [
        (route, asked, name, door)
        for route, rows in MATRIX.items()
        for asked in rows
        if asked.kind not in {ASKS, ENDS}
        for name in (*STRANGERS, ANONYMOUS)
        for door in _doors_of(route, name)
    ]
    nothing = Thing("id-none", "gid-none")
    empty = {cell: await doors.ask(cell[3], cell[2], *cell[:2], nothing) for cell in cells if cell[1].kind == LISTS}
    things = await _made(doors)
    unknown = _unknown(things)
    before = await _stored(doors, things)

    for number, cell in enumerate(cells):
        route, asked, name, door = cell
        where = f"{name}, {door}, {route}, row {MATRIX[route].index(asked)}"
        first, *others = _asked_about(asked, things)
        answer = await doors.ask(door, name, route, asked, first)
        for other in others:
            found = await doors.ask(door, name, route, asked, other)
            if asked.kind != RECEIPTS or other.topic == first.topic:
                assert found == answer, f"{where}: {other}"
            else:
                unmade = unknown._replace(topic=other.topic)
                assert found == await doors.ask(door, name, route, asked, unmade), f"{where}: {other}"
        if asked.kind == LISTS:
            assert answer == empty[cell], where
        elif asked.kind == CLAIMS:
            _require_taken(door, name, answer, where)
        else:
            assert answer == await doors.ask(door, name, route, asked, unknown), where
        if number + 1 == len(cells) or cells[number + 1][0] != route:
            assert await _stored(doors, things) == before, route
    stream.cancel()


def _require_taken(door: str, name: str, answer: str, where: str) -> None:
    """Demand the refusal of a gid that is taken, or that the token may not name."""
    assert not _is_accepted(door, answer), f"{where}: {answer}"
    _, prefix, destinations = STRANGERS.get(name, ((), "", ()))
    wanted = {Unauthenticated.code} if name == ANONYMOUS else {Forbidden.code} if prefix else {TAKEN}
    wanted |= {Forbidden.code} if destinations else set()
    assert [one for one in wanted if one in answer], f"{where}: {answer}"


async def test_the_same_request_of_who_may_send_it_finds_something(doors: Doors) -> None:
    """Prove the matrix: each request finds what is the owner's, or is accepted."""
    rows = [(route, asked) for route in MATRIX for asked in MATRIX[route] if asked.finder]
    nothing = Thing("id-none", "gid-none")
    empty = {row: await doors.ask(HEADER, row[1].finder, *row, nothing) for row in rows if row[1].kind == LISTS}
    stream = await doors.wire("owner").settle()
    things = await _made(doors)
    unknown = _unknown(things)

    for number, (route, asked) in enumerate(rows):
        door = ROCKETMQ if route.startswith(METHOD) else HEADER
        if asked.kind == LISTS:
            assert (
                await doors.ask(door, asked.finder, route, asked, unknown._replace(group=GROUP)) != empty[route, asked]
            )
        elif asked.kind == NAMES:
            assert _is_accepted(door, await doors.ask(door, asked.finder, route, asked, things["waiting"])), route
        elif asked.kind == RECEIPTS:
            answer = await doors.ask(door, asked.finder, route, asked, await _given(doors, str(number)))
            assert _is_accepted(door, answer), f"{route}: {answer}"
            assert '"code":"TP' not in answer, f"{route}: {answer}"
        elif asked.kind in {READS, CLAIMS}:
            await _send(doors, str(number))  # so that there is one to receive
            answers = [await doors.ask(door, asked.finder, route, asked, thing) for thing in things.values()]
            assert not [one for one in answers if TAKEN in one or Forbidden.code in one], f"{route}: {answers}"
            missing = await doors.ask(door, asked.finder, route, asked, unknown)
            assert [one for one in answers if one != missing], f"{route}: {missing}"
    stream.cancel()


async def _given(doors: Doors, name: str) -> Thing:
    """Send a message of this name; return it when the owner has received it."""
    gid = await _send(doors, name)
    receipts = await _received(doors, batch_size=32)
    return Thing(f"id-{name}", gid, receipts[name])


async def _send(doors: Doors, name: str, **system: Any) -> str:
    """Send a message of the owner's; return its gid."""
    sent = await doors.wire("owner").ask("SendMessage", messages=[message(f"id-{name}", **system)])
    assert sent.status.code == Code.OK, sent
    return str(sent.entries[0].transaction_id)


async def test_no_stranger_is_asked_a_question(doors: Doors) -> None:
    """Let all wait for the same group and topic before the owner does."""
    one = Thing("id-1", "")
    async with queue_api_of(doors.server.port, "over-http", token="owner") as api:
        halves = {await _send(doors, "1", **HALF), await api.half(f"queue://{TOPIC}?id=2", group=GROUP)}
        polls, streams, refused = [], {}, []
        for name in (*STRANGERS, ANONYMOUS):
            for route, asked in _rows(ASKS):
                for door in _doors_of(route, name):
                    if door != ROCKETMQ:
                        polls.append((name, asyncio.ensure_future(doors.ask(door, name, route, asked, one))))
                        continue
                    settings = settings_command(**asked.fields(one))
                    stream, answer = await doors.stream(name, settings)
                    if answer.status.code == Code.OK:
                        streams[name] = (stream, settings)
                    else:
                        refused.append(name)
        assert refused == ["consumer-of-another-topic", "operator-with-a-prefix", ANONYMOUS]
        await until(lambda: all(doors.session(name) is not None and doors.session(name).is_live for name in STRANGERS))
        doors.server.advance(CHECK_MS + 1)
        producers = doors.server.server.coordinator._dispatcher.producers
        await until(lambda: producers._waits_for.keys() == halves)

        stream = await doors.wire("owner").settle()
        async with asyncio.timeout(PATIENCE_S):
            question = (await stream.read()).recover_orphaned_transaction_command
        found = await api.questions(group=GROUP, wait_ms=60_000)
        assert {question.transaction_id, *(one["transaction_id"] for one in found)} == halves
    await _require_no_answer_by_strangers(doors, Thing("id-1", question.transaction_id))
    for other, settings in streams.values():
        await other.write(settings)
        async with asyncio.timeout(PATIENCE_S):
            assert (await other.read()).HasField("settings"), "nothing came before"
        other.cancel()
    for name in STRANGERS:
        async with queue_api_of(doors.server.port, token=name) as leaving:
            await leaving.done(LEAVE_PATH, client="me")
    for name, poll in polls:
        answer = await poll
        assert answer.startswith("401 ") if name == ANONYMOUS else '"questions":[]' in answer, f"{name}: {answer}"
    stream.cancel()


async def _require_no_answer_by_strangers(doors: Doors, half: Thing) -> None:
    """Demand that no answer tells a stranger of a question."""
    unasked = Thing("id-unasked", await _send(doors, "unasked", **HALF))
    before = await doors.server.view(half.gid)
    for route in (f"{PREFIX}decide", f"{METHOD}EndTransaction"):
        for asked in MATRIX[route]:
            for name in (*STRANGERS, ANONYMOUS):
                for door in _doors_of(route, name):
                    answers = [await doors.ask(door, name, route, asked, one) for one in (half, unasked)]
                    assert answers[0] == answers[1], f"{name}, {door}, {route}, row {MATRIX[route].index(asked)}"
    assert await doors.server.view(half.gid) == before
    assert doors.server.server.coordinator._dispatcher.producers.is_asked(half.gid)


async def test_no_stranger_ends_a_poll_or_a_stream(doors: Doors) -> None:
    one, wire = Thing("id-1", ""), doors.wire("owner")
    settings = MATRIX[f"{METHOD}Telemetry"][1]
    async with queue_api_of(doors.server.port, token="owner") as api:
        stream = await wire.settle()
        for route, asked in _rows(ENDS):
            polls = (
                api.receive(wait_ms=60_000),
                api.questions(wait_ms=60_000),
                wire.receive(long_polling_timeout=seconds(60)),
            )
            waiting = [asyncio.ensure_future(poll) for poll in polls]
            await until(lambda: doors.session("owner").polls == POLLS)
            for name in (*STRANGERS, ANONYMOUS):
                for door in _doors_of(route, name):
                    answer = await doors.ask(door, name, route, asked, one)
                    assert _is_accepted(door, answer) is _may(name, route), f"{name}: {answer}"
                    assert doors.session("owner").polls == POLLS, f"{name}, {door}: {route}"
                await doors.ask(ROCKETMQ, name, f"{METHOD}Telemetry", settings, one)
                assert doors.session("owner").is_live, name
            door = ROCKETMQ if route.startswith(METHOD) else HEADER
            assert _is_accepted(door, await doors.ask(door, "owner", route, asked, one))
            received, questions, _ = await asyncio.gather(*waiting)
            assert (received, questions) == ([], [])
        stream.cancel()


def _rows(kind: str) -> list[tuple[str, Asked]]:
    return [(route, asked) for route, rows in MATRIX.items() for asked in rows if asked.kind == kind]


def _may(name: str, route: str) -> bool:
    return name in STRANGERS and not scopes_of(route).isdisjoint(STRANGERS[name][0])
