"""Concurrent requests of one async client travel together.

Their coordinator is twophase's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.scripted_server import Peer, ScriptedServer, serving
from tests.support.server_process import branch_service
from tests.support.server_process import serving as server_serving
from tests.support.waiting import until
from twophase import AsyncClient, AsyncMessage
from twophase.client.transport.aio import GROUPED_BYTES_MAX, AsyncTransport
from twophase.client.transport.wire import HttpAnswer, Operation, TransportFailure

_OURS = b'{"dtm_result":"SUCCESS","prepared_at":1700000000000}'
_DTMS = b'{"dtm_result":"SUCCESS"}'
_MESSAGES = 100


def _answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _coordinator(body: bytes) -> ScriptedServer:
    """Return a server that answers every request with this body, after a moment."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await asyncio.sleep(0.02)
            await peer.say(_answer(body))

    return serving(script)


@pytest.fixture
async def transports() -> AsyncIterator[list[AsyncTransport]]:
    made: list[AsyncTransport] = []
    yield made
    for transport in made:
        await transport.close()


async def _send(transport: AsyncTransport, body: bytes = b'{"gid":"g"}') -> HttpAnswer:
    return await transport.send(Operation.PREPARE, body, 20_000)


async def test_requests_travel_together_once_the_coordinator_is_known(transports: list[AsyncTransport]) -> None:
    async with _coordinator(_OURS).running() as server:
        transports.append(AsyncTransport(server.url))
        await _send(transports[0])
        answers = await asyncio.gather(*(_send(transports[0]) for _ in range(10)))
        assert [answer.body for answer in answers] == [_OURS] * 10
        assert server.connections == 2, "one for each alone, one for the groups"


async def test_requests_to_dtm_go_alone(transports: list[AsyncTransport]) -> None:
    async with _coordinator(_DTMS).running() as server:
        transports.append(AsyncTransport(server.url))
        await _send(transports[0])
        await asyncio.gather(*(_send(transports[0]) for _ in range(10)))
        assert server.connections == 10


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"gid":"g","trans_type":"msg","wait_result":true}', id="may wait for branches"),
        pytest.param(b'{"gid":"%b"}' % (b"g" * GROUPED_BYTES_MAX), id="long"),
    ],
)
async def test_a_request_that_would_hold_others_up_goes_alone(transports: list[AsyncTransport], body: bytes) -> None:
    async with _coordinator(_OURS).running() as server:
        transports.append(AsyncTransport(server.url))
        await _send(transports[0])
        await asyncio.gather(*(_send(transports[0], body) for _ in range(5)))
        assert server.connections == 5


async def test_answers_that_are_no_http_end_the_groups(transports: list[AsyncTransport]) -> None:
    async def confused_by_groups(peer: Peer) -> None:
        while True:
            await peer.request()
            await asyncio.sleep(0.02)
            await peer.say(b"nonsense\r\n\r\n" if peer.number == 2 else _answer(_DTMS if peer.number > 2 else _OURS))

    async with serving(confused_by_groups).running() as server:
        transport = AsyncTransport(server.url)
        transports.append(transport)
        assert (await _send(transport)).status == 200
        with pytest.raises(TransportFailure, match="protocol"):
            await _send(transport)
        for _ in range(2):
            await asyncio.gather(*(_send(transport) for _ in range(3)))
        assert server.connections == 4, "two more, beside the first"


async def test_a_cancelled_request_leaves_the_others_their_answers(transports: list[AsyncTransport]) -> None:
    async with _coordinator(_OURS).running() as server:
        transport = AsyncTransport(server.url)
        transports.append(transport)
        await _send(transport)
        tasks = [asyncio.create_task(_send(transport)) for _ in range(6)]
        await until(lambda: len(server.requests) >= 2)  # a part of them has arrived
        tasks[0].cancel()
        tasks[3].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, HttpAnswer) for one in outcomes] == [False, True, True, False, True, True]


async def test_every_message_of_many_at_once_is_delivered(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("store")
    async with branch_service() as branch, server_serving(folder) as server:
        async with AsyncClient(f"http://127.0.0.1:{server.port}", check=branch.url("/check")) as client:

            async def deliver(number: int) -> None:
                message = AsyncMessage(client, gid=f"order-{number}").add(branch.url("/in"), {"number": number})
                await message.prepare()
                await message.submit()

            await asyncio.gather(*map(deliver, range(_MESSAGES)))
        for number in range(_MESSAGES):
            await branch.until_called("/in", f"order-{number}")
        assert len(branch.calls) == _MESSAGES
