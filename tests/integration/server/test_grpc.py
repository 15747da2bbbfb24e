"""The gRPC port as dtm's clients use it.

A whole server and a real channel meet every way in which a request can be refused.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from benchmarks.servers.ports import KeptPort
from tests.integration.server.running import Running, running
from tests.support.certificates import Certificates
from tests.support.fake_coordinator import FakeCoordinator, StoppedClock
from tests.support.waiting import until
from twophase.coordinator.state.active_message import Reply
from twophase.core.errors import (
    ConfigurationError,
    ForgottenMessage,
    NotYetDelivered,
    Overloaded,
    ServerFault,
    StoreError,
)
from twophase.core.lifecycle import State
from twophase.core.options import Durability, Options
from twophase.core.verdict import BranchResult
from twophase.grpc_wire.messages import Request, encode_request, parse_gid
from twophase.server.api.dtm_grpc import GrpcApi
from twophase.server.codecs.decode import Decoder

Code = grpc.StatusCode


class Refused(Exception):
    """The end of a call that did not end well."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code()
        self.text = error.details() or ""
        self.metadata = {str(key): str(value) for key, value in error.trailing_metadata() or ()}
        super().__init__(f"{self.code.name}: {self.text}")


class Dtm:
    """A client of the port, without any generated code."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.metadata: dict[str, str] = {}

    async def raw(self, name: str, body: bytes) -> bytes:
        """Make one call; the trailing metadata is kept."""
        call = method(self.channel, f"/dtmgimp.Dtm/{name}")(body, timeout=20)
        try:
            reply: bytes = await call
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from error
        self.metadata = {str(key): str(value) for key, value in await call.trailing_metadata()}
        return reply

    async def ask(self, method: str, **fields: Any) -> bytes:
        """Make one request about a message."""
        return await self.raw(method, encode_request(Request(**{"trans_type": "msg"} | fields)))

    async def refused(self, method: str, **fields: Any) -> Refused:
        """Return the refusal of a request that must be refused."""
        with pytest.raises(Refused) as caught:
            await self.ask(method, **fields)
        return caught.value


def method(channel: grpc.aio.Channel, path: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    """Return a method that takes and returns bytes."""
    raw: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
    return raw


def message(gid: str, url: str = "127.0.0.1:1/bank.Bank/In", **fields: Any) -> dict[str, Any]:
    steps = msgspec.json.encode([{"action": url}]).decode()
    return {"gid": gid, "steps": steps, "payloads": [b"\x08\x1e"]} | fields


def grpc_url(server: Running) -> str:
    return next(url for url in server.server.urls if url.startswith("grpc"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, grpc_port=0) as one:
        yield one


@pytest.fixture
async def dtm(server: Running) -> AsyncIterator[Dtm]:
    async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
        yield Dtm(channel)


async def test_a_message_is_prepared_submitted_and_aborted(server: Running, dtm: Dtm) -> None:
    check = "127.0.0.1:1/bank.Bank/Check"
    assert await dtm.ask("Prepare", **message("g", query_prepared=check)) == b""
    prepared_at = int(dtm.metadata["twophase-prepared-at"])
    view = await server.view("g")
    assert (view.state, view.created_ms, view.message.check_url) == (State.PREPARED, prepared_at, check)
    assert (view.message.protocol, view.message.branches[0].payload) == ("grpc", b"\x08\x1e")
    await dtm.ask("Prepare", **message("g", query_prepared=check))
    await dtm.ask("Submit", **message("g", query_prepared=check))
    assert (await server.view("g")).state is State.SUBMITTED
    await dtm.ask("Prepare", **message("h", query_prepared=check))
    await dtm.ask("Abort", gid="h")
    assert (await server.view("h")).state is State.FAILED


async def test_every_option_arrives(server: Running, dtm: Dtm) -> None:
    options: dict[str, Any] = {
        "timeout_to_fail": 7,
        "request_timeout": 8,
        "retry_interval": 9,
        "branch_headers": {"x-tenant": "blue"},
        "custom_data": '{"delay":2}',
        "concurrent": True,
        "explicit_verdict": True,
        "open": True,
        "durability": "check-back",
        "next_cron_time": "1970-01-01T00:00:01Z",
        "attempts_max": 12,
    }
    await dtm.ask("Prepare", **message("g", query_prepared="127.0.0.1:1/bank.Bank/Check", **options))
    assert (await server.view("g")).message.options == Options(
        concurrent=True,
        delay_ms=2_000,
        timeout_to_fail_ms=7_000,
        request_timeout_ms=8_000,
        retry_interval_ms=9_000,
        headers=(("x-tenant", "blue"),),
        explicit_verdict=True,
        open=True,
        durability=Durability.CHECK_BACK,
        not_before_ms=1_000,
        attempts_max=12,
    )
    exact: dict[str, Any] = {"delay_ms": 1, "timeout_to_fail_ms": 2, "request_timeout_ms": 3, "retry_interval_ms": 4}
    await dtm.ask("Prepare", **message("h", query_prepared="127.0.0.1:1/bank.Bank/Check", **exact))
    said = (await server.view("h")).message.options
    assert (said.delay_ms, said.timeout_to_fail_ms, said.request_timeout_ms, said.retry_interval_ms) == (1, 2, 3, 4)


async def test_an_empty_or_null_list_of_steps_is_a_message_without_branches(server: Running, dtm: Dtm) -> None:
    for gid, steps in (("a", ""), ("b", "null"), ("c", "[]")):
        await dtm.ask("Submit", gid=gid, steps=steps)
        await server.until(gid, State.SUCCEEDED)


async def test_http_addresses_are_called_over_http_whatever_the_protocol(server: Running, dtm: Dtm) -> None:
    await dtm.ask("Submit", **message("g", "http://127.0.0.1:1/in"))
    view = await server.until_logged("g")
    assert view.log[0].error.startswith("connect")


async def test_new_gids_differ(dtm: Dtm) -> None:
    first, second = [parse_gid(await dtm.raw("NewGid", b"")) for _ in range(2)]
    assert first != second


# the requests before, the request now, the state that the answer names, dtm's text
CONFLICTS = [
    ("Submit", "Prepare", "submitted", "current status 'submitted', cannot prepare. FAILURE"),
    ("Submit", "Abort", "submitted", "trans type: 'msg' current status 'submitted', cannot abort. FAILURE"),
    ("Prepare Abort", "Submit", "failed", "current status 'failed', cannot sumbmit. FAILURE"),
    ("Prepare Abort", "Prepare", "failed", "current status 'failed', cannot prepare. FAILURE"),
]


@pytest.mark.parametrize(("before", "method", "state", "text"), CONFLICTS)
async def test_what_the_state_refuses_is_aborted_in_dtms_words(
    dtm: Dtm, before: str, method: str, state: str, text: str
) -> None:
    for request in before.split():
        await dtm.ask(request, **message("g", query_prepared="127.0.0.1:1/bank.Bank/Check"))
    refused = await dtm.refused(method, **message("g", query_prepared="127.0.0.1:1/bank.Bank/Check"))
    assert (refused.code, refused.text, refused.metadata["twophase-state"]) == (Code.ABORTED, text, state)
    assert refused.metadata["twophase-code"].startswith("TP-200")


async def test_an_unknown_gid_is_not_found(dtm: Dtm) -> None:
    refused = await dtm.refused("Abort", gid="nosuch")
    assert (refused.code, refused.text) == (Code.NOT_FOUND, "no TransGlobal with gid: nosuch found")


BAD: list[tuple[str, dict[str, Any], Code, str]] = [
    ("no gid", message(""), Code.INVALID_ARGUMENT, "gid is empty"),
    ("no type", message("g", trans_type=""), Code.UNIMPLEMENTED, "trans_type is missing"),
    ("saga", message("g", trans_type="saga"), Code.UNIMPLEMENTED, "trans_type is 'saga'"),
    ("steps no JSON", message("g", steps="[bad"), Code.INVALID_ARGUMENT, "steps: the text is not JSON"),
    ("steps no list", message("g", steps="{}"), Code.INVALID_ARGUMENT, "steps: "),
    ("action a number", message("g", steps='[{"action":1}]'), Code.INVALID_ARGUMENT, "steps: "),
    ("fewer payloads", message("g", payloads=[]), Code.INVALID_ARGUMENT, "payloads: there are 0 for 1"),
    ("no method", message("g", "127.0.0.1:1"), Code.INVALID_ARGUMENT, "steps[0].action: bad_url: the method"),
    ("no port", message("g", "bank/bank.Bank/In"), Code.INVALID_ARGUMENT, "the port is missing"),
    ("a socket file", message("g", "unix:/bank.Bank/In"), Code.INVALID_ARGUMENT, "steps[0].action: bad_url"),
    ("a resolver", message("g", "etcd://x/bank.Bank/In"), Code.INVALID_ARGUMENT, "no destination for 'etcd'"),
    ("check", message("g", query_prepared="bank"), Code.INVALID_ARGUMENT, "query_prepared: bad_url"),
    ("header", message("g", branch_headers={"x!": "1"}), Code.INVALID_ARGUMENT, "cannot be gRPC metadata"),
    ("header's value", message("g", branch_headers={"x": "a\tb"}), Code.INVALID_ARGUMENT, "cannot be gRPC metadata"),
    ("gid beyond ASCII", message("bestellung-ü"), Code.INVALID_ARGUMENT, "gid has characters beyond ASCII"),
    ("too long a timeout", message("g", request_timeout=601), Code.INVALID_ARGUMENT, "at most 600000"),
    ("immense number", message("g", request_timeout=2**62), Code.INVALID_ARGUMENT, "request_timeout is"),
    ("negative", message("g", delay_ms=-1), Code.INVALID_ARGUMENT, "delay is negative"),
    ("payload", message("g", payloads=[b"x" * (1 << 20) + b"x"]), Code.INVALID_ARGUMENT, "payload is 1048577 bytes"),
    ("request", message("g", payloads=[b"x" * (5 << 20)]), Code.INVALID_ARGUMENT, "request body is 52429"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "text"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_a_bad_request_is_refused_by_name(
    server: Running, dtm: Dtm, fields: dict[str, Any], code: Code, text: str
) -> None:
    refused = await dtm.refused("Submit", **fields)
    assert refused.code is code
    assert text in refused.text
    assert refused.metadata["twophase-code"].startswith("TP-100")
    assert await server.server.coordinator.query("g") is None


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe", b"{}"])
@pytest.mark.parametrize("method", ["Prepare", "Submit", "Abort"])
async def test_broken_protobuf_is_refused_in_words(dtm: Dtm, method: str, body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        await dtm.raw(method, body)
    assert (caught.value.code, caught.value.metadata["twophase-code"]) == (Code.INVALID_ARGUMENT, "TP-1000")
    assert "dtmgimp.DtmRequest" in caught.value.text


async def test_a_message_far_beyond_the_limit_is_not_even_read(dtm: Dtm) -> None:
    refused = await dtm.refused("Submit", **message("g", payloads=[b"x" * (9 << 20)]))
    assert refused.code is Code.RESOURCE_EXHAUSTED
    await dtm.raw("NewGid", b"")  # the connection, and the server, continue


@pytest.mark.parametrize("path", ["/dtmgimp.Dtm/Nosuch", "/busi.Busi/TransIn", "/x"])
async def test_an_unknown_method_is_refused_with_the_services_name(dtm: Dtm, path: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await method(dtm.channel, path)(b"x", timeout=20)
    assert caught.value.code() is Code.UNIMPLEMENTED
    assert "dtmgimp.Dtm" in (caught.value.details() or "")
    with pytest.raises(grpc.aio.AioRpcError) as streaming:
        async for _ in dtm.channel.stream_stream(path)(timeout=20):
            pass
    assert streaming.value.code() is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("RegisterBranch", "SAGA and TCC"),
        ("PrepareWorkflow", "workflow"),
    ],
)
async def test_what_is_not_served_says_why(dtm: Dtm, method: str, reason: str) -> None:
    refused = await dtm.refused(method)
    assert (refused.code, refused.metadata["twophase-code"]) == (Code.UNIMPLEMENTED, "TP-1002")
    assert reason in refused.text


ANSWERS = [
    (Reply(Overloaded(gid="g"), State.ABSENT), Code.UNAVAILABLE, "TP-3001"),
    (Reply(StoreError(gid="g"), State.ABSENT), Code.UNAVAILABLE, "TP-4000"),
    (Reply(ForgottenMessage(gid="g"), State.ABSENT), Code.OUT_OF_RANGE, "TP-2005"),
    (Reply(NotYetDelivered(gid="g"), State.SUBMITTED, 7, BranchResult.ONGOING), Code.ABORTED, "TP-2006"),
    (Reply(NotYetDelivered(gid="g"), State.SUBMITTED, 7, BranchResult.FAILED), Code.ABORTED, "TP-2006"),
    (Reply(NotYetDelivered(gid="g"), State.SUBMITTED, 7, BranchResult.ERROR), Code.UNKNOWN, "TP-2006"),
]


@pytest.fixture
async def faked() -> AsyncIterator[tuple[FakeCoordinator, GrpcApi, Dtm]]:
    coordinator, refused = FakeCoordinator(), list[str]()
    door = GrpcApi(coordinator, Decoder(lambda url: None), StoppedClock(), on_refused=refused.append)
    url = await door.start("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(url.removeprefix("grpc://")) as channel:
        yield coordinator, door, Dtm(channel)
    await door.stop()
    await door.stop()


@pytest.mark.parametrize(("reply", "code", "ours"), ANSWERS)
async def test_every_refusal_has_the_code_that_dtms_clients_know(
    faked: tuple[FakeCoordinator, GrpcApi, Dtm], reply: Reply, code: Code, ours: str
) -> None:
    coordinator, _, dtm = faked
    coordinator.answer = lambda gid: reply
    refused = await dtm.refused("Submit", **message("g"))
    assert (refused.code, refused.metadata["twophase-code"]) == (code, ours)
    assert (refused.metadata.get("grpc-retry-pushback-ms") == "1000") == (code is Code.UNAVAILABLE)


async def test_a_fault_of_the_server_is_reported_without_its_insides(
    faked: tuple[FakeCoordinator, GrpcApi, Dtm],
) -> None:
    coordinator, _, dtm = faked

    def fail(_gid: str) -> Reply:
        raise RuntimeError("secret")

    coordinator.answer = fail
    refused = await dtm.refused("Submit", **message("g"))
    assert (refused.code, refused.metadata["twophase-code"]) == (Code.UNKNOWN, ServerFault.code)
    assert refused.metadata["twophase-remedy"] == ServerFault.remedy
    assert "secret" not in refused.text


async def test_a_client_that_gives_up_leaves_its_request_to_the_coordinator(
    faked: tuple[FakeCoordinator, GrpcApi, Dtm],
) -> None:
    coordinator, _, dtm = faked
    coordinator.holds = True
    call = method(dtm.channel, "/dtmgimp.Dtm/Submit")(
        encode_request(Request(trans_type="msg", **message("g"))), timeout=20
    )
    await until(lambda: coordinator.held)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    coordinator.release("g")  # the caller has gone, and nothing breaks
    assert coordinator.heard == [("submit", "g")]


async def test_a_deadline_leaves_the_request_to_the_coordinator(
    faked: tuple[FakeCoordinator, GrpcApi, Dtm],
) -> None:
    coordinator, _, dtm = faked
    coordinator.holds = True
    raw = encode_request(Request(trans_type="msg", **message("g")))
    while not coordinator.held:  # a busy machine may need longer than the deadline to receive it
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(dtm.channel, "/dtmgimp.Dtm/Submit")(raw, timeout=0.2)
        assert caught.value.code() is Code.DEADLINE_EXCEEDED
    coordinator.release("g")  # the caller has gone, and nothing breaks
    assert set(coordinator.heard) == {("submit", "g")}


async def test_draining_ends_what_is_under_way_and_takes_no_more(
    faked: tuple[FakeCoordinator, GrpcApi, Dtm],
) -> None:
    coordinator, door, dtm = faked
    coordinator.holds = True
    under_way = asyncio.ensure_future(dtm.ask("Submit", **message("g")))
    await until(lambda: coordinator.held)
    draining = asyncio.ensure_future(door.drain(60))
    async with asyncio.timeout(60):
        while (await _ended(dtm)) is not Code.UNAVAILABLE:
            await asyncio.sleep(0.01)
    assert not under_way.done()
    coordinator.release("g")
    assert await under_way == b""
    await draining


async def _ended(dtm: Dtm) -> Code | None:
    try:
        await method(dtm.channel, "/dtmgimp.Dtm/NewGid")(b"", timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


async def test_health_is_served(dtm: Dtm) -> None:
    stub: Any = health_pb2_grpc.HealthStub(dtm.channel)
    for service in ("", "dtmgimp.Dtm"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_and_describes_the_services(dtm: Dtm) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(dtm.channel)  # type: ignore[arg-type]  # the stubs know no aio
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="dtmgimp.Dtm"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health"),
    ]
    listed, *described = [one async for one in stub.ServerReflectionInfo(iter(asked), timeout=20)]
    names = {service.name for service in listed.list_services_response.service}
    assert names >= {"dtmgimp.Dtm", "grpc.health.v1.Health"}
    assert all(one.file_descriptor_response.file_descriptor_proto for one in described)


async def test_a_taken_port_is_refused_when_it_was_asked_for(tmp_path: Path, server: Running) -> None:
    taken = int(grpc_url(server).rpartition(":")[2])
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigurationError, match=f"grpc_port: cannot listen on 127.0.0.1:{taken}"):
        async with running(tmp_path / "other", grpc_port=taken):
            pass


async def test_beside_a_private_http_port_there_is_none_unless_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as one:
        assert [url.partition(":")[0] for url in one.server.urls] == ["http"]


@pytest.mark.parametrize("setting", ["auto", "off"])
async def test_the_default_port_is_left_out_where_it_is_taken(
    tmp_path: Path, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = KeptPort()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("twophase.server.api.grpc_port.DEFAULT_PORT", taken.getsockname()[1])
        async with running(tmp_path, grpc_port=setting, http_port=own.number) as one:
            assert one.server.urls == [f"http://127.0.0.1:{own.number}"]
    own.release()


async def test_without_grpcio_a_port_that_was_asked_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twophase.server.api.grpc_port.installed", lambda: False)
    with pytest.raises(ConfigurationError, match=r"pip install 'twophase\[grpc\]'"):
        async with running(tmp_path, grpc_port=0):
            pass


async def test_connections_and_requests_are_bounded(tmp_path: Path) -> None:
    coordinator = FakeCoordinator()
    coordinator.holds = True
    door = GrpcApi(
        coordinator,
        Decoder(lambda url: None),
        StoppedClock(),
        on_refused=list[str]().append,
        connections_max=1,
        calls_max=2,
    )
    target = (await door.start("127.0.0.1", 0)).removeprefix("grpc://")
    apart = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target, apart) as first, grpc.aio.insecure_channel(target, apart) as second:
        under_way = [asyncio.ensure_future(Dtm(first).ask("Submit", **message(gid))) for gid in ("a", "b")]
        await until(lambda: len(coordinator.held) >= 2)
        assert (await Dtm(first).refused("Submit", **message("c"))).code is Code.RESOURCE_EXHAUSTED
        assert await _ended(Dtm(second)) is Code.UNAVAILABLE
        for gid in ("a", "b"):
            coordinator.release(gid)
        await asyncio.gather(*under_way)
        assert await _ended(Dtm(first)) is None
    await door.stop()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def test_tls_is_spoken_to_those_who_trust_the_authority(tmp_path: Path, certificates: Certificates) -> None:
    async with running(tmp_path, grpc_port=0, **certificates.settings()) as one:
        url = grpc_url(one)
        assert url.startswith("grpcs://127.0.0.1:")
        trusted = grpc.ssl_channel_credentials(certificates.ca.read_bytes())
        async with grpc.aio.secure_channel(url.removeprefix("grpcs://"), trusted) as channel:
            assert parse_gid(await Dtm(channel).raw("NewGid", b""))
        async with grpc.aio.insecure_channel(url.removeprefix("grpcs://")) as channel:
            assert await _ended(Dtm(channel)) is Code.UNAVAILABLE


async def test_clients_must_show_a_certificate_where_an_authority_is_named(
    tmp_path: Path, certificates: Certificates
) -> None:
    certificate, key = certificates.client("client.example")
    async with running(tmp_path, grpc_port=0, **certificates.settings(client_ca=True)) as one:
        target = grpc_url(one).removeprefix("grpcs://")
        nobody = grpc.ssl_channel_credentials(certificates.ca.read_bytes())
        async with grpc.aio.secure_channel(target, nobody) as channel:
            assert await _ended(Dtm(channel)) is Code.UNAVAILABLE
        known = grpc.ssl_channel_credentials(certificates.ca.read_bytes(), key.read_bytes(), certificate.read_bytes())
        async with grpc.aio.secure_channel(target, known) as channel:
            assert parse_gid(await Dtm(channel).raw("NewGid", b""))


@pytest.mark.parametrize("missing", ["tls_certificate", "tls_key"])
async def test_half_a_pair_is_refused(tmp_path: Path, certificates: Certificates, missing: str) -> None:
    with pytest.raises(ConfigurationError, match="one needs the other"):
        async with running(tmp_path, grpc_port=0, **{**certificates.settings(), missing: ""}):
            pass


async def test_files_that_are_no_certificate_are_refused(tmp_path: Path, certificates: Certificates) -> None:
    (tmp_path / "cert.pem").write_text("hello")
    with pytest.raises(ConfigurationError, match="tls_certificate"):
        async with running(tmp_path, grpc_port=0, **certificates.settings()):
            pass
    with pytest.raises(ConfigurationError, match="tls_client_ca: needs"):
        async with running(tmp_path, grpc_port=0, tls_client_ca=str(certificates.ca)):
            pass
