"""The whole of twophase over gRPC, blocking and on asyncio.

Producer, coordinator, check-back and branch take part.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from benchmarks.servers.ports import KeptPort
from tests.support.certificates import Certificates
from tests.support.one_try import one_try
from twophase import AsyncClient, Client, Message, Progress, RetryPolicy
from twophase.barrier.branch import BranchRefused
from twophase.barrier.installing import install
from twophase.client.transport import grpc as transport_grpc
from twophase.client.transport.wire import Operation, TransportFailure
from twophase.errors import (
    ConfigurationError,
    ContentConflict,
    ContraryDecision,
    CoordinatorUnreachable,
    InvalidRequest,
    NotPrepared,
    NotYetDelivered,
    StateConflict,
    UnknownMessage,
)
from twophase.integrations.grpc import check_handler, once
from twophase.testing import InProcessCoordinator, State


class Bank(grpc.GenericRpcHandler):
    """A service with a database that also answers check-backs.

    Its method `/bank.Bank/In` receives once.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bank.db"
        self.engine: Engine = create_engine(f"sqlite:///{self.path}", poolclass=NullPool)
        install(self.engine)
        with self.engine.begin() as connection:
            connection.execute(text("create table entry(amount integer)"))
        self.bodies: list[bytes] = []
        self.refusals = 0
        self.server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        self.server.add_generic_rpc_handlers((check_handler(self.engine), self))
        self.host = f"grpc://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.check = f"{self.host}/twophase.Producer/Check"
        self.branch = f"{self.host}/bank.Bank/In"

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method != "/bank.Bank/In":
            return None

        def receive(body: bytes, context: grpc.ServicerContext) -> bytes:
            def effect(connection: Any) -> None:
                self.bodies.append(body)
                if self.refusals:
                    self.refusals -= 1
                    raise BranchRefused
                connection.execute(text("insert into entry values (1)"))

            return once(self.engine, context, effect, b"")

        return grpc.unary_unary_rpc_method_handler(receive)

    def entries(self) -> int:
        """Return the number of effects."""
        with self.engine.connect() as connection:
            return int(connection.execute(text("select count(*) from entry")).scalar_one())


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    one = Bank(tmp_path)
    one.server.start()
    yield one
    one.server.stop(None).wait()
    one.engine.dispose()


@pytest.fixture
def coordinator() -> Iterator[InProcessCoordinator]:
    with InProcessCoordinator(grpc_port=0, retry_first_ms=10, check_back_first_ms=10, request_timeout_ms=60_000) as one:
        yield one


SPEND = "insert into entry values (-30)"


