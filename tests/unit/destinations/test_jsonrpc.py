"""JSON-RPC branches: their requests, and the meaning of answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import msgspec
import pytest

from twophase.core.verdict import BranchResult, Verdict, interpret_branch, interpret_check_back
from twophase.destinations import jsonrpc
from twophase.destinations.base import Answer, Call
from twophase.destinations.jsonrpc import JsonRpcDestination, request_body, understood

URL = "http://bank-b/rpc?method=transfer_in"
QUERY = (("branch_id", "01"), ("gid", "order 17"), ("op", "action"), ("trans_type", "msg"))


class RecordingHttp:
    """A stand-in for HTTP that records calls; the test gives the answers."""

    def __init__(self) -> None:
        self.calls: list[tuple[Call, Callable[[Answer], None]]] = []
        self.stopped = 0

    def accepts(self, url: str) -> str | None:
        return None if url.startswith("http") else "bad_url"

    def key(self, url: str) -> str:
        return "http://bank-b:80"

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        self.calls.append((call, on_answer))

    async def stop(self) -> None:
        self.stopped += 1


def _answer(body: bytes) -> Answer:
    return understood(Answer(200, body))


def test_the_request_is_dtms() -> None:
    body = msgspec.json.decode(request_body(Call(URL, QUERY, b'{"amount":30,"gid":"forged"}', (), 3000)))
    assert body == {
        "jsonrpc": "2.0",
        "id": "order 17-01",
        "method": "transfer_in",
        "params": {"amount": 30, "branch_id": "01", "gid": "order 17", "op": "action", "trans_type": "msg"},
    }


def test_an_answer_may_be_as_long_as_the_call_allows() -> None:
    http = RecordingHttp()
    JsonRpcDestination(http).call(Call(URL, QUERY, b"", (), 1234, 6_000_000), lambda answer: None)
    assert http.calls[0][0].answer_bytes_max == 6_000_000


def test_numbers_arrive_as_they_were_written() -> None:
    body = request_body(Call(URL, QUERY, b'{"n":12345678901234567890.10}', (), 3000))
    assert b'"n":12345678901234567890.10' in body


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b" { } ", b'{"a":1}', b' {"a" : [{"gid":2}], "b":"}"} \n', b'{"op":1}']
)
def test_the_calls_own_members_stand_beside_the_payloads_others(payload: bytes) -> None:
    params = msgspec.json.decode(request_body(Call(URL, QUERY, payload, (), 3000)))["params"]
    assert params == (msgspec.json.decode(payload) if payload else {}) | dict(QUERY)


@pytest.mark.parametrize("name", ['"gid"', '"\\u0067id"', '"trans_type"'])
def test_a_member_that_the_call_sets_is_not_sent_twice(name: str) -> None:
    payload = f'{{"a":1,{name}:"forged","b":2}}'.encode()
    body = request_body(Call(URL, QUERY, payload, (), 3000))
    assert b"forged" not in body
    params = dict(json.loads(body, object_pairs_hook=list))["params"]
    assert sorted(name for name, _ in params) == ["a", "b", "branch_id", "gid", "op", "trans_type"]


def test_a_payload_of_very_many_members_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    many = b",".join(b'"m%d":1' % number for number in range(100_000))
    taken_apart: list[bytes] = []
    monkeypatch.setattr(jsonrpc, "_decode_params", taken_apart.append)
    http = RecordingHttp()
    JsonRpcDestination(http).call(Call(URL, QUERY, b"{%b}" % many, (), 1234), lambda answer: None)
    ((call, _),) = http.calls
    assert b'"m99999":1,"branch_id":"01"' in call.payload
    assert taken_apart == []


async def test_a_late_branch_with_such_a_payload_and_a_member_that_the_call_sets_is_not_called() -> None:
    many = b'"gid":"forged",' + b",".join(b'"m%d":1' % number for number in range(100_000))
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    http = RecordingHttp()
    JsonRpcDestination(http).call(Call(URL, QUERY, b"{%b}" % many, (), 1234), answered.set_result)
    assert not answered.done()
    assert (await answered).error.startswith("bad_payload: it has more than 10000 members")
    assert http.calls == []


def test_the_address_is_called_unchanged_by_post() -> None:
    http = RecordingHttp()
    JsonRpcDestination(http).call(Call(URL, QUERY, b"", (("x-trace", "7"),), 1234), lambda answer: None)
    ((call, _),) = http.calls
    assert (call.url, call.query, call.headers, call.timeout_ms) == (URL, (), (("x-trace", "7"),), 1234)
    assert call.payload, "a payload makes it a POST"


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b'{"jsonrpc":"2.0","id":"1","result":{}}', BranchResult.SUCCEEDED),
        (b'{"jsonrpc":"2.0","id":"1","result":null,"error":null}', BranchResult.SUCCEEDED),
        (b'{"jsonrpc":"2.0","id":"1"}', BranchResult.SUCCEEDED),
        (b'{"jsonrpc":"2.0","id":"1","method":"in","params":{}}', BranchResult.ERROR),
        (b'{"jsonrpc":"2.0","id":"1","result":{"dtm_result":"FAILURE"}}', BranchResult.FAILED),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":-32901,"message":"no stock"}}', BranchResult.FAILED),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":-32902,"message":"wait"}}', BranchResult.ONGOING),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":-32902.0,"message":"wait"}}', BranchResult.ONGOING),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"boom"}}', BranchResult.ERROR),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":1e300,"message":"boom"}}', BranchResult.ERROR),
        (b'{"jsonrpc":"2.0","id":"1","error":{}}', BranchResult.ERROR),
        (b'{"jsonrpc":"2.0","id":"1","error":"boom"}', BranchResult.ERROR),
        (b"<html>welcome</html>", BranchResult.ERROR),
        (b"{}", BranchResult.ERROR),
        (b"[]", BranchResult.ERROR),
        (b"", BranchResult.ERROR),
        (b"[" * 100_000, BranchResult.ERROR),
        (b"\xff", BranchResult.ERROR),
    ],
)
def test_what_an_answer_means(body: bytes, result: BranchResult) -> None:
    answer = _answer(body)
    assert interpret_branch(answer.status, answer.body) is result
    assert bool(answer.error) == (answer.status != 200)


def test_an_error_code_decides_a_check_back_and_its_text_does_not() -> None:
    refused = _answer(b'{"jsonrpc":"2.0","id":"1","error":{"code":-32901,"message":"rolled back"}}')
    failing = _answer(b'{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"FAILURE of the database"}}')
    verdicts = [interpret_check_back(one.status, None, one.body, explicit=False) for one in (refused, failing)]
    assert verdicts == [Verdict.ROLLED_BACK, Verdict.UNKNOWN]


def test_http_errors_and_silence_stay_what_they_are() -> None:
    http, heard = RecordingHttp(), list[Answer]()
    JsonRpcDestination(http).call(Call(URL, QUERY, b"", (), 3000), heard.append)
    said = Answer(0, error="timeout: no answer")
    http.calls[0][1](said)
    assert heard == [said]


@pytest.mark.parametrize("status", [201, 302, 409, 425, 500, 502])
def test_strictly_only_a_code_says_refused_or_not_done_yet(status: int) -> None:
    http, heard = RecordingHttp(), list[Answer]()
    JsonRpcDestination(http, strict=True).call(Call(URL, QUERY, b"", (), 3000), heard.append)
    http.calls[0][1](Answer(status, b"<html>a proxy's page</html>"))
    assert interpret_branch(heard[0].status, heard[0].body, strict=True) is BranchResult.ERROR
    verdict = interpret_check_back(heard[0].status, None, heard[0].body, explicit=False, strict=True)
    assert verdict is Verdict.UNKNOWN
    assert f"HTTP status {status}" in heard[0].error


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b'{"jsonrpc":"2.0","id":"1","result":{"dtm_result":"FAILURE"}}', BranchResult.SUCCEEDED),
        (b'{"jsonrpc":"2.0","id":"1","result":"ONGOING"}', BranchResult.SUCCEEDED),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":-32901,"message":"ONGOING"}}', BranchResult.FAILED),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":-32902,"message":"FAILURE"}}', BranchResult.ONGOING),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"FAILURE"}}', BranchResult.ERROR),
        (b"SUCCESS", BranchResult.ERROR),
    ],
)
def test_strictly_the_words_in_an_answer_mean_nothing(body: bytes, result: BranchResult) -> None:
    http, heard = RecordingHttp(), list[Answer]()
    JsonRpcDestination(http, strict=True).call(Call(URL, QUERY, b"", (), 3000), heard.append)
    http.calls[0][1](Answer(200, body))
    assert interpret_branch(heard[0].status, heard[0].body, strict=True) is result


def test_addresses_without_a_method_are_refused_by_name() -> None:
    destination = JsonRpcDestination(RecordingHttp())
    assert destination.accepts(URL) is None
    assert "method=NAME" in (destination.accepts("http://bank-b/payment-method") or "")
    assert destination.key(URL) == "http://bank-b:80"


async def test_it_stops_what_it_calls_through() -> None:
    http = RecordingHttp()
    await JsonRpcDestination(http).stop()
    assert http.stopped == 1
