"""RocketMQ's messages: names and numbers of its interface, and broken bytes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.rocketmq_wire import requests
from twophase.rocketmq_wire.answers import encode_delivery, encode_settings
from twophase.rocketmq_wire.codes import (
    ClientType,
    Code,
    DigestType,
    Encoding,
    Filter,
    MessageType,
    Resolution,
    Scheme,
    Source,
)
from twophase.rocketmq_wire.descriptors import SERVICE, BrokenMessage, kind, parsed, pool
from twophase.rocketmq_wire.values import Delivery, Digest, Resource, ServerSettings, WireMessage

# The official client has the descriptors of the interface. It registers them in the common pool, and ours are loaded
# beside them.
_OFFICIAL = """
import json
from rocketmq.grpc_protocol import definition_pb2, service_pb2
from twophase.rocketmq_wire.descriptors import pool
pool()
def of(field):
    return field.message_type and field.message_type.full_name
found = {"messages": {}, "enums": {}, "methods": {}}
for file in (definition_pb2.DESCRIPTOR, service_pb2.DESCRIPTOR):
    for name, message in file.message_types_by_name.items():
        found["messages"][name] = {
            one.name: [one.number, 5 if one.type == 14 else one.type, one.is_repeated, of(one)]
            for one in message.fields
        }
    for name, values in file.enum_types_by_name.items():
        found["enums"][name] = {value.name: value.number for value in values.values}
for method in service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods:
    found["methods"][method.name] = [method.input_type.name, method.output_type.name]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def official() -> Any:
    return json.loads(subprocess.run([sys.executable, "-c", _OFFICIAL], check=True, capture_output=True).stdout)


def test_fields_have_the_names_numbers_and_types_of_the_official_client(official: Any) -> None:
    file = pool().FindMessageTypeByName("apache.rocketmq.v2.Message").file
    assert len(file.message_types_by_name) > 40
    for name, message in file.message_types_by_name.items():
        for one in message.fields:
            ours = [one.number, one.type, one.is_repeated, one.message_type and one.message_type.full_name]
            if (name, one.name) != ("Settings", "client_properties"):  # newer than the Python client
                assert official["messages"][name][one.name] == ours, f"{name}.{one.name}"


def test_methods_are_those_of_the_official_client(official: Any) -> None:
    methods = pool().FindServiceByName(SERVICE).methods
    assert len(methods) == 12
    for method in methods:
        assert official["methods"][method.name] == [method.input_type.name, method.output_type.name]


@pytest.mark.parametrize(
    ("name", "ours", "prefix"),
    [
        ("Code", Code, ""),
        ("MessageType", MessageType, "MESSAGE_TYPE_"),
        ("ClientType", ClientType, ""),
        ("TransactionResolution", Resolution, "TRANSACTION_RESOLUTION_"),
        ("TransactionSource", Source, "SOURCE_"),
        ("FilterType", Filter, "FILTER_TYPE_"),
        ("Encoding", Encoding, "ENCODING_"),
        ("DigestType", DigestType, "DIGEST_TYPE_"),
        ("AddressScheme", Scheme, "ADDRESS_SCHEME_"),
    ],
)
def test_numbers_are_those_of_the_official_client(official: Any, name: str, ours: Any, prefix: str) -> None:
    known = {value.removeprefix(prefix).upper(): number for value, number in official["enums"][name].items()}
    assert {one.name: known.get(one.name) for one in ours} == {one.name: one.value for one in ours}


_PARSERS = [getattr(requests, name) for name in requests.__all__ if name.startswith("parse_")]


