"""gRPC services: a real server of either kind, real databases.

The calls are like a coordinator's.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from concurrent import futures
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from tests.integration.integrations.test_fastapi import ASYNC_DRIVERS, branch_query, check_query, probe_query
from tests.support.business_databases import SPEND, Bank, arun, begin, new_gid, run
from twophase.barrier.branch import BranchOngoing, BranchRefused
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import write_branches
from twophase.barrier.transaction import perform
from twophase.core.errors import InvalidRequest
from twophase.core.message import Branch, encode_branches
from twophase.integrations.grpc import CHECK_METHOD, acheck_handler, aonce, check_handler, once, parameters

Code = grpc.StatusCode


class Told(msgspec.Struct):
    """The end of a call: code, reply, details and verdict."""

    code: Code
    reply: bytes = b""
    details: str = ""
    verdict: str | None = None


class Service:
    """A coordinator's view of a service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def call(self, method: str, query: dict[str, str], **also: str) -> Told:
        """Make one call; `query` is as over HTTP."""
        names = {"prepared_at": "twophase-prepared_at", "barrier": "twophase-barrier"}
        metadata = [(names.get(name, f"dtm-{name}"), value) for name, value in query.items()]
        raw: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(method)
        call = raw(b"", metadata=[*metadata, *also.items()], timeout=20)
        try:
            told = Told(Code.OK, await call)
        except grpc.aio.AioRpcError as error:
            told = Told(error.code(), details=error.details() or "")
        verdicts = [str(value) for key, value in await call.trailing_metadata() if key == "x-twophase-verdict"]
        assert len(set(verdicts)) <= 1
        told.verdict = verdicts[0] if verdicts else None
        return told

    async def check(self, query: dict[str, str]) -> Told:
        return await self.call(CHECK_METHOD, query)


def _effect(context: Any) -> None:
    match dict(context.invocation_metadata()).get("then"):
        case "refuse":
            raise BranchRefused("no stock")
        case "later":
            raise BranchOngoing
        case "fail":
            raise RuntimeError("secret")
        case "set":
            context.set_code(Code.ABORTED)


class _Branch(grpc.GenericRpcHandler):
    """The method `/bank.Bank/In`: it spends, then does what the metadata asks for."""

    def __init__(self, engine: Any, *, asynchronous: bool) -> None:
        self._engine = engine
        self._asynchronous = asynchronous

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method != "/bank.Bank/In":
            return None

        def receive(_request: bytes, context: grpc.ServicerContext) -> bytes:
            def effect(connection: Any) -> None:
                run(connection, SPEND)
                _effect(context)

            return once(self._engine, context, effect, b"done")

        async def areceive(_request: bytes, context: Any) -> bytes:
            async def effect(connection: Any) -> None:
                await arun(connection, SPEND)
                _effect(context)

            return await aonce(self._engine, context, effect, b"done")

        return grpc.unary_unary_rpc_method_handler(areceive if self._asynchronous else receive)


@pytest.fixture(params=["sync", "async", "async with a blocking engine"])
async def service(request: pytest.FixtureRequest, bank: Bank, lock_timeout_ms: int) -> AsyncIterator[Service]:
    """A producer and branch service of every kind."""
    async_engine = create_async_engine(bank.url(ASYNC_DRIVERS[bank.kind]))
    options = [("grpc.so_reuseport", 0)]
    with bank.engine() as engine:
        if request.param == "sync":
            blocking = grpc.server(futures.ThreadPoolExecutor(4), options=options)
            handlers = (check_handler(engine, lock_timeout=lock_timeout_ms / 1000), _Branch(engine, asynchronous=False))
            blocking.add_generic_rpc_handlers(handlers)
            port = blocking.add_insecure_port("127.0.0.1:0")
            blocking.start()
        else:
            serving = grpc.aio.server(options=options)
            check_engine = async_engine if request.param == "async" else engine
            handlers = (
                acheck_handler(check_engine, lock_timeout=lock_timeout_ms / 1000),
                _Branch(async_engine, asynchronous=True),
            )
            serving.add_generic_rpc_handlers(handlers)
            port = serving.add_insecure_port("127.0.0.1:0")
            await serving.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Service(channel)
        if request.param == "sync":
            blocking.stop(None).wait()
        else:
            await serving.stop(None)
    await async_engine.dispose()


async def test_a_commit_is_answered_with_its_branches(service: Service, bank: Bank) -> None:
    gid, added = new_gid(), encode_branches((Branch("grpc://b:1/c.C/C"),))
    with bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        perform(write_branches(transaction.dialect, "barrier", gid, gid, added), transaction)
        transaction.commit()
        transaction.close()
    told = await service.check(check_query(bank, gid))
    assert (told.code, told.verdict) == (Code.OK, "committed")
    assert base64.b64decode(msgspec.json.decode(told.reply)["branches"]) == added