class Producer:
    """The same steps, blocking and on asyncio."""

    def __init__(self, manner: str, server: str, bank: Bank, **options: Any) -> None:
        self.manner = manner
        self.bank = bank
        self.server = server
        self._endpoint: Client | AsyncClient = (Client if manner == "sync" else AsyncClient)(server, **options)

    def message(self, **options: Any) -> Any:
        return self._endpoint.message(**options)

    def transact(self, message: Message, fails: Exception | None = None) -> None:
        """Run the message's transaction around one statement."""
        if self.manner == "sync":
            with message.transaction(self.bank.engine, check=self.bank.check) as connection:
                connection.execute(text(SPEND))
                if fails is not None:
                    raise fails
            return

        async def work() -> None:
            engine = create_async_engine(f"sqlite+aiosqlite:///{self.bank.path}", poolclass=NullPool)
            async with message.transaction(engine, check=self.bank.check) as connection:
                await connection.execute(text(SPEND))
                if fails is not None:
                    raise fails
            await engine.dispose()

        asyncio.run(work())

    def do(self, message: Message, what: str, *arguments: Any) -> None:
        """Call prepare, submit or abort by hand."""
        if self.manner == "sync":
            getattr(message, what)(*arguments)
        else:
            asyncio.run(self._await(getattr(message, what), arguments))

    @staticmethod
    async def _await(method: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> None:
        await method(*arguments)

    def close(self) -> None:
        if isinstance(self._endpoint, Client):
            self._endpoint.close()
            self._endpoint.close()


@pytest.fixture(params=["sync", "async"])
def producer(request: pytest.FixtureRequest, coordinator: InProcessCoordinator, bank: Bank) -> Iterator[Producer]:
    one = Producer(request.param, coordinator.grpc_url, bank)
    yield one
    one.close()


def _lose_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the producer die right after its commit, as far as the coordinator can see."""
    for transport in (transport_grpc.GrpcTransport, transport_grpc.AsyncGrpcTransport):
        send: Any = transport.send

        def lost(self: Any, operation: Operation, body: bytes, timeout_ms: int, send: Any = send) -> Any:
            if operation is Operation.SUBMIT:
                raise TransportFailure("lost")
            return send(self, operation, body, timeout_ms)

        monkeypatch.setattr(transport, "send", lost)


def test_a_committed_transaction_is_delivered(
    producer: Producer, bank: Bank, coordinator: InProcessCoordinator
) -> None:
    message = producer.message().add(bank.branch, b"\x00\xff\x08")
    producer.transact(message)
    assert message.submitted
    assert coordinator.wait_final(message.gid) is State.SUCCEEDED
    assert (bank.entries(), bank.bodies) == (2, [b"\x00\xff\x08"])


def test_a_rolled_back_transaction_is_aborted(
    producer: Producer, bank: Bank, coordinator: InProcessCoordinator
) -> None:
    message = producer.message().add(bank.branch, {})
    with pytest.raises(LookupError):
        producer.transact(message, LookupError("the business says no"))
    assert (message.state, coordinator.state(message.gid)) == (Progress.ROLLED_BACK, State.FAILED)
    assert (bank.entries(), bank.bodies) == (0, [])


def test_a_lost_submit_is_made_good_by_the_check_back(
    producer: Producer, bank: Bank, coordinator: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lose_submit(monkeypatch)
    message = producer.message(allow_late_branches=True).add(bank.branch, b"first")
    producer.transact(message)
    assert message.state is Progress.COMMITTED
    assert coordinator.state(message.gid) is State.PREPARED
    coordinator.advance(36)
    assert coordinator.wait_final(message.gid) is State.SUCCEEDED
    view = coordinator.query(message.gid)
    assert view is not None
    assert view.decided_by == "check-back"
    assert bank.entries() == 2


def test_a_producer_that_never_came_back_is_rolled_back(
    producer: Producer, bank: Bank, coordinator: InProcessCoordinator
) -> None:
    message = producer.message().add(bank.branch, {})
    (identity,) = _identity(bank)
    producer.do(message, "prepare", f"{bank.check}?barrier={identity}")
    coordinator.advance(36)
    assert coordinator.wait_final(message.gid) is State.FAILED
    with pytest.raises(ContraryDecision):
        producer.do(message, "submit")


def _identity(bank: Bank) -> tuple[str]:
    with bank.engine.connect() as connection:
        row = connection.execute(text("select value from twophase_meta where name = 'identity'")).one()
    return (str(row[0]),)


def test_by_hand_the_coordinator_refuses_as_over_http(
    producer: Producer, bank: Bank, coordinator: InProcessCoordinator
) -> None:
    message = producer.message().add(bank.branch, {})
    producer.do(message, "submit")
    coordinator.wait_final(message.gid)
    again = producer.message(gid=message.gid).add(bank.branch, {})
    with pytest.raises(StateConflict, match="prepare is refused: the message is succeeded"):
        producer.do(again, "prepare", bank.check)
    producer.do(again, "submit")  # delivered is as good as submitted
    with pytest.raises(ContentConflict):  # but other content was never delivered
        producer.do(producer.message(gid=message.gid).add(bank.branch, {"other": 1}), "submit")
    with pytest.raises(ContraryDecision):
        producer.do(producer.message(gid=message.gid), "abort")
    with pytest.raises(UnknownMessage):
        producer.do(producer.message(), "abort")
    assert bank.entries() == 1


def test_wait_result_tells_that_a_branch_refused(
    producer: Producer, bank: Bank, coordinator: InProcessCoordinator
) -> None:
    bank.refusals = 1
    message = producer.message(wait_result=True).add(bank.branch, {})
    with pytest.raises(NotYetDelivered):
        producer.do(message, "submit")
    coordinator.advance(60)
    coordinator.wait_final(message.gid)
    assert bank.entries() == 1


def test_http_and_grpc_speak_of_the_same_message(bank: Bank, coordinator: InProcessCoordinator) -> None:
    first = Message(coordinator.url).add(bank.branch, {"amount": 30}).prepare(bank.check)
    Message(coordinator.grpc_url, first.gid).add(bank.branch, {"amount": 30}).submit()
    assert coordinator.wait_final(first.gid) is State.SUCCEEDED
    assert bank.bodies == [b'{"amount":30}']


def test_many_threads_share_one_channel(bank: Bank, coordinator: InProcessCoordinator) -> None:
    with Client(coordinator.grpc_url) as endpoint:
        messages = [endpoint.message().add(bank.branch, {}) for _ in range(16)]
        threads = [threading.Thread(target=message.submit) for message in messages]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for message in messages:
            assert coordinator.wait_final(message.gid) is State.SUCCEEDED


@pytest.mark.parametrize("manner", ["sync", "async"])
def test_without_a_coordinator_the_business_does_not_run(manner: str, bank: Bank) -> None:
    producer = Producer(manner, "grpc://127.0.0.1:1", bank)
    one_try(producer._endpoint)
    message = producer.message().add(bank.branch, {})
    with pytest.raises(NotPrepared):
        producer.transact(message)
    assert bank.entries() == 0
    producer.close()


def test_a_coordinator_that_comes_back_is_found_by_the_next_attempt(bank: Bank, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'coordinator.db'}"
    with InProcessCoordinator(store, grpc_port=0) as first:
        url = first.grpc_url
        endpoint = Client(url, retry=RetryPolicy(total=3))
        endpoint.message().add(bank.branch, {}).submit()
    away = KeptPort(int(url.rpartition(":")[2]))
    away_until = time.monotonic() + 6  # long enough for gRPC's own pauses to grow beyond the client's timeout
    while time.monotonic() < away_until:
        with pytest.raises(CoordinatorUnreachable):
            endpoint.message().add(bank.branch, {}).submit()
    with InProcessCoordinator(store, grpc_port=away.number) as second:
        message = endpoint.message().add(bank.branch, {}).submit()
        assert second.wait_final(message.gid) is State.SUCCEEDED
    endpoint.close()
    away.release()


def test_a_service_that_is_no_coordinator_is_distinguished_from_one(bank: Bank) -> None:
    with pytest.raises(CoordinatorUnreachable, match="501"):
        Message(bank.host).add(bank.branch, {}).submit()


def test_over_http_bytes_must_be_text_and_the_refusal_names_grpc(coordinator: InProcessCoordinator) -> None:
    with pytest.raises(InvalidRequest, match="grpc://"):
        Message(coordinator.url).add("http://b/in", b"\xff")


def test_addresses_that_are_none_are_refused_when_the_endpoint_is_made() -> None:
    with pytest.raises(ConfigurationError, match="grpc://host:36790"):
        Client("grpc://host/path")


@pytest.mark.parametrize("manner", ["sync", "async"])
def test_tls_and_an_authorization_go_along(manner: str, bank: Bank, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    context = certificates.context()
    with InProcessCoordinator(grpc_port=0, **certificates.settings()) as coordinator:
        assert coordinator.grpc_url.startswith("grpcs://")
        kind: Any = Client if manner == "sync" else AsyncClient
        endpoint = kind(coordinator.grpc_url, ssl_context=context, authorization="Bearer 1")
        message = endpoint.message().add(bank.branch, {})
        if manner == "sync":
            message.submit()
            endpoint.close()
        else:
            asyncio.run(Producer._await(message.submit, ()))
        assert coordinator.wait_final(message.gid) is State.SUCCEEDED
        untrusting = one_try(Client(coordinator.grpc_url))
        with pytest.raises(CoordinatorUnreachable):
            Message(untrusting).add(bank.branch, {}).submit()
        untrusting.close()


@pytest.mark.parametrize("missing", ["grpc", "google.protobuf"])
def test_without_the_extra_the_remedy_is_named(missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from twophase import Message\nfrom twophase.errors import ConfigurationError\n"
        "try: Message('grpc://127.0.0.1:1').add('http://b/in', {}).submit()\n"
        "except ConfigurationError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'twophase[grpc]'" in ran.stdout
