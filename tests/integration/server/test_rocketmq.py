"""The port for RocketMQ's clients: tokens, bad input, long polls, routes.

The queues behind it are in memory. The official clients have tests of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.identities import token_of, write
from tests.support.memory_queues import MemoryQueues
from tests.support.rocketmq_port import Serving, serving
from twophase.coordinator.background import end
from twophase.coordinator.queues import NodeAddress, Question, QueueMessage, Servers
from twophase.core.errors import QueuesElsewhere
from twophase.rocketmq_wire.codes import ClientType, Code, Filter, MessageType, Permission, Resolution, Scheme, Source
from twophase.rocketmq_wire.descriptors import SERVICE, kind
from twophase.server.identity.caller import UNLIMITED
from twophase.server.identity.gate import Gate
from twophase.server.identity.scopes import ROUTES, Scope, scopes_of
from twophase.server.rocketmq.caller import Client
from twophase.server.rocketmq.outbox import Outbox

PATIENCE_S = 30.0
TOPIC = "orders"
GROUP = "billing"
STREAMS = frozenset({"ReceiveMessage", "Telemetry"})
METHODS = sorted(route.rpartition("/")[2] for route in ROUTES if route.startswith(f"/{SERVICE}/"))


class Wire:
    """A client's connection.

    Arguments:
        server: the port, or its address.
        token: the access key and the secret key.
        secret: another secret key.
        authority: the certificate that it trusts, for a server that speaks TLS.
        metadata: more of it.
    """

    def __init__(
        self,
        server: Serving | str,
        token: str = "",
        secret: str | None = None,
        *,
        authority: Any = None,
        **metadata: Any,
    ) -> None:
        address = server if isinstance(server, str) else server.address
        if authority:
            self._channel: Any = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority))
        else:
            self._channel = grpc.aio.insecure_channel(address)
        signature = hmac.new((token if secret is None else secret).encode(), b"20260101T000000Z", hashlib.sha1)
        self.metadata = [
            *{"x-mq-client-id": "me", "x-mq-language": "JAVA", **metadata}.items(),
            ("x-mq-date-time", "20260101T000000Z"),
            (
                "authorization",
                f"MQv2-HMAC-SHA1 Credential={token}, SignedHeaders=x-mq-date-time, Signature={signature.hexdigest()}",
            ),
        ]

    async def close(self) -> None:
        await self._channel.close()

    async def raw(self, method: str, raw: bytes) -> Any:
        """Make a call of one answer; return it as it was parsed."""
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}", response_deserializer=kind(f"{method}Response").FromString
        )
        return await call(raw, metadata=self.metadata, timeout=PATIENCE_S)

    async def ask(self, method: str, **fields: Any) -> Any:
        return await self.raw(method, _bytes(f"{method}Request", **fields))

    async def code(self, method: str, **fields: Any) -> Code:
        """Return the status code of an answer, which has a text beside it."""
        status = (await self.ask(method, **fields)).status
        assert status.message
        return Code(status.code)

    async def receive(self, **fields: Any) -> list[Any]:
        """Return the parts of an answer to a ReceiveMessage."""
        asked = {
            "group": _resource(GROUP),
            "message_queue": kind("MessageQueue")(topic=_resource(TOPIC)),
            "batch_size": 16,
            "invisible_duration": _seconds(30),
            "long_polling_timeout": _seconds(0),
        } | fields
        call = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage", response_deserializer=kind("ReceiveMessageResponse").FromString
        )
        raw = _bytes("ReceiveMessageRequest", **asked)
        return [part async for part in call(raw, metadata=self.metadata, timeout=PATIENCE_S)]

    def telemetry(self) -> Any:
        call = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry", response_deserializer=kind("TelemetryCommand").FromString
        )
        return call(metadata=self.metadata)

    async def settle(self, **fields: Any) -> Any:
        """Open a stream, and send settings over it; return it."""
        stream = self.telemetry()
        await stream.write(_settings(**fields))
        async with asyncio.timeout(PATIENCE_S):
            assert (await stream.read()).status.code == Code.OK
        return stream

    async def first_code(self, method: str) -> Code | grpc.StatusCode:
        """Return the status code of an empty request."""
        if method == "ReceiveMessage":
            return Code((await self.receive())[0].status.code)
        if method == "Telemetry":
            stream = self.telemetry()
            answer = asyncio.ensure_future(stream.read())
            with contextlib.suppress(grpc.aio.AioRpcError):  # a refused stream has ended before
                await stream.write(_settings())
            async with asyncio.timeout(PATIENCE_S):
                return Code((await answer).status.code)
        return Code((await self.ask(method)).status.code)


def _resource(name: str) -> Any:
    return kind("Resource")(name=name)


def _seconds(seconds: int) -> Any:
    return kind("google.protobuf.Duration")(seconds=seconds)


def _bytes(name: str, **fields: Any) -> bytes:
    raw: bytes = kind(name)(**fields).SerializeToString()
    return raw


def _settings(topics: tuple[str, ...] = (TOPIC,), client_type: int = ClientType.PRODUCER, **properties: str) -> bytes:
    publishing = kind("Publishing")(topics=map(_resource, topics))
    settings = kind("Settings")(client_type=client_type, publishing=publishing, client_properties=properties)
    return _bytes("TelemetryCommand", settings=settings)


def message(
    message_id: str = "01AB", body: bytes = b"{}", topic: str = TOPIC, properties: Any = None, **system: Any
) -> Any:
    system = {"message_type": MessageType.NORMAL, "body_encoding": 1, "message_id": message_id} | system
    return kind("Message")(
        topic=_resource(topic),
        body=body,
        user_properties=properties or {},
        system_properties=kind("SystemProperties")(**system),
    )


HALF: dict[str, Any] = {"message_type": MessageType.TRANSACTION}


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    async with serving(check_s=0.05) as one:
        yield one


@pytest.fixture
async def wire(server: Serving) -> AsyncIterator[Wire]:
    one = Wire(server)
    yield one
    await one.close()


def test_every_method_that_is_served_is_in_the_table(server: Serving) -> None:
    assert server.port is not None
    services = server.port._listener._services
    assert services is not None
    assert set(services._methods) == {f"/{SERVICE}/{method}" for method in METHODS}


WRONG: dict[str, tuple[Code, Callable[[], list[Any]]]] = {
    "none": (Code.MESSAGE_CORRUPTED, list),
    "no id": (Code.ILLEGAL_MESSAGE_ID, lambda: [message("")]),
    "no body": (Code.MESSAGE_BODY_EMPTY, lambda: [message(body=b"")]),
    "a long body": (Code.MESSAGE_BODY_TOO_LARGE, lambda: [message(body=b"x" * (4 * 1024 * 1024 + 1))]),
    "no topic": (Code.ILLEGAL_TOPIC, lambda: [message(topic="")]),
    "a topic with a blank": (Code.ILLEGAL_TOPIC, lambda: [message(topic="my orders")]),
    "two transactional": (Code.INTERNAL_SERVER_ERROR, lambda: [message("1", **HALF), message("2", **HALF)]),
    "a type that is not its": (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: [message(message_group="g")]),
    "an unknown type": (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: [message(message_type=5)]),
    "a half that is ordered": (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: [message(message_group="g", **HALF)]),
    "a tag of two": (Code.ILLEGAL_MESSAGE_TAG, lambda: [message(tag="a|b")]),
    "a blank key": (Code.ILLEGAL_MESSAGE_KEY, lambda: [message(keys=[" "])]),
    "a blank group": (Code.ILLEGAL_MESSAGE_GROUP, lambda: [message(message_type=2, message_group=" ")]),
    "a long group": (Code.ILLEGAL_MESSAGE_GROUP, lambda: [message(message_type=2, message_group="g" * 65)]),
    "a blank property": (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: [message(properties={" ": "x"})]),
    "many properties": (
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        lambda: [message(properties={str(number): "x" for number in range(129)})],
    ),
    "long properties": (Code.MESSAGE_PROPERTIES_TOO_LARGE, lambda: [message(properties={"a": "x" * 16384})]),
    "a digest that is not the body's": (
        Code.MESSAGE_CORRUPTED,
        lambda: [message(body_digest=kind("Digest")(type=2, checksum="00"))],
    ),
    "an unknown encoding": (Code.MESSAGE_CORRUPTED, lambda: [message(body_encoding=9)]),
    "a time far away": (
        Code.ILLEGAL_DELIVERY_TIME,
        lambda: [message(message_type=3, delivery_timestamp=kind("google.protobuf.Timestamp")(seconds=1 << 40))],
    ),
    "a long wait for the check": (
        Code.BAD_REQUEST,
        lambda: [message(orphaned_transaction_recovery_duration=_seconds(3601), **HALF)],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_message_that_cannot_be_one_is_refused_by_its_code(server: Serving, wire: Wire, wrong: str) -> None:
    code, messages = WRONG[wrong]
    assert await wire.code("SendMessage", messages=messages()) == code
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    assert server.queues.places(TOPIC) == ["{}"]


@pytest.mark.parametrize("method", sorted(set(METHODS) - STREAMS))
async def test_bytes_that_are_no_message_are_refused_and_the_connection_lives(wire: Wire, method: str) -> None:
    answer = await wire.raw(method, b"\xff\xff\xff")
    assert answer.status.code == Code.BAD_REQUEST
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK


async def test_a_type_that_the_topic_does_not_take_is_refused(server: Serving, wire: Wire) -> None:
    server.queues.kinds[TOPIC] = frozenset({"transaction"})
    assert await wire.code("SendMessage", messages=[message()]) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert await wire.code("SendMessage", messages=[message(**HALF)]) == Code.OK


async def test_one_of_several_messages_is_refused_alone(server: Serving, wire: Wire) -> None:
    answer = await wire.ask("SendMessage", messages=[message("1"), message("2", body=b""), message("3")])
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [Code.OK, Code.MESSAGE_BODY_EMPTY, Code.OK]
    assert [entry.message_id for entry in answer.entries] == ["1", "2", "3"]
    assert len(server.queues.places(TOPIC)) == 2


async def test_too_many_messages_in_one_call_are_refused_before_they_are_read(server: Serving, wire: Wire) -> None:
    for many in (257, 500_000):
        assert (await wire.raw("SendMessage", b"\x0a\x00" * many)).status.code == Code.BAD_REQUEST
    keys = _bytes("SendMessageRequest", messages=[message(keys=["k"] * 20_000)])
    assert (await wire.raw("SendMessage", keys)).status.code == Code.BAD_REQUEST
    assert server.queues.places(TOPIC) == []


async def test_a_half_message_that_is_sent_again_is_the_same_one(server: Serving, wire: Wire) -> None:
    first, again = [await wire.ask("SendMessage", messages=[message(**HALF)]) for _ in range(2)]
    assert first.entries[0].transaction_id == again.entries[0].transaction_id
    ending = {"topic": _resource(TOPIC), "transaction_id": first.entries[0].transaction_id}
    assert await wire.code("EndTransaction", resolution=Resolution.COMMIT, **ending) == Code.OK
    assert server.queues.places(TOPIC) == ["{}"]


async def test_a_decision_about_no_message_is_refused(wire: Wire) -> None:
    ending = {"topic": _resource(TOPIC), "resolution": Resolution.COMMIT}
    assert await wire.code("EndTransaction", transaction_id="queue-none", **ending) == Code.INVALID_TRANSACTION_ID
    assert await wire.code("EndTransaction", **ending) == Code.INVALID_TRANSACTION_ID
    ending["resolution"] = 9
    assert await wire.code("EndTransaction", transaction_id="queue-none", **ending) == Code.BAD_REQUEST


async def test_a_client_that_does_not_know_changes_nothing(server: Serving, wire: Wire) -> None:
    sent = await wire.ask("SendMessage", messages=[message(**HALF)])
    ending = {"topic": _resource(TOPIC), "transaction_id": sent.entries[0].transaction_id}
    for source in Source:
        assert await wire.code("EndTransaction", source=source, **ending) == Code.OK
    assert [half.asked for half in server.queues.halves.values()] == [1]
    assert await wire.code("EndTransaction", resolution=Resolution.COMMIT, **ending) == Code.OK


async def test_a_question_goes_to_the_producer_and_has_the_body(wire: Wire) -> None:
    stream = await wire.settle()
    sent = await wire.ask("SendMessage", messages=[message(tag="paid", **HALF)])
    async with asyncio.timeout(PATIENCE_S):
        question = (await stream.read()).recover_orphaned_transaction_command
    assert question.transaction_id == sent.entries[0].transaction_id
    assert question.message.body == b"{}"
    assert question.message.system_properties.tag == "paid"
    assert question.message.system_properties.body_digest.checksum == hashlib.md5(b"{}").hexdigest().upper()
    assert question.message.user_properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_a_producer_may_name_its_group_and_others_of_it_are_asked(server: Serving, wire: Wire) -> None:
    properties = {"producer.group": "shop"}
    stream = await wire.settle(**properties)
    await wire.ask("SendMessage", messages=[message(**HALF)])
    stream.cancel()
    other = Wire(server, **{"x-mq-client-id": "other"})
    second = await other.settle(topics=(), **properties)
    async with asyncio.timeout(PATIENCE_S):
        assert (await second.read()).recover_orphaned_transaction_command.message.body == b"{}"
    await other.close()


async def test_wrong_settings_are_refused_and_the_stream_lives(wire: Wire) -> None:
    stream = wire.telemetry()
    wrong = {
        b"\xff\xff": Code.BAD_REQUEST,
        _settings(client_type=0): Code.UNRECOGNIZED_CLIENT_TYPE,
        _settings(client_type=ClientType.PUSH_CONSUMER): Code.BAD_REQUEST,
        _settings(topics=("",)): Code.ILLEGAL_TOPIC,
    }
    async with asyncio.timeout(PATIENCE_S):
        for raw, code in wrong.items():
            await stream.write(raw)
            assert (await stream.read()).status.code == code
        await stream.write(_settings())
        answer = await stream.read()
    assert answer.status.code == Code.OK
    assert answer.settings.publishing.max_body_size == 4 * 1024 * 1024


class _Deaf:
    """A stream of a client that sends settings and takes no answer."""

    def __init__(self) -> None:
        self.sent = 0
        self.answering = asyncio.Event()

    def __aiter__(self) -> _Deaf:
        return self

    async def __anext__(self) -> bytes:
        await asyncio.sleep(0)
        self.sent += 1
        return _settings()

    async def send(self, _message: bytes) -> None:
        self.answering.set()
        await asyncio.Event().wait()


async def test_a_client_that_takes_no_answers_is_not_read_from(server: Serving) -> None:
    assert server.port is not None
    client = Client("me", b"JAVA", "", "", UNLIMITED, 0, server.port._sessions, server.port._peculiarities)
    call: Any = _Deaf()
    serving = asyncio.ensure_future(server.port._telemetry.serve(client, call))
    async with asyncio.timeout(PATIENCE_S):
        await call.answering.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert call.sent == 1
    await end(serving)
    assert server.queues.clients == []


async def test_a_client_that_takes_no_questions_gets_no_more_bodies(server: Serving) -> None:
    assert server.port is not None
    session = server.port._sessions.of(UNLIMITED, "me")
    stream = Outbox()
    session.opened(stream)
    question = Question(QueueMessage(TOPIC, "", "1", bytes(1024 * 1024), kind="transaction"), "t", 0)
    assert [session.ask(question) for _ in range(8)] == [True] * 4 + [False] * 4

    async def taken(_: bytes) -> None:
        """The client reads."""

    writing = asyncio.ensure_future(stream.send_by(taken))
    await asyncio.wait_for(stream.empty(), PATIENCE_S)
    assert session.ask(question)
    await end(writing)
    session.closed(stream)


async def test_the_dead_letters_of_every_group_can_be_named(wire: Wire) -> None:
    assert await wire.code("QueryRoute", topic=_resource("%DLQ%" + 127 * "g")) == Code.OK
    assert await wire.code("QueryRoute", topic=_resource("%DLQ%" + 128 * "g")) == Code.ILLEGAL_TOPIC


async def test_a_group_that_is_not_made_is_not_found(server: Serving, wire: Wire) -> None:
    subscription = kind("Subscription")(group=_resource(GROUP))
    settings = kind("Settings")(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
    stream = wire.telemetry()
    async with asyncio.timeout(PATIENCE_S):
        server.queues.makes = False
        await stream.write(_bytes("TelemetryCommand", settings=settings))
        assert (await stream.read()).status.code == Code.CONSUMER_GROUP_NOT_FOUND
        server.queues.makes = True
        await stream.write(_bytes("TelemetryCommand", settings=settings))
        answer = await stream.read()
    assert answer.settings.backoff_policy.max_attempts == 17
    assert answer.settings.subscription.receive_batch_size == 32


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": _resource("")}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": None}, Code.ILLEGAL_TOPIC),
        ({"batch_size": 0}, Code.BAD_REQUEST),
        ({"invisible_duration": _seconds(9)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": None}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"filter_expression": kind("FilterExpression")(type=Filter.SQL)}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({}, Code.MESSAGE_NOT_FOUND),
    ],
)
async def test_a_receive_that_brings_nothing_has_a_status_and_a_time(wire: Wire, fields: Any, code: Code) -> None:
    status, time = await wire.receive(**fields)
    assert status.status.code == code
    assert time.WhichOneof("content") == "delivery_timestamp"


async def test_receipts_that_are_stale_or_garbage(wire: Wire) -> None:
    await wire.ask("SendMessage", messages=[message()])
    status, delivery, _ = await wire.receive()
    assert status.status.code == Code.OK
    handle = delivery.message.system_properties.receipt_handle
    of = {"group": _resource(GROUP), "topic": _resource(TOPIC)}
    longer = await wire.ask("ChangeInvisibleDuration", receipt_handle=handle, invisible_duration=_seconds(30), **of)
    assert longer.status.code == Code.OK
    assert longer.receipt_handle not in {"", handle}
    stale = await wire.ask("ChangeInvisibleDuration", receipt_handle=handle, invisible_duration=_seconds(30), **of)
    assert (stale.status.code, stale.receipt_handle) == (Code.INVALID_RECEIPT_HANDLE, handle)
    entry = kind("AckMessageEntry")
    answer = await wire.ask(
        "AckMessage", entries=[entry(receipt_handle=handle), entry(receipt_handle="garbage", message_id="m")], **of
    )
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [one.status.code for one in answer.entries] == [Code.OK, Code.INTERNAL_SERVER_ERROR]
    assert await wire.code("ForwardMessageToDeadLetterQueue", receipt_handle=handle, **of) == Code.OK
    garbage = {"receipt_handle": "garbage", **of}
    assert await wire.code("ForwardMessageToDeadLetterQueue", **garbage) == Code.INTERNAL_SERVER_ERROR
    assert await wire.code("AckMessage", entries=[entry(receipt_handle=longer.receipt_handle)], **of) == Code.OK


async def test_a_long_poll_ends_when_its_client_does(server: Serving, wire: Wire) -> None:
    polling = asyncio.ensure_future(wire.receive(long_polling_timeout=_seconds(3600)))
    session = server.port and server.port._sessions
    assert session
    async with asyncio.timeout(PATIENCE_S):
        while not any(one._polls for one in session._known.values()):
            await asyncio.sleep(0.01)
        assert await wire.code("NotifyClientTermination") == Code.OK
        status, _ = await polling
    assert status.status.code == Code.MESSAGE_NOT_FOUND


async def test_long_polls_and_streams_end_when_the_server_does(server: Serving, wire: Wire) -> None:
    stream = await wire.settle()
    polling = asyncio.ensure_future(wire.receive(long_polling_timeout=_seconds(3600)))
    assert server.port is not None
    async with asyncio.timeout(PATIENCE_S):
        while not any(one._polls for one in server.port._sessions._known.values()):
            await asyncio.sleep(0.01)
        await server.port.drain(PATIENCE_S)
        status, _ = await polling
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert status.status.code == Code.MESSAGE_NOT_FOUND
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_leases_of_a_stream_end_with_it(server: Serving, wire: Wire) -> None:
    await wire.ask("SendMessage", messages=[message()])
    other = Wire(server, **{"x-mq-client-id": "other"})
    await other.settle()
    assert len(await other.receive(auto_renew=True)) == 3
    assert len(await wire.receive()) == 2
    await other.close()
    status, delivery, _ = await wire.receive(long_polling_timeout=_seconds(20))
    assert (status.status.code, delivery.message.system_properties.delivery_attempt) == (Code.OK, 2)


def _endpoints(host: str = "10.0.0.7", scheme: int = Scheme.IPV4) -> Any:
    return kind("Endpoints")(scheme=scheme, addresses=[kind("Address")(host=host, port=8081)])


async def _route(wire: Wire, **fields: Any) -> Any:
    answer = await wire.ask("QueryRoute", topic=kind("Resource")(name=TOPIC, resource_namespace="shop"), **fields)
    assert answer.status.code == Code.OK
    (queue,) = answer.message_queues
    return queue


async def test_a_route_names_the_server_as_the_client_dialled_it(server: Serving, wire: Wire) -> None:
    queue = await _route(wire, endpoints=_endpoints())
    assert queue.broker.endpoints == _endpoints()
    assert (queue.topic.name, queue.topic.resource_namespace) == (TOPIC, "shop")
    assert sorted(queue.accept_message_types) == [1, 2, 3, 4]
    own = (await _route(wire)).broker.endpoints.addresses[0]
    assert f"{own.host}:{own.port}" == server.address
    asked = {"topic": _resource(TOPIC), "group": _resource(GROUP), "endpoints": _endpoints()}
    (assignment,) = (await wire.ask("QueryAssignment", **asked)).assignments
    assert assignment.message_queue.broker.endpoints == _endpoints()
    server.queues.makes = False
    assert await wire.code("QueryRoute", topic=_resource("unknown")) == Code.TOPIC_NOT_FOUND


@pytest.mark.parametrize("endpoints", [_endpoints(), _endpoints("mq.internal", Scheme.DOMAIN_NAME)])
async def test_a_python_client_without_a_stream_gets_the_address_in_another_spelling(
    server: Serving, endpoints: Any
) -> None:
    wire = Wire(server, **{"x-mq-language": "PYTHON"})
    routes = [(await _route(wire, endpoints=endpoints)).broker.endpoints.SerializeToString() for _ in range(3)]
    assert routes[0] != routes[1] == routes[1]
    assert routes[2] == routes[0]
    await wire.settle()
    for _ in range(2):
        assert (await _route(wire, endpoints=endpoints)).broker.endpoints.SerializeToString() == routes[2]
    await wire.close()


async def test_after_a_restart_a_python_client_gets_the_other_spelling_at_once(server: Serving) -> None:
    seen = []
    for _ in range(2):
        wire = Wire(server, **{"x-mq-language": "PYTHON"})
        seen.append((await _route(wire, endpoints=_endpoints())).broker.endpoints.SerializeToString())
        await wire.close()
        await server.stop()
        await server.start()
    assert seen[0] != seen[1]


def _node(number: int, host: str, *, incarnation: int = 0, is_self: bool = False) -> NodeAddress:
    return NodeAddress(number, {"rocketmq": f"{host}:8081"}, incarnation, is_self)


async def _places(wire: Wire) -> list[tuple[str, str, int, int]]:
    """Return (broker, host, queue, permission) of a route."""
    answer = await wire.ask("QueryRoute", topic=_resource(TOPIC), endpoints=_endpoints())
    return [
        (one.broker.name, one.broker.endpoints.addresses[0].host, one.id, one.permission)
        for one in answer.message_queues
    ]


async def test_a_route_names_every_node_and_only_the_owner_is_read_from(server: Serving, wire: Wire) -> None:
    server.queues.nodes = Servers(_node(2, "10.0.0.6"), (_node(1, "mq-1", is_self=True), _node(3, "10.0.0.8")))

    assert await _places(wire) == [
        ("twophase-2", "10.0.0.6", 0, Permission.READ_WRITE),
        ("twophase-1", "mq-1", 0, Permission.WRITE),
        ("twophase-3", "10.0.0.8", 0, Permission.WRITE),
    ]
    asked = {"topic": _resource(TOPIC), "group": _resource(GROUP), "endpoints": _endpoints()}
    (assignment,) = (await wire.ask("QueryAssignment", **asked)).assignments
    assert assignment.message_queue.broker.endpoints.addresses[0].host == "10.0.0.6"


async def test_a_route_leaves_out_a_node_without_a_port_and_names_none_while_one_has_no_name(
    server: Serving, wire: Wire
) -> None:
    own = _node(1, "10.0.0.5", is_self=True)
    server.queues.nodes = Servers(own, (NodeAddress(2, {"other": "b:1"}, 0, is_self=False),))
    assert await _places(wire) == [("twophase-1", "10.0.0.5", 0, Permission.READ_WRITE)]

    server.queues.nodes = Servers(own, (_node(2, ""),))
    assert await _places(wire) == [("twophase", "10.0.0.7", 0, Permission.READ_WRITE)]
    server.queues.nodes = Servers(own)
    assert await _places(wire) == [("twophase", "10.0.0.7", 0, Permission.READ_WRITE)], "alone, as it was dialled"


async def test_a_python_client_gets_a_restarted_node_in_another_spelling(server: Serving) -> None:
    wire = Wire(server, **{"x-mq-language": "PYTHON"})
    own = _node(1, "mq-1", is_self=True)
    spelt = []
    for incarnation in (0, 1, 2):
        server.queues.nodes = Servers(own, (_node(2, "mq-2", incarnation=incarnation),))
        spelt.append((await _places(wire))[1][1])
    await wire.close()

    assert spelt == ["mq-2", "MQ-2", "mq-2"]


async def test_a_node_with_an_address_is_named_also_while_it_is_alone() -> None:
    queues = MemoryQueues()
    server = Serving(queues)
    await server.start(rocketmq_address="mq-1:9000")
    wire = Wire(server)
    assert await _places(wire) == [("twophase", "mq-1", 0, Permission.READ_WRITE)]
    assert queues.announced == {"rocketmq": "mq-1:9000"}
    await wire.close()
    await server.stop()
    await queues.stop()


async def test_a_consumer_at_another_node_than_the_owner_is_told_to_go(server: Serving, wire: Wire) -> None:
    async def elsewhere(*_: Any, **__: Any) -> Any:
        raise QueuesElsewhere

    server.queues.receive = elsewhere  # type: ignore[method-assign]
    status, *_ = await wire.receive(long_polling_timeout=_seconds(0))

    assert status.status.code == Code.HA_NOT_AVAILABLE


async def _named(server: Serving, name: str) -> Wire:
    """Return a connection that calls the server by a name."""
    wire = Wire(server)
    await wire.close()
    wire._channel = grpc.aio.insecure_channel(server.address, options=[("grpc.default_authority", name)])
    return wire


async def test_a_call_to_another_servers_name_is_refused(server: Serving) -> None:
    wire = await _named(server, "evil.example")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wire.code("SendMessage", messages=[message()])
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await wire.close()


async def test_the_name_that_javas_client_has_for_an_ip_address_is_served(server: Serving) -> None:
    wire = await _named(server, "IPAuthority")
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    await wire.close()


async def test_a_call_without_a_client_id_is_refused(server: Serving) -> None:
    wire = Wire(server, **{"x-mq-client-id": ""})
    for method in METHODS:
        assert await wire.first_code(method) == Code.CLIENT_ID_REQUIRED
    await wire.close()


async def test_heartbeats_of_clients_that_are_served(wire: Wire) -> None:
    for client_type in ClientType:
        assert await wire.code("Heartbeat", client_type=client_type, group=_resource(GROUP)) == Code.OK
    assert await wire.code("Heartbeat", client_type=5) == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize("method", ["PullMessage", "QueryOffset", "UpdateOffset", "GetOffset", "SyncLiteSubscription"])
async def test_other_methods_are_unimplemented(wire: Wire, method: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wire._channel.unary_unary(f"/{SERVICE}/{method}")(b"", metadata=wire.metadata, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK


async def test_a_message_beyond_the_port_is_refused_and_the_connection_lives(wire: Wire) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wire.raw("AckMessage", bytes(64 * 1024 + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Serving]:
    """A port whose clients have tokens: one for each scope, and a second producer."""
    for scope in Scope:
        tokens = write(tmp_path, str(scope), [scope])
    write(tmp_path, "other", [Scope.PRODUCE])
    write(tmp_path, "bound", [Scope.PRODUCE], destinations=("queue://orders",))
    async with serving(Gate(tokens), check_s=0.05) as one:
        yield one


@pytest.mark.parametrize("method", METHODS)
async def test_a_method_is_open_to_its_scopes_alone(closed: Serving, method: str) -> None:
    needed = scopes_of(f"/{SERVICE}/{method}")
    assert needed
    for scope in Scope:
        wire = Wire(closed, token_of(scope))
        refused = await wire.first_code(method) == Code.FORBIDDEN
        assert refused is (scope not in needed), scope
        await wire.close()


@pytest.mark.parametrize(
    ("token", "secret"), [("", None), ("tp_unknown", None), (token_of("produce"), "wrong"), (token_of("produce"), "")]
)
async def test_wrong_credentials_are_refused(closed: Serving, token: str, secret: str | None) -> None:
    wire = Wire(closed, token, secret)
    for method in METHODS:
        assert await wire.first_code(method) == Code.UNAUTHORIZED
    await wire.close()


async def test_a_bearer_token_is_one_here_too(closed: Serving) -> None:
    wire = Wire(closed)
    wire.metadata[-1] = ("authorization", f"Bearer {token_of('produce')}")
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    wire.metadata[-1] = ("authorization", "MQv2-HMAC-SHA1 nonsense")
    assert await wire.code("SendMessage", messages=[message()]) == Code.UNAUTHORIZED
    await wire.close()


async def test_the_owner_of_a_message_is_the_tokens(closed: Serving) -> None:
    wire = Wire(closed, token_of("produce"))
    await wire.ask("SendMessage", messages=[message(), message("2")])
    await wire.ask("SendMessage", messages=[message("3", **HALF)])
    assert {owner.name for owner in closed.queues.owners if owner is not None} == {"produce"}
    await wire.close()


async def test_nobody_is_asked_about_another_owners_message(closed: Serving) -> None:
    eve, own = Wire(closed, token_of("other")), Wire(closed, token_of("produce"))
    eves = await eve.settle()
    await own.ask("SendMessage", messages=[message(**HALF)])
    stream = await own.settle()
    async with asyncio.timeout(PATIENCE_S):
        assert (await stream.read()).HasField("recover_orphaned_transaction_command")
    (half,) = closed.queues.halves.values()
    assert [half.producers in client.producers for client in closed.queues.clients] == [False, True]
    eves.cancel()
    await eve.close()
    await own.close()


async def test_a_client_does_not_end_the_polls_of_another_owners_client(closed: Serving) -> None:
    eve, own = Wire(closed, token_of("other")), Wire(closed, token_of("consume"))
    polling = asyncio.ensure_future(own.receive(long_polling_timeout=_seconds(3600)))
    assert closed.port is not None
    sessions = closed.port._sessions._known
    async with asyncio.timeout(PATIENCE_S):
        while not any(one._polls for one in sessions.values()):
            await asyncio.sleep(0.01)
        await eve.ask("NotifyClientTermination")
        assert [len(one._polls) for one in sessions.values() if one._polls] == [1]
        await own.ask("NotifyClientTermination")
        await polling
    await eve.close()
    await own.close()


async def test_a_token_names_the_topics_that_it_may_send_to(closed: Serving) -> None:
    wire = Wire(closed, token_of("bound"))
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    assert await wire.code("SendMessage", messages=[message(topic="orders2")]) == Code.FORBIDDEN
    assert await wire.code("QueryRoute", topic=_resource("orders2")) == Code.FORBIDDEN
    await wire.close()


async def test_a_token_that_is_revoked_during_a_long_poll_gets_nothing(closed: Serving, tmp_path: Path) -> None:
    wire = Wire(closed, token_of("consume"))
    polling = asyncio.ensure_future(wire.receive(long_polling_timeout=_seconds(3600)))
    assert closed.port is not None
    sessions = closed.port._sessions._known
    async with asyncio.timeout(PATIENCE_S):
        while not any(one._polls for one in sessions.values()):
            await asyncio.sleep(0.01)
        (tmp_path / "tokens.toml").unlink()
        write(tmp_path, "produce", [Scope.PRODUCE])
        closed.gate.reread()
        sender = Wire(closed, token_of("produce"))
        assert await sender.code("SendMessage", messages=[message()]) == Code.OK
        status, _ = await polling
    assert status.status.code == Code.UNAUTHORIZED
    await sender.close()
    await wire.close()
