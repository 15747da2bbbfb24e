"""RocketMQ's clients: right calls, wrong ones, and any order of both.

A case is the calls of one client, one after the other. Handles and transaction ids are those that it was given before,
or garbage. Streams are cut at any point, and settings come twice. A mistake is answered by a status in the answer; a
call fails by itself only where nothing can be answered.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import grpc
from hypothesis import strategies as st

from benchmarks.load import http2
from tests.fuzz import messages
from tests.fuzz.messages import texts
from tests.fuzz.play import Target
from tests.fuzz.process import Fuzzed
from tests.fuzz.wires import frames_of
from twophase.core.errors import ServerFault
from twophase.grpc_server.http2 import frames
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.descriptors import SERVICE, kind

_ANSWER_S: Final = 60.0
_CUT_S: Final = 1.0
STREAMS: Final = ("ReceiveMessage", "Telemetry")
_ALLOWED: Final = frozenset({grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED})
_OPENING: Final = http2.head(f"/{SERVICE}/SendMessage", "fuzz")
_GREETINGS: Final = (
    frames.PREFACE,
    frames.PREFACE + frames.settings({}) + frames.frame(frames.SETTINGS, frames.ACK),
)
_names = st.sampled_from(["fuzz", "fuzz-2", "%DLQ%fuzz", ""]) | texts.filter(lambda text: "\ud800" not in text)
_resources = st.builds(lambda name: {"name": name}, _names)
_durations = st.sampled_from(
    [{"seconds": 0}, {"seconds": 10}, {"seconds": -1}, {"seconds": 2**62}, {"nanos": -(2**31)}]
)
_small = st.sampled_from([0, 1, 2, 3, 4, 7, -1, 2**31 - 1])
_handles = st.sampled_from(
    ["KEPT", "KEPT", "KEPT", "", "garbage", "a-b-0-0-1", "x-y-9-9999999999999999999999-1"]
) | texts.filter(lambda text: "\ud800" not in text)
"""`KEPT` stands for what the server gave last."""


@st.composite
def _message(draw: st.DrawFn) -> dict[str, Any]:
    system: dict[str, Any] = {
        "message_id": draw(st.sampled_from(["01A", "01B", "01C", ""]) | st.uuids().map(str)),
        "message_type": draw(_small),
        "body_encoding": draw(st.sampled_from([0, 1, 2, 9])),
    }
    more: dict[str, st.SearchStrategy[Any]] = {
        "message_group": _names,
        "tag": _names,
        "keys": st.lists(_names, max_size=3),
        "delivery_timestamp": st.sampled_from([{"seconds": 0}, {"seconds": 2**60}, {"nanos": -1}]),
        "orphaned_transaction_recovery_duration": _durations,
        "body_digest": st.builds(lambda number: {"type": number, "checksum": "0"}, _small),
    }
    for name in draw(st.lists(st.sampled_from(sorted(more)), max_size=2, unique=True)):
        system[name] = draw(more[name])
    body = draw(st.sampled_from([b"{}", b"{}", b"", b"x" * 70_000]))
    return {"topic": draw(_resources), "body": body, "system_properties": system}


_settings = st.fixed_dictionaries(
    {"client_type": _small},
    optional={
        "publishing": st.builds(lambda some: {"topics": some}, st.lists(_resources, max_size=3)),
        "subscription": st.builds(lambda one: {"group": one}, _resources),
        "client_properties": st.just({"producer.group": "fuzz"}),
    },
)
_FIELDS: Final[dict[str, st.SearchStrategy[dict[str, Any]]]] = {
    "QueryRoute": st.fixed_dictionaries({"topic": _resources}),
    "QueryAssignment": st.fixed_dictionaries({"topic": _resources, "group": _resources}),
    "Heartbeat": st.fixed_dictionaries({"group": _resources, "client_type": _small}),
    "NotifyClientTermination": st.fixed_dictionaries({"group": _resources}),
    "SendMessage": st.fixed_dictionaries({"messages": st.lists(_message(), max_size=3)}),
    "EndTransaction": st.fixed_dictionaries(
        {"topic": _resources, "transaction_id": _handles, "resolution": _small, "source": _small}
    ),
    "RecallMessage": st.fixed_dictionaries({"topic": _resources, "recall_handle": _handles}),
    "ReceiveMessage": st.fixed_dictionaries(
        {
            "group": _resources,
            "message_queue": st.builds(lambda one: {"topic": one}, _resources),
            "batch_size": _small,
            "auto_renew": st.booleans(),
            "long_polling_timeout": st.sampled_from([{"seconds": 0}, {"nanos": 1_000_000}, {"seconds": -5}]),
        },
        optional={
            "invisible_duration": _durations,
            "filter_expression": st.builds(lambda number, text: {"type": number, "expression": text}, _small, _names),
        },
    ),
    "AckMessage": st.fixed_dictionaries(
        {
            "group": _resources,
            "topic": _resources,
            "entries": st.lists(st.builds(lambda one: {"receipt_handle": one}, _handles), max_size=3),
        }
    ),
    "ChangeInvisibleDuration": st.fixed_dictionaries(
        {"group": _resources, "topic": _resources, "receipt_handle": _handles, "invisible_duration": _durations}
    ),
    "ForwardMessageToDeadLetterQueue": st.fixed_dictionaries(
        {"group": _resources, "topic": _resources, "receipt_handle": _handles}
    ),
    "Telemetry": st.fixed_dictionaries({"settings": _settings}),
}
_REQUESTS: Final = {name: "TelemetryCommand" if name == "Telemetry" else f"{name}Request" for name in _FIELDS}
Step = tuple[str, bytes, bool]
"""A method, its request, and whether the client cuts the answer."""


def _step(name: str) -> st.SearchStrategy[Step]:
    right = _FIELDS[name].map(lambda fields: kind(_REQUESTS[name])(**fields).SerializeToString())
    raw = st.one_of(right, right, right, messages.damaged(right), st.binary(max_size=80))
    return st.tuples(st.just(name), raw, st.integers(0, 7).map(lambda drawn: not drawn))


class RocketmqCalls:
    """The clients of one server's port."""

    def __init__(self, server: Fuzzed) -> None:
        self._server = server
        self._channel: Any = grpc.insecure_channel(server.rocketmq_address, [("grpc.enable_retries", 0)])
        self._kept = ""
        self.codes: set[int] = set()
        """The status codes that were answered."""

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()

    def targets(self) -> list[Target]:
        """Return the targets that use these clients."""
        step = st.sampled_from([*_FIELDS, "SendMessage", "ReceiveMessage", "AckMessage"]).flatmap(_step)
        request = _FIELDS["SendMessage"].map(lambda fields: kind("SendMessageRequest")(**fields).SerializeToString())
        said = st.lists(frames_of(messages.damaged(request), _OPENING), max_size=12).map(b"".join)
        sent = st.tuples(st.sampled_from(_GREETINGS), said).map(b"".join)
        clients = st.sampled_from(["fuzz", "fuzz", "fuzz-2", ""])
        return [
            Target("RocketMQ's calls", st.tuples(clients, st.lists(step, min_size=1, max_size=6)), self.calls),
            Target("bytes on RocketMQ's port", sent | st.binary(max_size=200), self.raw),
        ]

    def calls(self, case: tuple[str, list[Step]]) -> None:
        """Check the calls of a client: each is answered, and no answer is a fault."""
        client, steps = case
        metadata = [("x-mq-client-id", client)] if client else []
        for name, raw, is_cut in steps:
            where = f"{name} {raw[:1000]!r} of {case!r}"[:3000]
            try:
                for answer in self._answers(name, self._with_kept(name, raw), metadata, is_cut=is_cut):
                    self._read(answer, where)
            except grpc.RpcError as error:
                code, said = error.code(), error.details()
                assert code in _ALLOWED or (is_cut and code is grpc.StatusCode.CANCELLED), f"{code} {said}, to {where}"

    def _answers(self, name: str, raw: bytes, metadata: list[tuple[str, str]], *, is_cut: bool) -> Iterator[Any]:
        path = f"/{SERVICE}/{name}"
        if name == "Telemetry":
            read = kind("TelemetryCommand").FromString
            call = self._channel.stream_stream(path, response_deserializer=read)(
                iter([raw, raw]), metadata=metadata, timeout=_ANSWER_S
            )
        elif name == "ReceiveMessage":
            read = kind("ReceiveMessageResponse").FromString
            call = self._channel.unary_stream(path, response_deserializer=read)(
                raw, metadata=metadata, timeout=_ANSWER_S
            )
        else:
            read = kind(f"{name}Response").FromString
            yield self._channel.unary_unary(path, response_deserializer=read)(raw, metadata=metadata, timeout=_ANSWER_S)
            return
        for answer in call:
            yield answer
            if is_cut:
                call.cancel()

    def _read(self, answer: Any, where: str) -> None:
        """Check an answer, and keep what may be used in a later call."""
        fields = answer.DESCRIPTOR.fields_by_name
        if "status" in fields and answer.HasField("status"):
            self.codes.add(answer.status.code)
            assert answer.status.code in {*map(int, Code)}, f"{answer}, to {where}"
            assert answer.status.message != ServerFault().message, f"{answer}, to {where}"
        if "message" in fields and answer.HasField("message"):
            self._kept = answer.message.system_properties.receipt_handle
        for entry in getattr(answer, "entries", ()):
            self._kept = getattr(entry, "recall_handle", "") or getattr(entry, "transaction_id", "") or self._kept

    def _with_kept(self, name: str, raw: bytes) -> bytes:
        """Return a request with what the server gave last in place of `KEPT`."""
        if b"KEPT" not in raw:
            return raw
        with contextlib.suppress(Exception):  # it is damaged, and goes as it is
            request = kind(_REQUESTS[name]).FromString(raw)
            for field in ("transaction_id", "recall_handle", "receipt_handle"):
                if getattr(request, field, "") == "KEPT":
                    setattr(request, field, self._kept)
            for entry in getattr(request, "entries", ()):
                if entry.receipt_handle == "KEPT":
                    entry.receipt_handle = self._kept
            return bytes(request.SerializeToString())
        return raw

    def raw(self, raw: bytes) -> None:
        """Check that bytes that are hardly HTTP/2 leave the port able to answer others."""
        host, _, port = self._server.rocketmq_address.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=_CUT_S) as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        request = kind("QueryRouteRequest")(topic={"name": "fuzz"}).SerializeToString()
        for answer in self._answers("QueryRoute", request, [("x-mq-client-id", "fuzz")], is_cut=False):
            assert answer.status.code == Code.OK, f"{answer}, after {raw!r}"
