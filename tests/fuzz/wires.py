"""The wires of a running server.

They are HTTP as bytes, JSON, many messages at once, JSON-RPC, gRPC, and bytes on the gRPC port.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any, Final

import grpc
import httptools
from hypothesis import strategies as st

from benchmarks.load import http2
from tests.fuzz import messages, rules
from tests.fuzz.branches import Branches
from tests.fuzz.play import Target
from tests.fuzz.process import Fuzzed
from tests.fuzz.streams import streams
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.status import framed
from twophase.grpc_wire.messages import SERVICE, encode_request

_ANSWER_S: Final = 60.0
"""The timeout of an answer, long because it may run at low priority beside others."""
_REST_S: Final = 10.0
_METHODS: Final = (
    "Prepare", "Submit", "Abort", "NewGid", "Subscribe", "Unsubscribe", "DeleteTopic", "RegisterBranch",
    "PrepareWorkflow", "Nothing",
)  # fmt: skip
_TOPIC_METHODS: Final = ("Subscribe", "Subscribe", "Unsubscribe", "DeleteTopic")
_DECISIONS: Final = frozenset({"/api/dtmsvr/prepare", "/api/dtmsvr/submit", "/api/dtmsvr/abort"})
_JSON_PATHS: Final = (
    *sorted(_DECISIONS), *sorted(_DECISIONS), "/api/dtmsvr/forceStop", "/api/dtmsvr/resetNextCronTime",
    "/api/dtmsvr/registerBranch", "/api/twophase/import", "/api/twophase/topics/subscribe",
    *(f"/api/twophase/messages/fuzz-{n}/{act}" for n in range(3) for act in ("stop", "park", "redrive", "retry-now")),
)  # fmt: skip
_ACKNOWLEDGED: Final = frames.frame(frames.SETTINGS, frames.ACK)
_CALL: Final = http2.head(f"/{SERVICE}/Submit", "fuzz")
_OF_THE_SERVER: Final = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS})


class Wires:
    """The clients of one server."""

    def __init__(self, server: Fuzzed, branches: Branches) -> None:
        self._server = server
        self._branches = branches
        self._http = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=_ANSWER_S)
        self._used_s = 0.0
        self._grpc = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", [("grpc.enable_retries", 0)])

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._grpc.close()

    def targets(self) -> list[Target]:
        """Return the targets that use these clients."""
        url = self._branches.url
        request = messages.grpc_requests(url).map(encode_request)
        topic = messages.topic_requests(url)
        some = st.one_of(request, topic, messages.damaged(request), messages.damaged(topic), st.binary(max_size=100))
        calls = st.one_of(
            st.tuples(st.sampled_from(_METHODS[:3]), request),
            st.tuples(st.sampled_from(_TOPIC_METHODS), topic),
            st.tuples(st.sampled_from(_METHODS), some),
        )
        routes = st.sampled_from(_JSON_PATHS)
        noise = st.lists(st.binary(max_size=60), max_size=5).map(b"".join)
        said = st.lists(frames_of(messages.damaged(request), _CALL), max_size=12).map(b"".join)
        greeting = st.sampled_from([frames.PREFACE, frames.PREFACE + frames.settings({}) + _ACKNOWLEDGED])
        sent = st.tuples(greeting, said | noise).map(b"".join)
        return [
            Target("HTTP as bytes", streams(), self.http_bytes),
            Target("JSON over HTTP", st.tuples(routes, messages.bodies(url)), self.json),
            Target("many at once", messages.many(url), self.many),
            Target("JSON-RPC", self._rpc_bodies(), self.json_rpc),
            Target("gRPC", calls, self.grpc),
            Target("bytes on the gRPC port", sent | st.binary(max_size=200), self.grpc_bytes),
        ]

    def _rpc_bodies(self) -> st.SearchStrategy[bytes]:
        url = self._branches.url
        call = st.fixed_dictionaries(
            {"jsonrpc": st.just("2.0") | messages.values, "id": st.just("7") | messages.values},
            optional={
                "method": st.sampled_from(["newGid", "prepare", "submit", "abort", "registerBranch"]) | messages.values,
                "params": messages.sensible(url) | messages.hostile(url) | messages.values,
            },
        ).map(messages.as_json)
        return st.one_of(call, call, messages.damaged(call), messages.bodies(url))

    def http_bytes(self, pieces: list[bytes]) -> None:
        """Check that the answer to any bytes is HTTP, and then an end."""
        raw = b""
        with socket.create_connection(("127.0.0.1", self._server.http_port), timeout=_ANSWER_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):  # the server has refused in the middle, and closed
                for piece in pieces:
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while data := connection.recv(65536):
                    raw += data
        for status, body in _responses(raw):
            rules.require_ours(status, body, repr(pieces)[:2000])

    def json(self, case: tuple[str, bytes]) -> None:
        """Check a body for a route that reads JSON: one answer names its outcome."""
        path, body = case
        status, said = self._post(path, body)
        rules.require_ours(status, said, repr(case)[:2000])
        assert status in {200, 400, 404, 409, 410, 413, 500}, f"{status}, to {case!r}"[:2000]
        result = json.loads(said)
        if path not in _DECISIONS:
            assert status == 200 or result["message"]
            return
        assert (status == 200) == (result.get("dtm_result") == "SUCCESS")
        assert (status == 409) == (result.get("dtm_result") == "FAILURE")
        assert status == 200 or (result["message"] and result["code"])

    def many(self, case: tuple[str, bytes, int | None]) -> None:
        """Check many at once: an outcome for each, or one refusal of all.

        A body without meaning is no fault.
        """
        path, body, count = case
        status, said = self._post(path, body)
        sent = repr(case)[:2000]
        rules.require_ours(status, said, sent)
        assert status in {200, 400, 413}, f"{status} {said[:300]!r}, to {sent}"
        reply = json.loads(said)
        if status != 200:
            assert all([reply["message"], reply["code"], reply["remedy"]]), f"{reply}, to {sent}"
            return
        assert count in {None, len(reply["results"])}, f"{len(reply['results'])} outcomes, to {sent}"
        for one in reply["results"]:
            assert one.get("code") != rules.FAULT, f"{one}, to {sent}"
            assert bool(one.get("code")) == bool(one.get("message")), f"{one}, to {sent}"

    def json_rpc(self, body: bytes) -> None:
        """Check that the answer is 200, except to a body that cannot be parsed.

        Its codes are documented, and there is no fault.
        """
        status, said = self._post("/api/json-rpc", body)
        assert status in {200, 400, 413}, f"{status} {said[:300]!r}, to {body[:2000]!r}"
        reply: dict[str, Any] = json.loads(said)
        error = reply.get("error")
        if error is not None:
            assert error["code"] in rules.ALLOWED_JSON_RPC
            assert error.get("data", {}).get("code") != rules.FAULT, f"{error}, to {body[:2000]!r}"

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Post on a connection that is kept; one response answers."""
        if time.monotonic() - self._used_s > _REST_S:
            self._http.close()  # the server closes those that rest; the next request connects again
        self._used_s = time.monotonic()
        try:
            self._http.request("POST", path, body, {"content-type": "application/json"})
            response = self._http.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            raise

    def grpc(self, case: tuple[str, bytes]) -> None:
        """Check bytes for a method: the status is a documented one, and no fault."""
        method, raw = case
        call: Any = self._grpc.unary_unary(f"/{SERVICE}/{method}")
        try:
            call(raw, timeout=_ANSWER_S)
        except grpc.RpcError as error:
            code = error.code()
            trailing: Any = error.trailing_metadata() or ()
            said = {str(name): str(value) for name, value in trailing}
            where = f"{code} {error.details()} {said}, to {method} {raw[:2000]!r}"
            assert code not in _OF_THE_SERVER, where
            if code is grpc.StatusCode.UNKNOWN:
                assert said.get("twophase-code") in rules.ALLOWED_500, where
            assert said.get("twophase-code") != rules.FAULT, where
            assert code not in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}, where

    def grpc_bytes(self, raw: bytes) -> None:
        """Check that bytes that are hardly HTTP/2 leave the port able to answer others."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._server.grpc_port), timeout=1.0) as connection,
        ):
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        new_gid: Any = self._grpc.unary_unary(f"/{SERVICE}/NewGid")
        assert new_gid(b"", timeout=_ANSWER_S)


def frames_of(request: st.SearchStrategy[bytes], call: bytes) -> st.SearchStrategy[bytes]:
    """Draw one frame: any, or a part of a call with the headers `call`."""
    streams = st.sampled_from([0, 1, 1, 1, 3, 5, 2])
    flags = st.sampled_from([0, frames.END_STREAM, frames.END_HEADERS, 5, frames.PADDED, 0x2D, 0xFF])
    block = st.just(call) | st.binary(max_size=30).map(lambda more: call + more)
    payload = st.binary(max_size=60) | request.map(framed) | block
    any_kind = st.builds(frames.frame, st.integers(0, 11), flags, streams, payload)
    opening = st.builds(frames.header_frames, streams, block)
    data = st.builds(lambda stream, some: frames.frame(frames.DATA, 1, stream, framed(some)), streams, request)
    return any_kind | opening | data


def _responses(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the responses in a stream, each with its body.

    Fails on anything that is not HTTP.
    """
    found: list[tuple[int, bytes]] = []
    body = bytearray()

    class Collector:
        def on_message_begin(self) -> None:
            body.clear()

        def on_body(self, piece: bytes) -> None:
            body.extend(piece)

        def on_message_complete(self) -> None:
            found.append((parser.get_status_code(), bytes(body)))

    parser = httptools.HttpResponseParser(Collector())
    parser.feed_data(raw)
    return (one for one in found if one[0] >= 200)
