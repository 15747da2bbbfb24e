"""A few examples of every target; `make fuzz` plays many more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.fuzz.doors import opened
from tests.fuzz.play import Target, play
from tests.fuzz.process import Fuzzed
from tests.fuzz.targets import all_targets
from twophase.grpc_server.incoming import Incoming
from twophase.server.codecs.decode import Decoder
from twophase.server.identity.gate import Gate

_EXAMPLES = 40
_NAMES = (
    "OpenAPI, requests that fit",
    "OpenAPI, requests that do not",
    "HTTP as bytes",
    "JSON over HTTP",
    "many at once",
    "JSON-RPC",
    "gRPC",
    "bytes on the gRPC port",
    "RocketMQ's calls",
    "bytes on RocketMQ's port",
    "responses of branches",
    "JSON of requests",
    "steps of gRPC requests",
    "gRPC messages",
    "addresses",
)


@pytest.fixture(scope="module")
def harness() -> Iterator[tuple[Fuzzed, dict[str, Target]]]:
    with all_targets() as (server, targets):
        yield server, {target.name: target for target in targets}


@pytest.mark.parametrize("name", _NAMES)
def test_nothing_that_is_sent_is_answered_wrongly(harness: tuple[Fuzzed, dict[str, Target]], name: str) -> None:
    server, targets = harness

    # The same examples in every run; `make fuzz` looks for others.
    assert play(targets[name], _EXAMPLES, seed=_NAMES.index(name)).cases > 0
    server.check()


async def test_no_changed_bytes_are_answered_wrongly() -> None:
    async with opened() as doors:
        for door in doors.all():
            found = await doors.play(door, 640, seed=1)
            assert (found.cases, found.failures) == (640, 0), found.texts
    assert {200, 400, 404} <= doors.open.statuses
    assert {200, 401, 403} <= doors.guarded.statuses
    assert min(doors.open.frames, doors.guarded.frames) > 640, "calls get far enough to be answered"
    assert doors.encrypted > 100


async def test_a_fault_that_changed_bytes_reach_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that raises, a request that fails on a fault, and a call that does."""
    monkeypatch.setattr(Decoder, "submit", _broken)
    monkeypatch.setattr("twophase.server.api.dtm_grpc.parse_request", _broken)
    async with opened() as doors:
        both = [door for door in doors.all() if door.name in {"HTTP", "HTTP/2 and gRPC"}]
        failed = {door.name: await doors.play(door, 640, seed=1) for door in both}
    assert all(found.failures for found in failed.values())
    assert all("alone: [b" in found.texts[0] for found in failed.values())


async def test_faults_behind_the_other_doors_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forged signatures and certificates that are accepted, and parsers that raise."""
    monkeypatch.setattr("twophase.core.signature.hmac.compare_digest", lambda *_: True)
    monkeypatch.setattr(Incoming, "_unfold", _broken)
    monkeypatch.setattr(Gate, "identify", _broken)
    monkeypatch.setattr("twophase_spark.sink.checkback_server.parse_qs", _broken)
    async with opened() as doors:
        monkeypatch.setattr(
            doors.guarded.server.gate, "with_certificate", lambda _: doors.guarded.server.gate.anonymous
        )
        names = {
            *("signed calls", "compressed gRPC", "HTTP with tokens", "HTTP over TLS"),
            *("names in certificates", "check-back server of Spark"),
        }
        failed = {door.name: await doors.play(door, 320, seed=1) for door in doors.all() if door.name in names}
    assert {name for name, found in failed.items() if found.failures} == names


def _broken(*_: object) -> NoReturn:
    raise ZeroDivisionError


def test_every_target_is_played(harness: tuple[Fuzzed, dict[str, Target]]) -> None:
    assert set(harness[1]) == set(_NAMES)