@given(st.sampled_from(_PARSERS), st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(parse: Callable[[bytes], object], raw: bytes) -> None:
    with contextlib.suppress(BrokenMessage):
        parse(raw)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_MS = st.integers(0, 4_000_000_000_000)


@given(
    st.builds(
        WireMessage,
        topic=st.builds(Resource, _TEXT, _TEXT),
        message_id=_TEXT,
        body=st.binary(max_size=20),
        kind=st.sampled_from(MessageType).map(int),
        encoding=st.sampled_from(Encoding).map(int),
        tag=_TEXT.filter(bool),
        keys=st.lists(_TEXT, max_size=3).map(tuple),
        properties=st.dictionaries(_TEXT, _TEXT, max_size=3).map(lambda one: tuple(sorted(one.items()))),
        message_group=_TEXT.filter(bool),
        deliver_at_ms=_MS.filter(bool),
        born_ms=_MS,
        born_host=_TEXT,
        trace_context=_TEXT,
    )
)
def test_a_message_is_delivered_as_it_was_sent(message: WireMessage) -> None:
    answer = parsed("ReceiveMessageResponse", encode_delivery(message, Delivery("h", 2, 1, 7, 1_000, 60_000)))
    system = answer.message.system_properties
    assert (system.receipt_handle, system.delivery_attempt, system.queue_id, system.queue_offset) == ("h", 2, 1, 7)
    sent = kind("SendMessageRequest")(messages=[answer.message]).SerializeToString()
    (again,) = requests.parse_send(sent)
    assert isinstance(again.digest, Digest)
    assert again.digest.kind == DigestType.MD5
    fields = {name: getattr(again, name) for name in message.__struct_fields__ if name not in {"digest", "properties"}}
    assert WireMessage(**fields, properties=tuple(sorted(again.properties))) == message


_SERVER = ServerSettings(4096, 3, 10, 1_000, 17, (1_000, 5_000), 32, 20_000, fifo=True)


def test_a_producers_settings_come_back_with_the_servers_part() -> None:
    command = kind("TelemetryCommand")()
    command.settings.client_type = ClientType.PRODUCER
    command.settings.publishing.topics.add(name="orders", resource_namespace="shop")
    command.settings.metric.on = True
    settings = requests.parse_settings(command.SerializeToString())
    assert settings is not None
    assert settings.topics == (Resource("orders", "shop"),)
    answer = parsed("TelemetryCommand", encode_settings(settings, _SERVER))
    assert answer.status.code == Code.OK
    assert answer.settings.publishing.topics[0].name == "orders"
    assert answer.settings.publishing.max_body_size == 4096
    assert answer.settings.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
    assert not answer.settings.metric.on


def test_a_consumers_settings_come_back_with_the_servers_part() -> None:
    command = kind("TelemetryCommand")()
    command.settings.client_type = ClientType.PUSH_CONSUMER
    command.settings.subscription.group.name = "billing"
    command.settings.subscription.subscriptions.add().topic.name = "orders"
    settings = requests.parse_settings(command.SerializeToString())
    assert settings is not None
    assert (settings.group, settings.topics) == (Resource("billing"), (Resource("orders"),))
    answer = parsed("TelemetryCommand", encode_settings(settings, _SERVER)).settings
    assert answer.subscription.fifo
    assert answer.subscription.long_polling_timeout.seconds == 20
    assert [pause.seconds for pause in answer.backoff_policy.customized_backoff.next] == [1, 5]


def _many(name: str, within: str, number: int) -> bytes:
    """Return a request with as many empty entries."""
    request = kind(name)()
    entries = request
    for step in within.split("."):
        entries = getattr(entries, step)
    for _ in range(number):
        entries.add()
    return bytes(request.SerializeToString())


@pytest.mark.parametrize(
    ("parse", "name", "within", "most"),
    [
        (requests.parse_ack, "AckMessageRequest", "entries", requests.MESSAGES_MAX),
        (requests.parse_route, "QueryRouteRequest", "endpoints.addresses", requests.ADDRESSES_MAX),
        (requests.parse_assignment, "QueryAssignmentRequest", "endpoints.addresses", requests.ADDRESSES_MAX),
        (requests.parse_settings, "TelemetryCommand", "settings.publishing.topics", requests.TOPICS_MAX),
        (requests.parse_settings, "TelemetryCommand", "settings.subscription.subscriptions", requests.TOPICS_MAX),
    ],
)
def test_no_request_has_more_entries_than_are_looked_at(
    parse: Callable[[bytes], object], name: str, within: str, most: int
) -> None:
    parse(_many(name, within, most))
    for number in (most + 1, 16_000):
        with pytest.raises(BrokenMessage, match=f"more than {most}"):
            parse(_many(name, within, number))


def test_the_entries_of_an_acknowledgement_are_counted_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(requests, "parsed", lambda name, _raw: made.append(name))
    with pytest.raises(BrokenMessage):
        requests.parse_ack(_many("AckMessageRequest", "entries", 16_000))
    assert not made


def test_another_command_has_no_settings() -> None:
    assert requests.parse_settings(b"") is None
