"""A meter refuses what passes its quota, and lets go on what does not."""

from __future__ import annotations

import pytest

from twophase.coordinator.owners import Owners
from twophase.coordinator.state.active_set import held_bytes
from twophase.core.errors import QuotaExceeded
from twophase.core.message import Branch, Message
from twophase.server.identity.quotas import Meter
from twophase.server.identity.tokens import Quota

MESSAGE = Message("g", (Branch("http://b/in", b"x" * 89),))
SIZE = held_bytes(MESSAGE)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_requests_are_refused_beyond_the_rate_and_come_back_with_time() -> None:
    clock = Clock()
    meter = Meter("orders", Quota(requests_per_s=2), Owners(), clock)
    meter.count(1)
    meter.count(1)
    with pytest.raises(QuotaExceeded, match="2 requests a second"):
        meter.count(1)
    clock.now_s = 0.5
    meter.count(1)
    with pytest.raises(QuotaExceeded):
        meter.count(1)


def test_a_pause_saves_up_one_seconds_requests_at_most() -> None:
    clock = Clock()
    meter = Meter("orders", Quota(requests_per_s=2), Owners(), clock)
    clock.now_s = 1_000
    meter.count(2)
    with pytest.raises(QuotaExceeded):
        meter.count(1)


def test_a_request_of_many_messages_is_not_refused_for_ever() -> None:
    clock = Clock()
    meter = Meter("orders", Quota(requests_per_s=2), Owners(), clock)
    meter.count(500)
    clock.now_s = 100
    with pytest.raises(QuotaExceeded):
        meter.count(1)
    clock.now_s = 300
    meter.count(1)


@pytest.mark.parametrize("rate", [1, 2, 5])
def test_messages_beyond_a_seconds_requests_are_let_in_beside_the_request_that_brought_them(rate: int) -> None:
    clock = Clock()
    meter = Meter("orders", Quota(requests_per_s=rate), Owners(), clock)
    meter.count(1)
    meter.count(499, counted=1)
    with pytest.raises(QuotaExceeded):
        meter.count(1)
    clock.now_s = 500 / rate
    meter.count(1)


def test_messages_are_refused_while_too_many_wait() -> None:
    owners = Owners()
    meter = Meter("orders", Quota(waiting_messages=2), owners)
    assert meter.take_room(SIZE)
    assert meter.take_room(SIZE)
    assert not meter.take_room(SIZE)
    assert meter.why_no_room(SIZE).startswith("2 messages")
    owners.remove("orders", SIZE)
    assert meter.take_room(SIZE)


def test_messages_are_refused_while_too_many_bytes_wait() -> None:
    owners = Owners()
    meter = Meter("orders", Quota(bytes_stored=2 * SIZE), owners)
    assert meter.take_room(SIZE)
    assert meter.take_room(SIZE)
    assert not meter.take_room(SIZE)
    assert "bytes" in meter.why_no_room(SIZE)
    owners.replace({})
    assert meter.take_room(SIZE)


def test_one_owners_messages_do_not_count_for_another() -> None:
    owners = Owners()
    assert Meter("orders", Quota(waiting_messages=1), owners).take_room(SIZE)
    assert Meter("stock", Quota(waiting_messages=1), owners).take_room(SIZE)
