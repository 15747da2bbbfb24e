"""Calls as they are sent to a destination with a key: each try is signed anew."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from tests.support.scripted_server import OK, Peer, ScriptedServer, answering, serving
from twophase.barrier import require_signature
from twophase.core.signature import Signature, SigningKey, key_of, verdict_signed
from twophase.destinations.allow_list import AllowList, Listed
from twophase.destinations.base import Answer, Call
from twophase.destinations.http import HttpDestination
from twophase.destinations.jsonrpc import JsonRpcDestination

SECRET = "0123456789abcdef"
KEY = key_of("k1", SECRET)
OTHER = key_of("k1", "another secret!!")
BRANCH = (("branch_id", "01"), ("gid", "order 17"), ("op", "action"), ("trans_type", "msg"))
QUESTION = (("branch_id", "00"), ("gid", "g"), ("op", "msg"), ("trans_type", "msg"))
VERDICT = b"HTTP/1.1 409 X\r\ncontent-length: 2\r\nx-twophase-verdict: rolled_back\r\n"


def destination(server: ScriptedServer, *, signed_verdicts: bool = False) -> HttpDestination:
    return HttpDestination(None, AllowList([Listed(server.url, KEY, signed_verdicts)]))


async def answer_to(destination: HttpDestination | JsonRpcDestination, call: Call) -> Answer:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    destination.call(call, future.set_result)
    return await future


def verified(head: bytes, body: bytes) -> Signature:
    """Verify a request exactly as it arrived."""
    line, *headers = head.decode().split("\r\n")
    method, target, _ = line.split(" ")
    pairs = dict(header.split(": ", 1) for header in headers if header)
    return require_signature({"k1": SECRET}, method, target, pairs, body)


async def test_every_try_of_a_call_is_signed_as_it_is_sent() -> None:
    async with serving(answering(OK)).running() as server:
        one = destination(server)
        call = Call(f"{server.url}/in/Zoë?at=a b", BRANCH, b'{"amount":30}', (("x-twophase-oldest", "17"),), 20_000)
        times = []
        for _ in range(2):
            assert (await answer_to(one, call)).status == 200
            times.append(verified(*server.requests[-1]).signed_ms)
            await asyncio.sleep(0.002)
        assert times[0] < times[1]
        question = Call(f"{server.url}/check", QUESTION, b"", (), 20_000)
        assert (await answer_to(one, question)).status == 200
        assert verified(*server.requests[-1]).key == KEY
        await one.stop()


async def test_a_renewed_list_signs_the_next_call_by_its_key_at_once() -> None:
    async with serving(answering(OK)).running() as server:
        allowed = AllowList([Listed(server.url, KEY)])
        one = HttpDestination(None, allowed)
        call = Call(f"{server.url}/in", BRANCH, b"{}", (), 20_000)
        for listed in (Listed(server.url, KEY), Listed(server.url, key_of("k2", SECRET)), Listed(server.url)):
            allowed.renew(AllowList([listed]))
            assert (await answer_to(one, call)).status == 200
        await one.stop()
    signatures = [re.search(rb"x-twophase-signature: v1,kid=(\w+)", head) for head, _ in server.requests]
    assert [found and found[1] for found in signatures] == [b"k1", b"k2", None]


async def test_the_oldest_time_is_signed_however_many_others_came_before() -> None:
    """The signer remembers it of 256 calls; these are new, known and forgotten."""
    async with serving(answering(OK)).running() as server:
        one = destination(server)
        for number in (*range(300), 0, 299, 299):
            headers = (("tenant", "x"), ("x-twophase-oldest", str(number)))
            assert (await answer_to(one, Call(f"{server.url}/in", BRANCH, b"{}", headers, 20_000))).status == 200
            assert verified(*server.requests[-1]).key == KEY
            assert b"x-twophase-oldest: %d\r\n" % number in server.requests[-1][0]
        await one.stop()


async def test_a_json_rpc_call_is_signed_as_the_http_call_that_it_is() -> None:
    async with serving(answering(OK)).running() as server:
        one = JsonRpcDestination(destination(server))
        await answer_to(one, Call(f"{server.url}/rpc?method=pay", BRANCH, b'{"amount":30}', (), 20_000))
        head, body = server.requests[0]
        assert verified(head, body).key == KEY
        assert b'"method":"pay"' in body
        await one.stop()


@pytest.mark.parametrize(("signer", "status"), [(None, 0), (KEY, 200), (OTHER, 0)])
@pytest.mark.parametrize("response", [b'{"jsonrpc":"2.0","result":{}}', b'{"jsonrpc":"2.0","error":{"code":-32901}}'])
async def test_a_verdict_over_json_rpc_needs_a_signature_too(
    response: bytes, signer: SigningKey | None, status: int
) -> None:
    async def script(peer: Peer) -> None:
        head, _ = await peer.request()
        found = re.search(rb"t=(\d+)", head)
        assert found is not None
        lines = f"HTTP/1.1 200 OK\r\ncontent-length: {len(response)}\r\n"
        if signer is not None:
            value = verdict_signed(Signature(signer, int(found[1])), "g", "", response)
            lines += f"x-twophase-verdict-signature: {value}\r\n"
        await peer.say(f"{lines}\r\n".encode() + response)

    async with serving(script).running() as server:
        one = JsonRpcDestination(destination(server, signed_verdicts=True))
        answer = await answer_to(one, Call(f"{server.url}/rpc?method=Check", QUESTION, b"", (), 20_000))
        await one.stop()
    assert answer.error.startswith("unsigned: ") is (status == 0)
    assert (answer.status == 0) is (status == 0)


def _signing(change: Callable[[Signature], tuple[Signature, str, str, bytes]]) -> Callable[[Peer], object]:
    async def script(peer: Peer) -> None:
        head, _ = await peer.request()
        found = re.search(rb"t=(\d+)", head)
        assert found is not None
        value = verdict_signed(*change(Signature(KEY, int(found[1]))))
        await peer.say(VERDICT + f"x-twophase-verdict-signature: {value}\r\n\r\n{{}}".encode())

    return script


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda question: (question, "g", "rolled_back", b"{}"), 409),
        (lambda question: (question, "h", "rolled_back", b"{}"), 0),
        (lambda question: (question, "g", "committed", b"{}"), 0),
        (lambda question: (question, "g", "rolled_back", b"[]"), 0),
        (lambda question: (Signature(KEY, question.signed_ms - 1), "g", "rolled_back", b"{}"), 0),
        (
            lambda question: (
                Signature(key_of("k1", "another secret!!"), question.signed_ms),
                "g",
                "rolled_back",
                b"{}",
            ),
            0,
        ),
    ],
)
async def test_only_a_verdict_of_this_question_by_the_keys_holder_counts(
    change: Callable[[Signature], tuple[Signature, str, str, bytes]], status: int
) -> None:
    async with serving(_signing(change)).running() as server:  # type: ignore[arg-type]
        one = destination(server, signed_verdicts=True)
        answer = await answer_to(one, Call(f"{server.url}/check", QUESTION, b"", (), 20_000))
        await one.stop()
    assert answer.status == status
    assert answer.error.startswith("unsigned: ") is (status == 0)


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_an_answer_that_is_no_verdict_needs_no_signature_and_shows_its_reason(status: int) -> None:
    async with serving(answering(b"HTTP/1.1 %d X\r\ncontent-length: 3\r\n\r\nwhy" % status)).running() as server:
        one = destination(server, signed_verdicts=True)
        answer = await answer_to(one, Call(f"{server.url}/check", QUESTION, b"", (), 20_000))
        await one.stop()
    assert (answer.status, answer.body) == (status, b"why")


async def test_the_answer_to_a_branch_needs_no_signature() -> None:
    async with serving(answering(OK)).running() as server:
        one = destination(server, signed_verdicts=True)
        answer = await answer_to(one, Call(f"{server.url}/in", BRANCH, b"{}", (), 20_000))
        await one.stop()
    assert answer.status == 200
