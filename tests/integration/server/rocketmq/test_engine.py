"""The port for RocketMQ's clients on a whole server: owners, TLS, settings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
import pytest

from tests.integration.server.running import Running, running
from tests.support.certificates import Certificates
from tests.support.identities import token_of, write
from tests.support.rocketmq_wire import GROUP, HALF, TOPIC, Wire, message, resource, seconds
from twophase import AsyncMessage
from twophase.coordinator.queues import definitions
from twophase.core import limits
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import State
from twophase.grpc_server.status import Ended, Status
from twophase.grpc_server.streaming import StreamingCall
from twophase.rocketmq_wire.codes import ClientType, Code, MessageType, Resolution
from twophase.rocketmq_wire.descriptors import kind
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Quota
from twophase.server.setting_sources import load
from twophase.server.workers.assignment import of_worker
from twophase.stores.batch import Batch, FlushResult
from twophase.stores.sqlite.store import SqliteStore

_COMMIT: dict[str, Any] = {"topic": kind("Resource")(name=TOPIC), "resolution": Resolution.COMMIT}


def _address(server: Running, scheme: str = "rocketmq") -> str:
    (url,) = [url for url in server.server.urls if url.startswith(f"{scheme}://")]
    return url.removeprefix(f"{scheme}://")


async def test_a_half_message_is_a_message_of_the_coordinator(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        gid = (await wire.ask("SendMessage", messages=[message(**HALF)])).entries[0].transaction_id
        assert (await server.view(gid)).state is State.PREPARED
        assert await wire.code("EndTransaction", transaction_id=gid, **_COMMIT) == Code.OK
        assert (await server.view(gid)).state is State.SUCCEEDED
        _, delivery, _ = await wire.receive()
        assert delivery.message.body == b"{}"
        await wire.close()


async def test_what_a_client_makes_by_its_first_use_is_a_row_with_its_token_and_address(tmp_path: Path) -> None:
    tokens = write(tmp_path, "shop", [Scope.PRODUCE, Scope.CONSUME])
    async with running(tmp_path, rocketmq_port=0, tokens=tokens) as server:
        wire = Wire(_address(server), token_of("shop"))
        for _ in range(2):
            assert await wire.code("SendMessage", messages=[message()]) == Code.OK
            assert await wire.code("SendMessage", messages=[message("2", **HALF)]) == Code.OK
            await wire.receive(invisible_duration=seconds(30))
            assert await wire.code("QueryRoute", topic=resource("routed")) == Code.OK
            assert await wire.code("QueryAssignment", topic=resource("assigned"), group=resource(GROUP)) == Code.OK
        stream = wire.telemetry()
        subscription = kind("Subscription")(group=resource("settled"))
        settings = kind("Settings")(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
        await stream.write(kind("TelemetryCommand")(settings=settings).SerializeToString())
        await stream.read()
        rows = [row for row in await server.server._store.audit_chain(0, 100) if row.act != "token"]
        assert {(row.who, row.peer) for row in rows} == {("shop", "127.0.0.1")}
        assert [(row.act, row.target) for row in rows] == [
            ("define-topic", TOPIC),
            ("define-group", GROUP),
            ("define-topic", "routed"),
            ("define-topic", "assigned"),
            ("define-group", "settled"),
        ]
        await wire.close()


async def test_messages_of_a_message_group_come_one_by_one_from_a_topic_made_on_use(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        for number in "12":
            fifo = message(number, message_type=MessageType.FIFO, message_group="order-7")
            assert await wire.code("SendMessage", messages=[fifo]) == Code.OK
        assert await wire.code("SendMessage", messages=[message("3")]) == Code.OK
        found = [part.message.system_properties.message_id for part in await wire.receive(batch_size=32)]
        assert [one for one in found if one] == ["1", "3"]
        await wire.close()


async def test_beyond_the_limit_of_topics_and_groups_each_call_has_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        assert await wire.code("SendMessage", messages=[message()]) == Code.OK
        monkeypatch.setattr(definitions, "TOPICS_MAX", msgspec.structs.replace(limits.TOPICS_MAX, value=1))
        assert (await wire.receive())[0].status.code == Code.TOO_MANY_REQUESTS
        assert await wire.code("QueryRoute", topic=resource("new")) == Code.TOO_MANY_REQUESTS
        assert (
            await wire.code("QueryAssignment", topic=resource("new"), group=resource(GROUP)) == Code.TOO_MANY_REQUESTS
        )
        stream = wire.telemetry()
        subscription = kind("Subscription")(group=resource(GROUP))
        settings = kind("Settings")(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
        await stream.write(kind("TelemetryCommand")(settings=settings).SerializeToString())
        async with asyncio.timeout(60):
            assert (await stream.read()).status.code == Code.TOO_MANY_REQUESTS
        await wire.close()


async def test_a_queue_may_be_a_branch_of_the_sdks_message(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        sent = AsyncMessage(f"http://127.0.0.1:{server.port}").add(f"queue://{TOPIC}?tag=paid", {"order": 7})
        await sent.submit()
        wire = Wire(_address(server))
        _, delivery, _ = await wire.receive()
        assert delivery.message.body == b'{"order":7}'
        assert delivery.message.system_properties.tag == "paid"
        assert delivery.message.system_properties.message_id == sent.gid
        await wire.close()


async def test_another_owners_half_message_is_decided_by_nobody_else(tmp_path: Path) -> None:
    tokens = write(tmp_path, "shop", [Scope.PRODUCE])
    write(tmp_path, "eve", [Scope.PRODUCE])
    async with running(tmp_path, rocketmq_port=0, tokens=tokens) as server:
        shop, eve = (Wire(_address(server), token_of(name)) for name in ("shop", "eve"))
        gid = (await shop.ask("SendMessage", messages=[message(**HALF)])).entries[0].transaction_id
        for source in (1, 2):
            refused = await eve.code("EndTransaction", transaction_id=gid, source=source, **_COMMIT)
            assert refused == Code.INVALID_TRANSACTION_ID
        assert (await server.view(gid)).state is State.PREPARED
        assert await shop.code("EndTransaction", transaction_id=gid, **_COMMIT) == Code.OK
        await shop.close()
        await eve.close()


async def test_a_recall_tells_nothing_about_another_owners_message(tmp_path: Path) -> None:
    tokens = write(tmp_path, "shop", [Scope.PRODUCE])
    write(tmp_path, "eve", [Scope.PRODUCE])
    async with running(tmp_path, rocketmq_port=0, tokens=tokens) as server:
        shop, eve = (Wire(_address(server), token_of(name)) for name in ("shop", "eve"))
        gid = (await shop.ask("SendMessage", messages=[message()])).entries[0].transaction_id
        asked = {"topic": kind("Resource")(name=TOPIC), "recall_handle": f"{gid}:01AB"}
        assert await shop.code("RecallMessage", **asked) == Code.BAD_REQUEST
        assert await eve.code("RecallMessage", **asked) == Code.NOT_FOUND
        await shop.close()
        await eve.close()


async def test_a_message_id_and_a_transaction_are_of_one_message(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        for fields, id_ in (({}, "1"), (HALF, "2")):
            first, again, other = [
                await wire.ask("SendMessage", messages=[message(id_, body, **fields)]) for body in (b"a", b"a", b"b")
            ]
            assert first.entries[0].transaction_id == again.entries[0].transaction_id
            assert (again.status.code, other.status.code) == (Code.OK, Code.ILLEGAL_MESSAGE_ID)
        ending = {"transaction_id": first.entries[0].transaction_id, "resolution": Resolution.COMMIT}
        for wrong in ({"message_id": "2"}, {}):
            code = await wire.code("EndTransaction", topic=resource("bills"), **ending, **wrong)
            assert code == Code.INVALID_TRANSACTION_ID
        for right in ({"message_id": "2"}, {}, {"message_id": "another"}):
            assert await wire.code("EndTransaction", topic=resource(TOPIC), **ending, **right) == Code.OK
        found = [part.message.body for part in await wire.receive() if part.message.body]
        assert found == [b"a", b"a"]
        await wire.close()


async def test_receipts_of_one_call_are_durable_in_one_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        await wire.ask("SendMessage", messages=[message(f"{number}") for number in range(20)])
        found = [part.message.system_properties for part in await wire.receive(batch_size=32) if part.message.body]
        flushes: list[int] = []
        flush = SqliteStore.flush

        async def counted(store: SqliteStore, batch: Batch) -> FlushResult:
            flushes.append(len(batch.progress))
            return await flush(store, batch)

        monkeypatch.setattr(SqliteStore, "flush", counted)
        entries = [kind("AckMessageEntry")(receipt_handle=one.receipt_handle) for one in found]
        answer = await wire.ask("AckMessage", entries=entries, group=resource(GROUP), topic=resource(TOPIC))
        assert [one.status.code for one in answer.entries] == [Code.OK] * 20
        assert sum(flushes) == 1
        await wire.close()


async def test_a_filter_that_is_none_is_refused_as_such(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        status, _ = await wire.receive(filter_expression=kind("FilterExpression")(type=1, expression="a && b"))
        assert status.status.code == Code.ILLEGAL_FILTER_EXPRESSION
        await wire.close()


async def test_a_receipt_of_an_earlier_process_acknowledges_nothing_and_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        await wire.ask("SendMessage", messages=[message("1"), message("2")])
        handles = [part.message.system_properties.receipt_handle for part in await wire.receive() if part.message.body]
        of = {"group": resource(GROUP), "topic": resource(TOPIC)}
        entry = kind("AckMessageEntry")
        assert await wire.code("AckMessage", entries=[entry(receipt_handle=handles[0])], **of) == Code.OK
        await wire.close()
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        for _ in range(2):  # before the first poll, and after it
            code = await wire.code("AckMessage", entries=[entry(receipt_handle=handles[1])], **of)
            assert code == Code.INVALID_RECEIPT_HANDLE
            found = [part.message.system_properties for part in await wire.receive() if part.message.body]
        assert found == []
        assert await wire.code("AckMessage", entries=[entry(receipt_handle=handles[0])], **of) == Code.OK
        await wire.close()


async def test_a_receipt_counts_for_its_group_and_topic_alone(tmp_path: Path) -> None:
    """Receipts are numbered for all groups together.

    So another group's may be the older one, or name what is done.
    """
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        await wire.ask("SendMessage", messages=[message("1"), message("1", topic="bills")])
        of_group = await _handle(wire)
        of_topic = await _handle(wire, message_queue=kind("MessageQueue")(topic=resource("bills")))
        own = await _handle(wire, group=resource("others"))
        strange = [of_group, of_topic]
        for handle in strange:
            assert await _ack(wire, handle) == Code.INVALID_RECEIPT_HANDLE, "the group has the message"
        assert await _ack(wire, own) == Code.OK
        for handle in strange:
            assert await _ack(wire, handle) == Code.INVALID_RECEIPT_HANDLE, "the group has done it"
        await wire.close()
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        for _ in range(2):  # before the group's first poll, and after it
            for handle in strange:
                assert await _ack(wire, handle) == Code.INVALID_RECEIPT_HANDLE
            await wire.receive(group=resource("others"))
        await wire.close()


async def _handle(wire: Wire, **fields: Any) -> str:
    """Return the receipt of the one message that a receive brings."""
    (found,) = [part.message.system_properties for part in await wire.receive(**fields) if part.message.body]
    handle: str = found.receipt_handle
    return handle


async def _ack(wire: Wire, handle: str) -> Code:
    """Return the answer to an acknowledgement by the group `others`."""
    entries = [kind("AckMessageEntry")(receipt_handle=handle)]
    return await wire.code("AckMessage", entries=entries, group=resource("others"), topic=resource(TOPIC))


@pytest.mark.parametrize("lease", [{"auto_renew": True}, {"invisible_duration": seconds(12 * 3600)}])
async def test_messages_that_did_not_reach_the_client_are_given_out_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease: dict[str, Any]
) -> None:
    async with running(tmp_path, rocketmq_port=0) as server:
        wire = Wire(_address(server))
        await wire.settle()
        await wire.ask("SendMessage", messages=[message()])
        send = StreamingCall.send

        async def gone(call: StreamingCall, answer: bytes) -> None:
            monkeypatch.setattr(StreamingCall, "send", send)
            raise Ended(Status.CANCELLED, "the caller has gone.")

        monkeypatch.setattr(StreamingCall, "send", gone)
        with pytest.raises(grpc.aio.AioRpcError):
            await wire.receive(**lease)
        server.advance(10_001)

        status, delivery, _ = await wire.receive(**lease)
        assert (status.status.code, delivery.message.system_properties.delivery_attempt) == (Code.OK, 2)
        await wire.close()


async def test_a_push_consumer_whose_handler_hangs_loses_its_message_to_another(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0, queue_hold_ms=600_000) as server:
        address = _address(server)
        hanging, other = Wire(address), Wire(address, **{"x-mq-client-id": "other"})
        streams = [await wire.settle() for wire in (hanging, other)]
        await hanging.ask("SendMessage", messages=[message()])
        _, delivery, _ = await hanging.receive(auto_renew=True)
        server.advance(300_000)
        assert (await other.receive(auto_renew=True))[0].status.code == Code.MESSAGE_NOT_FOUND
        server.advance(300_000)

        status, again, _ = await other.receive(auto_renew=True)

        assert (status.status.code, again.message.system_properties.delivery_attempt) == (Code.OK, 2)
        assert again.message.system_properties.message_id == delivery.message.system_properties.message_id
        for stream in streams:
            stream.cancel()
        await hanging.close()
        await other.close()


async def test_a_call_of_many_messages_counts_as_many_requests(tmp_path: Path) -> None:
    tokens = write(tmp_path, "shop", [Scope.PRODUCE], quota=Quota(requests_per_s=4))
    async with running(tmp_path, rocketmq_port=0, tokens=tokens) as server:
        wire = Wire(_address(server), token_of("shop"))
        many = [message(f"{number}") for number in range(200)]
        assert await wire.code("SendMessage", messages=many) == Code.OK
        assert await wire.code("SendMessage", messages=[message()]) == Code.TOO_MANY_REQUESTS
        await wire.close()


async def test_the_port_speaks_tls_where_the_others_do(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with running(tmp_path, rocketmq_port=0, **certificates.settings()) as server:
        wire = Wire(_address(server, "rocketmqs"), authority=certificates.ca.read_bytes())
        assert await wire.code("SendMessage", messages=[message()]) == Code.OK
        await wire.close()


async def test_a_connection_beyond_the_bound_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0, grpc_connections_max=1) as server:
        first = Wire(_address(server))
        assert await first.code("SendMessage", messages=[message()]) == Code.OK
        host, port = _address(server).split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        await first.close()


async def test_topics_are_not_made_on_use_where_the_setting_is_off(tmp_path: Path) -> None:
    async with running(tmp_path, rocketmq_port=0, queues_made_on_use=False) as server:
        wire = Wire(_address(server))
        assert await wire.code("QueryRoute", topic=kind("Resource")(name=TOPIC)) == Code.TOPIC_NOT_FOUND
        assert await wire.code("SendMessage", messages=[message()]) == Code.TOPIC_NOT_FOUND
        await wire.close()


async def test_there_is_no_port_by_default(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        assert not [url for url in server.server.urls if url.startswith("rocketmq")]


WORKERS = {"rocketmq_port": "8081", "workers": "3", "store": "postgresql://localhost/db"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"rocketmq_address": "mq-1"}, "rocketmq_address: there is no rocketmq_port"),
        (
            {"rocketmq_port": "8081", "rocketmq_address": "http://mq-1"},
            "rocketmq_address: 'http://mq-1' is no host:port",
        ),
        ({**WORKERS, "host": "0.0.0.0", "allow_anonymous": "true"}, "rocketmq_address: it is missing"),
        ({**WORKERS, "rocketmq_port": "65534"}, "rocketmq_port: 3 workers have the ports from 65534 on"),
    ],
)
def test_settings_by_which_no_route_could_name_a_node_are_refused(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^TP-7000: {why}"):
        load(settings, {})


def test_each_worker_has_a_port_and_an_address_of_its_own() -> None:
    settings = load({**WORKERS, "rocketmq_address": "mq-1:9000"}, {})

    mine = [of_worker(settings, number) for number in (1, 2, 3)]

    assert [(one.rocketmq_port, one.rocketmq_address) for one in mine] == [
        (8081, "mq-1:9000"),
        (8082, "mq-1:9001"),
        (8083, "mq-1:9002"),
    ]
