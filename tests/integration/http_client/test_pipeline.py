"""Each request of a group gets its own answer, or its own error, once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.servers.ports import nobodys_port
from tests.support.scripted_server import Peer, serving
from tests.support.waiting import until
from twophase.http_client import pipeline as module
from twophase.http_client.address import parse_address
from twophase.http_client.outcome import HttpResponse, Outcome
from twophase.http_client.pipeline import GROUP_MAX, Pipeline
from twophase.http_client.request import PendingCall

_WAIT_S = 20.0
_TIMEOUT_MS = 20_000


class Asker:
    """Asks a server through one pipeline."""

    def __init__(self, url: str) -> None:
        address = parse_address(url)
        self._head = f"POST /x{address.end_of_line}content-length: ".encode()
        self.pipeline = Pipeline(address, asyncio.get_running_loop(), answer_bytes_max=1_000)

    def start(self, body: str, timeout_ms: int = _TIMEOUT_MS) -> asyncio.Future[Outcome]:
        """Start a request; a second outcome would raise."""
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.pipeline.request(self._head, body.encode(), timeout_ms, answered.set_result)
        return answered

    async def ask(self, body: str) -> str:
        """Return the answer's body, or the error's kind."""
        return await outcome(self.start(body))


async def outcome(answered: asyncio.Future[Outcome]) -> str:
    async with asyncio.timeout(_WAIT_S):
        result = await answered
    return result.body.decode() if isinstance(result, HttpResponse) else result.kind.value


@contextlib.asynccontextmanager
async def asking(url: str) -> AsyncIterator[Asker]:
    asker = Asker(url)
    try:
        yield asker
    finally:
        await asker.pipeline.close()


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def echo(peer: Peer) -> None:
    while True:
        _, body = await peer.request()
        await peer.say(answer(b"to " + body))


async def test_each_request_gets_its_own_answer() -> None:
    async with serving(echo).running() as server, asking(server.url) as asker:
        bodies = [f"r{number}" for number in range(200)]
        assert await asyncio.gather(*map(asker.ask, bodies)) == [f"to {body}" for body in bodies]
        assert [body.decode() for _, body in server.requests] == bodies
        assert server.connections == 1


async def test_requests_gather_while_others_are_under_way_and_go_as_one() -> None:
    arrived: list[list[bytes]] = []
    release = asyncio.Event()

    async def hold_the_first(peer: Peer) -> None:
        arrived.append([(await peer.request())[1]])
        await release.wait()
        await peer.say(answer(b"1"))
        arrived.append([(await peer.request())[1] for _ in range(3)])
        await peer.say(answer(b"2") + answer(b"3") + answer(b"4"))

    async with serving(hold_the_first).running() as server, asking(server.url) as asker:
        first = asker.start("a")
        await until(lambda: len(arrived) == 1)
        others = [asker.start(body) for body in "bcd"]
        release.set()
        assert [await outcome(one) for one in (first, *others)] == ["1", "2", "3", "4"]
        assert arrived == [[b"a"], [b"b", b"c", b"d"]]


async def test_a_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []
    send = module._Link.send

    def counted(self: module._Link, group: list[PendingCall]) -> None:
        groups.append(len(group))
        send(self, group)

    monkeypatch.setattr(module._Link, "send", counted)
    async with serving(echo).running() as server, asking(server.url) as asker:
        await asyncio.gather(*(asker.ask("r") for _ in range(GROUP_MAX + 1)))
        assert groups == [GROUP_MAX, 1]
        monkeypatch.setattr(module, "GROUP_BYTES_MAX", 1)
        await asyncio.gather(*(asker.ask("r") for _ in range(3)))
        assert groups == [GROUP_MAX, 1, 1, 1, 1], "one goes, however long"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([b"", b"a", b"bb", b"c" * 900]), min_size=1, max_size=5),
    st.lists(st.integers(0, 5_000), max_size=8),
    st.sampled_from(["length", "chunks at the end", "interim"]),
)
def test_answers_are_told_apart_however_they_are_split(bodies: list[bytes], cuts: list[int], form: str) -> None:
    answers = [answer(body) for body in bodies]
    if form == "chunks at the end":
        answers[-1] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nend\r\n0\r\n\r\n"
        bodies = [*bodies[:-1], b"end"]
    elif form == "interim":
        answers[-1] = b"HTTP/1.1 103 Hints\r\n\r\n" + answers[-1]
    data = b"".join(answers)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]

    async def script(peer: Peer) -> None:
        for _ in answers:
            await peer.request()
        await peer.say(*pieces)
        await peer.closed()

    async def play() -> None:
        async with serving(script).running() as server, asking(server.url) as asker:
            found = await asyncio.gather(*(asker.ask("r") for _ in answers))
            assert [text.encode() for text in found] == bodies

    asyncio.run(play())


async def test_an_answer_that_nobody_asked_for_drops_the_connection() -> None:
    async def twice(peer: Peer) -> None:
        _, body = await peer.request()
        await peer.say(answer(b"to " + body) + answer(b"unasked"))
        await peer.closed()

    async with serving(twice).running() as server, asking(server.url) as asker:
        assert await asker.ask("a") == "to a"
        assert await asker.ask("b") == "to b"
        assert server.connections == 2


async def test_a_request_that_is_not_answered_in_time_takes_those_behind_it_along() -> None:
    async def silent_at_first(peer: Peer) -> None:
        if peer.number == 1:
            _, body = await peer.request()
            await peer.say(answer(b"to " + body))
            await peer.closed()
        await echo(peer)

    async with serving(silent_at_first).running() as server, asking(server.url) as asker:
        assert await asker.ask("first") == "to first"  # the connection stands
        hasty, behind = asker.start("a", 100), asker.start("b")
        assert [await outcome(hasty), await outcome(behind)] == ["timeout", "closed"]
        assert await asker.ask("c") == "to c"
        assert server.connections == 2


async def test_a_request_that_waits_for_its_turn_ends_in_time() -> None:
    release = asyncio.Event()

    async def slow(peer: Peer) -> None:
        _, body = await peer.request()
        await release.wait()
        await peer.say(answer(b"to " + body))
        await echo(peer)

    async with serving(slow).running() as server, asking(server.url) as asker:
        first = asker.start("a")
        await until(lambda: len(server.requests) == 1)
        assert await outcome(asker.start("b", 100)) == "timeout"
        release.set()
        assert await outcome(first) == "to a"
        assert await asker.ask("c") == "to c"
        assert [body for _, body in server.requests] == [b"a", b"c"]


async def test_a_forgotten_request_disturbs_no_other() -> None:
    release = asyncio.Event()

    async def slow(peer: Peer) -> None:
        bodies = [(await peer.request())[1] for _ in range(2)]
        await release.wait()
        for body in bodies:
            await peer.say(answer(b"to " + body))
        await echo(peer)

    async with serving(slow).running() as server, asking(server.url) as asker:
        outcomes: list[Outcome] = []
        gone = asker.pipeline.request(asker._head, b"a", _TIMEOUT_MS, outcomes.append)
        stays = asker.start("b")
        await until(lambda: len(server.requests) == 2)
        waiting = asker.pipeline.request(asker._head, b"c", _TIMEOUT_MS, outcomes.append)
        asker.pipeline.forget(gone)
        asker.pipeline.forget(waiting)
        release.set()
        assert await outcome(stays) == "to b"
        assert await asker.ask("d") == "to d"
        assert outcomes == []
        assert [body for _, body in server.requests] == [b"a", b"b", b"d"]


async def test_a_kept_connection_that_the_server_closed_is_replaced_without_a_word() -> None:
    async def once(peer: Peer) -> None:
        _, body = await peer.request()
        await peer.say(answer(b"to " + body))

    async with serving(once).running() as server, asking(server.url) as asker:
        for number in range(3):
            assert await asker.ask(f"r{number}") == f"to r{number}"
        assert server.connections == 3


async def test_those_behind_the_last_answer_of_a_connection_get_an_error() -> None:
    async def one_of_three(peer: Peer) -> None:
        for _ in range(3):
            await peer.request()
        await peer.say(answer(b"1"))

    async with serving(one_of_three).running() as server, asking(server.url) as asker:
        assert await asyncio.gather(*(asker.ask("r") for _ in range(3))) == ["1", "closed", "closed"]


async def test_what_is_no_http_is_an_error_for_the_whole_group() -> None:
    async def nonsense(peer: Peer) -> None:
        for _ in range(2):
            await peer.request()
        await peer.say(b"SSH-2.0-x\r\n\r\n")
        await peer.closed()

    async with serving(nonsense).running() as server, asking(server.url) as asker:
        assert await asyncio.gather(*map(asker.ask, "ab")) == ["protocol", "protocol"]


async def test_a_longer_answer_than_the_bound_is_an_error() -> None:
    async def long(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer(b"x" * 1_001))
        await peer.closed()

    async with serving(long).running() as server, asking(server.url) as asker:
        assert await asker.ask("a") == "too_large"


async def test_without_a_server_every_request_gets_an_error() -> None:
    async with asking(f"http://127.0.0.1:{nobodys_port()}") as asker:
        assert await asyncio.gather(*(asker.ask("r") for _ in range(3))) == ["connect"] * 3


async def test_too_many_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_MAX", 2)
    async with serving(echo).running() as server, asking(server.url) as asker:
        assert await asyncio.gather(*(asker.ask(body) for body in "abc")) == ["to a", "to b", "overloaded"]


async def test_close_ends_every_request_and_the_connection() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.closed()

    async with serving(silent).running() as server:
        asker = Asker(server.url)
        sent = asker.start("a")
        await until(lambda: len(server.requests) == 1)
        waits = asker.start("b")
        await asker.pipeline.close()
        late = asker.start("c")
        assert [await outcome(one) for one in (sent, waits, late)] == ["closed"] * 3
        await asker.pipeline.close()


async def test_close_while_connecting() -> None:
    async with serving(echo).running() as server:
        asker = Asker(server.url)
        waits = asker.start("a")
        await asyncio.sleep(0)
        await asker.pipeline.close()
        assert await outcome(waits) == "closed"


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_TIMEOUT_MS", 50)
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        _, body = await peer.request()
        await peer.say(answer(b"to " + body))
        await peer.closed()
        closed.set()

    async with serving(script).running() as server, asking(server.url) as asker:
        assert await asker.ask("a") == "to a"
        async with asyncio.timeout(_WAIT_S):
            await closed.wait()
        assert await asker.ask("b") == "to b"
        assert server.connections == 2


async def test_an_error_of_a_callers_function_reaches_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo).running() as server, asking(server.url) as asker:

        def fail(_: Outcome) -> None:
            raise ZeroDivisionError

        asker.pipeline.request(asker._head, b"a", _TIMEOUT_MS, fail)
        assert await asker.ask("b") == "to b"
        assert "on_done of an HTTP call raised" in caplog.text
