"""gRPC branches and check-backs: a whole server calls a real gRPC service.

The tests show the usual case and every way in which it can fail.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import msgspec
import pytest
import trustme

from benchmarks.servers.ports import KeptPort
from tests.integration.server.running import PATIENT, SECOND_TRY_MS, Running, running
from tests.integration.server.test_grpc import Dtm, message
from tests.support.waiting import until
from twophase.coordinator.state.active_message import Reply
from twophase.core.headers import CONNECTION_HEADERS
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message, encode_branches
from twophase.core.options import Options
from twophase.destinations.base import Answer, Call
from twophase.destinations.grpc import GrpcDestination
from twophase.http_client.byte_budget import FREE_BYTES, MEBIBYTE, ByteBudget

Code = grpc.StatusCode
Context = grpc.aio.ServicerContext[bytes, bytes]
Behaviour = Callable[[bytes, Context], Awaitable[bytes]]


class Heard:
    """One call as it arrived."""

    def __init__(self, method: str, body: bytes, context: Context) -> None:
        self.method = method
        self.body = body
        self.metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
        self.peer = context.peer()
        self.time_left_s = context.time_remaining()


class Bank(grpc.GenericRpcHandler):
    """A service of raw bytes: any method, answered as the test sets it.

    The last behaviour is repeated.
    """

    def __init__(self) -> None:
        self.calls: list[Heard] = []
        self.behaviours: dict[str, list[Behaviour]] = {}
        self.port = 0
        self._server: grpc.aio.Server | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = str(handler_call_details.method)

        async def answer(body: bytes, context: Context) -> bytes:
            self.calls.append(Heard(method, body, context))
            told = self.behaviours.get(method.rpartition("/")[2], [reply()])
            return await (told.pop(0) if len(told) > 1 else told[0])(body, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def start(self, port: int = 0, credentials: grpc.ServerCredentials | None = None) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        address = f"127.0.0.1:{port}"
        self.port = (
            self._server.add_secure_port(address, credentials)
            if credentials
            else self._server.add_insecure_port(address)
        )
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    def url(self, method: str, scheme: str = "") -> str:
        return f"{scheme}127.0.0.1:{self.port}/bank.Bank/{method}"


def reply(body: bytes = b"", **trailing: str) -> Behaviour:
    async def behave(_body: bytes, context: Context) -> bytes:
        context.set_trailing_metadata(tuple((name.replace("_", "-"), value) for name, value in trailing.items()))
        return body

    return behave


def fail(code: Code, details: str = "no", **trailing: str) -> Behaviour:
    async def behave(_body: bytes, context: Context) -> bytes:
        metadata = tuple((name.replace("_", "-"), value) for name, value in trailing.items())
        await context.abort(code, details, metadata)
        raise AssertionError("abort raises")

    return behave


async def hang(_body: bytes, _context: Context) -> bytes:
    await asyncio.Event().wait()
    return b""


async def crash(_body: bytes, _context: Context) -> bytes:
    raise RuntimeError("FAILURE of ours")


@pytest.fixture
async def bank() -> AsyncIterator[Bank]:
    one = Bank()
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, grpc_port=0, **PATIENT) as one:
        yield one


@pytest.fixture
async def dtm(server: Running) -> AsyncIterator[Dtm]:
    target = next(url for url in server.server.urls if url.startswith("grpc")).removeprefix("grpc://")
    async with grpc.aio.insecure_channel(target) as channel:
        yield Dtm(channel)


async def test_a_branch_gets_its_bytes_and_dtms_metadata(server: Running, dtm: Dtm, bank: Bank) -> None:
    steps = msgspec.json.encode([{"action": bank.url("Out")}, {"action": bank.url("In", "grpc://")}]).decode()
    await dtm.ask(
        "Submit", gid="g", steps=steps, payloads=[b"\x00\xff", b""], branch_headers={"X-Tenant": "blue", "x-bin": "1"}
    )
    await server.until("g", State.SUCCEEDED)
    first, second = bank.calls
    assert (first.method, first.body, second.method, second.body) == (
        "/bank.Bank/Out",
        b"\x00\xff",
        "/bank.Bank/In",
        b"",
    )
    assert first.metadata.items() >= {
        "dtm-gid": "g",
        "dtm-trans_type": "msg",
        "dtm-branch_id": "01",
        "dtm-op": "action",
        "dtm-dtm": "",
        "x-tenant": "blue",
        "x-bin": b"1",
    }.items()  # fmt: skip
    assert second.metadata["dtm-branch_id"] == "02"
    assert first.peer == second.peer, "one connection a host"


async def test_a_message_over_http_may_have_grpc_branches(server: Running, bank: Bank) -> None:
    future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    said = Message("g", (Branch(bank.url("In", "GRPC://"), b"{}"),), options=Options(wait_result=True))
    server.server.coordinator.submit(said, future.set_result)
    assert (await future).error is None
    assert bank.calls[0].body == b"{}"


# the service's behaviour; the record: status, result, the beginning of the error
FAILURES: list[tuple[Behaviour, int, str, str]] = [
    (fail(Code.ABORTED, "FAILURE"), 409, "failed", "gRPC ABORTED: FAILURE"),
    (fail(Code.ABORTED, "ONGOING"), 425, "ongoing", "gRPC ABORTED: ONGOING"),
    (fail(Code.FAILED_PRECONDITION, "wait"), 425, "ongoing", "gRPC FAILED_PRECONDITION: wait"),
    (fail(Code.UNKNOWN, "FAILURE"), 500, "error", "gRPC UNKNOWN: FAILURE"),
    (fail(Code.INTERNAL, "ONGOING"), 500, "error", "gRPC INTERNAL: ONGOING"),
    (fail(Code.UNIMPLEMENTED), 501, "error", "gRPC UNIMPLEMENTED: no"),
    (fail(Code.UNAUTHENTICATED), 401, "error", "gRPC UNAUTHENTICATED: no"),
    (fail(Code.UNAVAILABLE), 0, "error", "gRPC UNAVAILABLE: no"),
    (crash, 500, "error", "gRPC UNKNOWN: Unexpected"),
    (reply(b"x" * 2048), 429, "error", "gRPC RESOURCE_EXHAUSTED: "),
]


@pytest.mark.parametrize(("behaviour", "status", "result", "error"), FAILURES)
async def test_what_went_wrong_is_recorded_and_called_again(
    tmp_path: Path, bank: Bank, behaviour: Behaviour, status: int, result: str, error: str
) -> None:
    bank.behaviours["In"] = [behaviour, reply()]
    async with running(tmp_path, grpc_port="off", answer_bytes_max=1024, **PATIENT) as server:
        server.server.coordinator.submit(Message("g", (Branch(bank.url("In", "grpc://")),)), lambda reply: None)
        view = await server.until_logged("g")
        assert view.state is State.SUBMITTED
        assert (view.log[0].status, view.log[0].result) == (status, result)
        assert view.log[0].error.startswith(error)
        server.advance(SECOND_TRY_MS)
        await server.until("g", State.SUCCEEDED)


async def test_any_reply_is_success_whatever_its_bytes_say(server: Running, dtm: Dtm, bank: Bank) -> None:
    bank.behaviours["In"] = [reply(b"FAILURE ONGOING")]
    await dtm.ask("Submit", **message("g", bank.url("In")))
    await server.until("g", State.SUCCEEDED)


async def test_a_hanging_service_is_left_after_the_messages_own_timeout(server: Running, dtm: Dtm, bank: Bank) -> None:
    bank.behaviours["In"] = [hang]
    await dtm.ask("Submit", **message("g", bank.url("In"), request_timeout_ms=150))
    view = await server.until_logged("g")
    assert (view.log[0].status, view.log[0].result) == (0, "error")
    assert view.log[0].error.startswith("gRPC DEADLINE_EXCEEDED")
    assert 100 <= view.log[0].latency_ms < 20_000
    async with asyncio.timeout(60):  # a busy machine may need longer to receive a call, or to begin with it
        while not any(call.time_left_s for call in bank.calls):
            server.advance(SECOND_TRY_MS)
            await asyncio.sleep(0.01)
    # gRPC converts the deadline between two clocks, which may add some microseconds.
    assert max(call.time_left_s or 0 for call in bank.calls) < 0.16, "the service knows how long it has"


async def test_a_service_that_comes_back_is_found_soon(server: Running, dtm: Dtm) -> None:
    kept, bank = KeptPort(), Bank()
    bank.port = kept.number
    await dtm.ask("Submit", **message("g", bank.url("In")))
    view = await server.until_logged("g")
    assert view.log[0].error.startswith("gRPC UNAVAILABLE")
    await bank.start(kept.number)
    async with asyncio.timeout(60):
        while (view := await server.view("g")).state is not State.SUCCEEDED:
            server.advance(SECOND_TRY_MS)
            await asyncio.sleep(0.05)
    assert bank.calls
    await bank.stop()
    kept.release()


async def test_wait_result_over_grpc_tells_the_branchs_answer(server: Running, dtm: Dtm, bank: Bank) -> None:
    bank.behaviours["In"] = [fail(Code.ABORTED, "FAILURE"), reply()]
    refused = await dtm.refused("Submit", **message("g", bank.url("In"), wait_result=True))
    assert (refused.code, refused.text) == (
        Code.ABORTED,
        "wait result not return success: branch 01: gRPC ABORTED: FAILURE",
    )
    server.advance(SECOND_TRY_MS)
    await server.until("g", State.SUCCEEDED)


@pytest.mark.parametrize(
    ("said", "state"), [(reply(b"anything"), State.SUCCEEDED), (fail(Code.ABORTED, "FAILURE"), State.FAILED)]
)
async def test_a_check_back_decides(server: Running, dtm: Dtm, bank: Bank, said: Behaviour, state: State) -> None:
    bank.behaviours["Check"] = [fail(Code.FAILED_PRECONDITION, "ONGOING"), said]
    await dtm.ask("Prepare", **message("g", bank.url("In"), query_prepared=bank.url("Check")))
    server.advance(36_000)
    view = await server.until_logged("g")
    assert (view.state, view.log[0].result) == (State.PREPARED, "in_progress")
    server.advance(SECOND_TRY_MS)
    view = await server.until("g", state)
    assert bank.calls[0].body == b""
    assert bank.calls[0].metadata.items() >= {"dtm-branch_id": "00", "dtm-op": "msg", "dtm-gid": "g"}.items()
    assert bank.calls[0].metadata["twophase-prepared_at"] == str(view.created_ms)
    assert [call.method for call in bank.calls].count("/bank.Bank/In") == (state is State.SUCCEEDED)


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (reply(b"SUCCESS"), "unknown"),
        (reply(b"", x_twophase_verdict="rolled_back"), "unknown"),
        (fail(Code.ABORTED, "FAILURE"), "unknown"),
        (fail(Code.UNKNOWN, "FAILURE", x_twophase_verdict="unknown"), "unknown"),
        (fail(Code.FAILED_PRECONDITION, "", x_twophase_verdict="in_progress"), "in_progress"),
    ],
)
async def test_a_message_of_our_client_wants_the_verdict_in_the_metadata(
    server: Running, dtm: Dtm, bank: Bank, said: Behaviour, result: str
) -> None:
    bank.behaviours["Check"] = [said, fail(Code.ABORTED, "", x_twophase_verdict="rolled_back")]
    check = bank.url("Check", "grpc://") + "?barrier=7f"
    await dtm.ask("Prepare", **message("g", bank.url("In"), query_prepared=check, explicit_verdict=True))
    server.advance(36_000)
    view = await server.until_logged("g")
    assert (view.state, view.log[0].result) == (State.PREPARED, result)
    assert (bank.calls[0].method, bank.calls[0].metadata["twophase-barrier"]) == ("/bank.Bank/Check", "7f")
    server.advance(SECOND_TRY_MS)
    await server.until("g", State.FAILED)


async def test_branches_added_in_the_transaction_come_with_the_verdict(server: Running, dtm: Dtm, bank: Bank) -> None:

    added = base64.b64encode(encode_branches((Branch(bank.url("Added"), b"new"),))).decode()
    body = msgspec.json.encode({"branches": added})
    bank.behaviours["Check"] = [reply(body, x_twophase_verdict="committed")]
    await dtm.ask(
        "Prepare", **message("g", bank.url("In"), query_prepared=bank.url("Check"), explicit_verdict=True, open=True)
    )
    server.advance(36_000)
    await server.until("g", State.SUCCEEDED)
    assert [call.method.rpartition("/")[2] for call in bank.calls] == ["Check", "In", "Added"]


def _call(url: str, timeout_ms: int = 20_000, headers: tuple[tuple[str, str], ...] = ()) -> Call:
    return Call(url, (("branch_id", "01"), ("gid", "g")), b"", headers, timeout_ms)


async def _answer(destination: GrpcDestination, call: Call) -> Answer:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    destination.call(call, future.set_result)
    assert not future.done(), "never before call returns"
    return await future


async def test_channels_are_reused_and_bounded() -> None:
    banks = [Bank() for _ in range(3)]
    for one in banks:
        await one.start()
    destination = GrpcDestination(channels_max=2)
    for one in (banks[0], banks[1], banks[0], banks[2]):
        assert (await _answer(destination, _call(one.url("In")))).status == 200
    assert destination.connected == tuple(f"grpc://127.0.0.1:{one.port}" for one in (banks[0], banks[2]))
    release = asyncio.Event()

    async def wait(_body: bytes, _context: Context) -> bytes:
        await release.wait()
        return b""

    for one in banks:
        one.behaviours["In"] = [wait]
    waiting = [asyncio.ensure_future(_answer(destination, _call(one.url("In")))) for one in (banks[0], banks[2])]
    await until(lambda: len(banks[0].calls) >= 3 and len(banks[2].calls) >= 2)
    crowded = await _answer(destination, _call(banks[1].url("In")))
    assert (crowded.status, "2 hosts are being called at once" in crowded.error) == (0, True)
    release.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
    await destination.stop()
    await destination.stop()
    for one in banks:
        await one.stop()


async def test_calls_keep_room_for_the_largest_reply_of_their_host(bank: Bank) -> None:
    budget = ByteBudget(8 * MEBIBYTE)
    destination = GrpcDestination(response_bytes_max=2 * MEBIBYTE, budget=budget)
    release = asyncio.Event()

    async def wait(_body: bytes, _context: Context) -> bytes:
        await release.wait()
        return bytes(MEBIBYTE)

    bank.behaviours["In"] = [reply(bytes(MEBIBYTE)), wait]
    assert (await _answer(destination, _call(bank.url("In")))).status == 200
    assert budget.used == 0
    waiting = [asyncio.ensure_future(_answer(destination, _call(bank.url("In")))) for _ in range(8)]
    await until(lambda: len(bank.calls) >= 9)
    assert budget.used == 8 * (MEBIBYTE - FREE_BYTES)
    crowded = await _answer(destination, _call(bank.url("In")))
    assert (crowded.status, "too many bytes" in crowded.error) == (0, True)
    release.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
    assert (await _answer(destination, _call(bank.url("In")))).status == 200
    assert budget.used == 0
    await destination.stop()


async def test_stopping_answers_what_is_under_way(bank: Bank) -> None:
    bank.behaviours["In"] = [hang]
    destination = GrpcDestination()
    waiting = asyncio.ensure_future(_answer(destination, _call(bank.url("In"))))
    await until(lambda: bank.calls)
    await destination.stop()
    assert (await waiting).error.startswith("closed")


async def test_a_port_that_speaks_no_grpc_is_an_error_within_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        destination = GrpcDestination()
        answer = await _answer(destination, _call(f"127.0.0.1:{silent.getsockname()[1]}/bank.Bank/In", 300))
        await destination.stop()
    assert (answer.status, answer.error.startswith("gRPC ")) == (0, True)
    assert answer.latency_ms < 20_000


async def test_headers_that_describe_http_are_left_out_and_impossible_ones_named(bank: Bank) -> None:
    destination = GrpcDestination()
    http = tuple((name.title(), "1") for name in sorted(CONNECTION_HEADERS))
    answer = await _answer(
        destination, _call(bank.url("In"), headers=(("Content-Type", "text/xml"), *http, ("X-A", "1")))
    )
    assert answer.status == 200
    assert bank.calls[0].metadata["x-a"] == "1"
    assert not set(bank.calls[0].metadata) & (CONNECTION_HEADERS - {"te"})
    assert bank.calls[0].metadata.get("te", "trailers") == "trailers"
    assert bank.calls[0].metadata.get("content-type", "application/grpc") != "text/xml"
    refused = await _answer(destination, _call(bank.url("In"), headers=(("x!", "1"),)))
    assert (refused.status, "'x!' cannot be gRPC metadata" in refused.error) == (0, True)
    await destination.stop()


async def test_grpcs_addresses_are_called_by_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair = authority.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in pair.cert_chain_pems)
    one = Bank()
    await one.start(credentials=grpc.ssl_server_credentials([(pair.private_key_pem.bytes(), chain)]))
    destination = GrpcDestination()
    assert (await _answer(destination, _call(one.url("In", "grpcs://"), 2_000))).status == 0, (
        "not an authority we trust"
    )
    await destination.stop()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    destination = GrpcDestination()
    assert (await _answer(destination, _call(one.url("In", "grpcs://")))).status == 200
    await destination.stop()
    await one.stop()


BAD_ADDRESSES: list[tuple[str, str]] = [
    ("grpc://bank:1", "not package.Service/Method"),
    ("grpc://bank:1/", "not package.Service/Method"),
    ("grpc://bank:1/In", "not package.Service/Method"),
    ("grpc://bank:1/bank.Bank/In/more", "not package.Service/Method"),
    ("grpc://bank:1/bank.Bank/In\r\n", "not package.Service/Method"),
    ("grpc://bank/bank.Bank/In", "the port is missing"),
    ("grpc://[::1]/bank.Bank/In", "the port is missing"),
    ("grpc://bank:0/bank.Bank/In", "the port is not a number"),
    ("grpc://user:secret@bank:1/bank.Bank/In", "user names and passwords"),
    ("unix:/tmp/socket/bank.Bank/In", "the port is missing"),
    ("grpc:///bank.Bank/In", "the host is missing"),
    ("grpc://bank:1/bank.Bank/In?x!=1", "cannot be metadata"),
    ("grpc://bank:1/bank.Bank/In?x-bin=1", "cannot be metadata"),
    ("grpc://bank:1/bank.Bank/In?x=%0a", "cannot be metadata"),
    ("grpc://bank:1/bank.Bank/" + "x" * 2048, "at most 2048 are allowed"),
]


@pytest.mark.parametrize(("url", "text"), BAD_ADDRESSES)
def test_an_address_that_cannot_be_called_is_refused_by_name(url: str, text: str) -> None:
    why = GrpcDestination().accepts(url) or ""
    assert why.startswith("bad_url: ")
    assert text in why
    assert "secret" not in why


def test_addresses_share_limits_by_host() -> None:
    destination = GrpcDestination()
    for url in ("grpc://Bank:1/a.B/C", "bank:1/d.E/F?x=1"):
        assert (destination.accepts(url), destination.key(url)) == (None, "grpc://bank:1")
    assert destination.key("grpcs://[::1]:7/a.B/C") == "grpcs://[::1]:7"
