"""The recorded requests and answers of a real dtm server, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

_PLACE: Final = Path(__file__).with_name("dtm_transcripts.json")
RECORDED_SINK: Final = "127.0.0.1:39001"


class Asked(msgspec.Struct, frozen=True):
    """A request as it was sent."""

    method: str
    path: str
    body: str | None = None


class Answered(msgspec.Struct, frozen=True):
    """An answer as it was received."""

    status: int
    body: str
    content_type: str | None = None


class SinkCall(msgspec.Struct, frozen=True):
    """The calls that the branch service received because of a request."""

    method: str
    path: str
    body: str = ""


class Vector(msgspec.Struct, frozen=True):
    """One request with its answer."""

    name: str
    request: Asked
    response: Answered
    sink_calls: tuple[SinkCall, ...] | None = None


class _Recording(msgspec.Struct, frozen=True):
    vectors: tuple[Vector, ...]


def recorded(sink: str) -> tuple[Vector, ...]:
    """Return all vectors in the order in which they were sent.

    The branch service is at `sink` (`host:port`).
    """
    text = _PLACE.read_text(encoding="utf-8")
    for was, now in ((RECORDED_SINK, sink), (RECORDED_SINK.replace(":", "%3A"), sink.replace(":", "%3A"))):
        text = text.replace(was, now)
    return msgspec.json.decode(text, type=_Recording).vectors