async def test_what_never_began_is_rolled_back(service: Service, bank: Bank) -> None:
    told = await service.check(check_query(bank, new_gid()))
    assert (told.code, told.details, told.verdict) == (Code.ABORTED, "FAILURE", "rolled_back")


@pytest.mark.parametrize("lock_timeout_ms", [300])
async def test_what_is_under_way_is_in_progress(service: Service, bank: Bank) -> None:
    gid = new_gid()
    with bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        told = await service.check(check_query(bank, gid))
        transaction.rollback()
        transaction.close()
    assert (told.code, told.details, told.verdict) == (Code.FAILED_PRECONDITION, "ONGOING", "in_progress")


@pytest.mark.parametrize("barrier", ["another", None])
async def test_another_or_no_database_is_unknown(service: Service, bank: Bank, barrier: str | None) -> None:
    query = {name: value for name, value in check_query(bank, new_gid()).items() if name != "barrier"}
    told = await service.check(query | ({"barrier": barrier} if barrier else {}))
    assert (told.code, told.verdict) == (Code.UNKNOWN, "unknown")
    assert "TP-6002" in told.details
    assert bank.query("select * from barrier") == []


async def test_a_coordinator_without_parameters_sends_them_with_the_method(service: Service, bank: Bank) -> None:
    query = check_query(bank, new_gid())
    told = await service.call(f"{CHECK_METHOD}?barrier={query.pop('barrier')}", query)
    assert (told.code, told.verdict) == (Code.ABORTED, "rolled_back")


async def test_a_probe_is_answered_and_writes_nothing(service: Service, bank: Bank) -> None:
    before = bank.query("select * from barrier")
    told = await service.check(probe_query(bank))
    assert (told.code, told.verdict, bank.query("select * from barrier")) == (Code.OK, "probe", before)
    assert msgspec.json.decode(told.reply)["probe"] == "ready"


async def test_a_malformed_question_is_no_verdict(service: Service) -> None:
    told = await service.check({})
    assert (told.code, told.verdict) == (Code.INVALID_ARGUMENT, None)
    assert "gid is missing" in told.details


async def test_a_branch_takes_effect_once(service: Service, bank: Bank) -> None:
    query = branch_query(new_gid())
    for _ in range(3):
        told = await service.call("/bank.Bank/In", query)
        assert (told.code, told.reply) == (Code.OK, b"done")
    assert bank.balance() == 70


@pytest.mark.parametrize(
    ("then", "code", "details"),
    [
        ("refuse", Code.ABORTED, "FAILURE: no stock"),
        ("later", Code.FAILED_PRECONDITION, "ONGOING"),
        ("fail", Code.UNKNOWN, ""),
        ("set", Code.UNKNOWN, "TP-5010"),
    ],
)
async def test_a_branch_that_fails_says_how_and_leaves_nothing(
    service: Service, bank: Bank, then: str, code: Code, details: str
) -> None:
    told = await service.call("/bank.Bank/In", branch_query(new_gid()), then=then)
    assert told.code is code
    assert details in told.details
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


async def test_a_call_that_names_no_branch_is_refused(service: Service, bank: Bank) -> None:
    told = await service.call("/bank.Bank/In", {})
    assert (told.code, bank.balance()) == (Code.INVALID_ARGUMENT, 100)


class _Context:
    def __init__(self, *metadata: tuple[str, str | bytes]) -> None:
        self._metadata = metadata

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._metadata


def test_what_the_coordinator_says_is_read_from_the_metadata() -> None:
    said = _Context(("dtm-gid", "g"), ("dtm-dtm", ""), ("x-bin", b"1"), ("dtm-op", "action"))
    assert parameters(said) == {"gid": "g", "op": "action"}


def test_metadata_of_the_coordinator_that_comes_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="gid is twice"):
        parameters(_Context(("dtm-gid", "g"), ("dtm-gid", "forged")))


async def test_a_call_whose_metadata_names_two_messages_is_refused_and_leaves_nothing(
    service: Service, bank: Bank
) -> None:
    forged = {"dtm-gid": "forged"}
    told = await service.call("/bank.Bank/In", branch_query(new_gid()), **forged)
    assert (told.code, bank.balance()) == (Code.INVALID_ARGUMENT, 100)
    asked = await service.call(CHECK_METHOD, check_query(bank, new_gid()), **forged)
    assert (asked.code, asked.verdict) == (Code.INVALID_ARGUMENT, None)
