"""The meaning of a call's headers, and the refusals before its message is read."""

from __future__ import annotations

import pytest

from tests.unit.grpc_server.http2.peer import CALL, Peer, answers
from twophase.grpc_server.heads import CallHead
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.status import Status, framed, metadata_fields, percent_encoded


def _call(**instead: str) -> bytes:
    pairs = {name: instead.pop(name.strip(":").replace("-", "_"), value) for name, value in CALL}
    pairs |= {name.replace("_", "-"): value for name, value in instead.items()}
    return b"".join(frames.field(name.encode(), value.encode()) for name, value in pairs.items())


async def _answer(block: bytes, message: bytes = b"m") -> tuple[dict[str, str], bytes]:
    peer = Peer()
    peer.greet()
    peer.send(peer.call(1, message, block))
    found = answers(peer.said)[1]
    assert found.ended
    return found.headers, found.body


@pytest.mark.parametrize(
    "kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8", "Application/gRPC"]
)
async def test_the_content_types_of_grpc_are_taken(kind: str) -> None:
    headers, body = await _answer(_call(content_type=kind))
    assert (headers[":status"], headers["grpc-status"], body) == ("200", "0", framed(b"m"))


@pytest.mark.parametrize("kind", ["application/json", "", "text/plain", "application/grpc-web", "application/grpcx"])
async def test_another_content_type_is_refused_with_415_and_words(kind: str) -> None:
    headers, body = await _answer(_call(content_type=kind))
    assert (headers[":status"], headers["grpc-status"]) == ("415", str(Status.INVALID_ARGUMENT.value))
    assert body.startswith(f"content-type is '{kind}': a gRPC message (content-type application/grpc".encode())
    assert headers["grpc-message"] == percent_encoded(body.decode().rstrip()).decode()


async def test_another_codec_is_refused_as_grpc_says_it() -> None:
    headers, body = await _answer(_call(content_type="application/grpc+json"))
    assert (headers[":status"], headers["grpc-status"], body) == ("200", "3", b"")


async def test_another_method_is_refused_with_405() -> None:
    headers, body = await _answer(_call(method="GET"))
    assert (headers[":status"], body) == ("405", b"a gRPC call is needed: POST, content-type application/grpc.\n")


async def test_other_clients_are_answered_when_they_have_sent_everything_or_much() -> None:
    peer = Peer()
    peer.greet()
    peer.send(frames.header_frames(1, _call(content_type="text/plain")))
    assert answers(peer.said) == {}
    for _ in range(3):
        peer.send(frames.frame(frames.DATA, 0, 1, bytes(16_000)))
    said = peer.said
    assert answers(said)[1].ended
    assert said[-1].code == frames.NO_ERROR


async def test_an_unknown_method_is_refused_before_its_message() -> None:
    peer = Peer()
    peer.greet()
    peer.send(frames.header_frames(1, _call(path="/s/Nosuch")))
    said = peer.said
    assert answers(said)[1].headers["grpc-status"] == str(Status.UNIMPLEMENTED.value)
    assert said[-1].code == frames.NO_ERROR
    peer.send(frames.frame(frames.DATA, frames.END_STREAM, 1, framed(b"m")))  # it was on its way
    assert peer.said == []


BODIES = [
    (b"", "the request is empty: a gRPC message"),
    (framed(b"m")[:3], "the request ends within its message."),
    (framed(b"one") + framed(b"two"), "the request has more than one message."),
    (framed(b"one") + b"\0", "the request has more than one message."),
    (b'{"gid":"g"}', "the request is not a gRPC message"),
]


@pytest.mark.parametrize(("body", "text"), BODIES)
@pytest.mark.parametrize("apart", [False, True])
async def test_a_body_that_is_not_one_message_is_refused(body: bytes, text: str, apart: bool) -> None:
    peer = Peer()
    peer.greet()
    end = frames.frame(frames.DATA, frames.END_STREAM, 1)
    data = frames.frame(frames.DATA, 0, 1, body) + end if apart else frames.frame(frames.DATA, 1, 1, body)
    peer.send(frames.header_frames(1, _call()) + data)
    found = answers(peer.said)[1]
    assert found.headers["grpc-status"] == str(Status.INVALID_ARGUMENT.value)
    assert text in found.headers["grpc-message"]
    assert peer.received == []
    assert not peer.connection.streams


async def test_a_message_whose_end_comes_apart_is_taken() -> None:
    peer = Peer()
    peer.greet()
    peer.send(frames.header_frames(1, _call()) + frames.frame(frames.DATA, 0, 1, framed(b"m")))
    assert peer.received == []
    peer.send(frames.frame(frames.DATA, frames.END_STREAM, 1))
    assert peer.received == [b"m"]


@pytest.mark.parametrize(
    ("said", "ms"), [("1H", 3_600_000), ("2M", 120_000), ("3S", 3_000), ("4m", 4), ("5u", 1), ("99999999n", 100)]
)
async def test_deadlines_are_read(said: str, ms: int) -> None:
    fields = [(name.encode(), value.encode()) for name, value in (*CALL, ("grpc-timeout", said))]
    assert CallHead(fields, Peer().services).timeout_ms == ms


async def test_a_deadline_that_is_none_is_refused() -> None:
    headers, _ = await _answer(_call(grpc_timeout="123456789S"))
    assert (headers["grpc-status"], headers["grpc-message"][:12]) == ("3", "grpc-timeout")


async def test_metadata_goes_both_ways() -> None:
    sent = metadata_fields([("x-text", "a b"), ("x-data-bin", b"\xff\x00")])
    assert sent == frames.field(b"x-text", b"a b") + frames.field(b"x-data-bin", b"/wA")
    fields = [(name.encode(), value.encode()) for name, value in CALL] + [(b"x-text", b"a b"), (b"x-data-bin", b"/wA")]
    assert CallHead(fields, Peer().services).metadata() == [("x-text", "a b"), ("x-data-bin", b"\xff\x00")]
