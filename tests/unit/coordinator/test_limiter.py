"""The gate: bounds hold, each lane is a queue, nobody is forgotten, and a hung destination delays no other."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from twophase.coordinator.dispatch.limiter import Gate
from twophase.testing.clock import VirtualClock

TOTAL, EACH, WAITING = 4, 2, 3
KEYS = ("a", "b", "c")


class Crowd:
    """Enters and leaves at random, and watches the bounds at every step."""

    def __init__(self) -> None:
        self.gate = Gate(TOTAL, EACH, WAITING, VirtualClock())
        self.inside: dict[str, list[int]] = defaultdict(list)
        self.order: dict[str, list[int]] = defaultdict(list)
        self.accepted: dict[str, list[int]] = defaultdict(list)

    def enter(self, key: str, number: int, *, ends_at_once: bool) -> None:
        # Known before `run`: a free place is taken inside `enter`.
        self.accepted[key].append(number)

        def run() -> None:
            self.order[key].append(number)
            self.inside[key].append(number)
            self.check()
            if ends_at_once:
                self.inside[key].remove(number)
                self.gate.leave(key)

        if not self.gate.enter(key, run):
            self.accepted[key].remove(number)
            assert len(self.accepted[key]) - len(self.order[key]) == WAITING

    def leave(self, key: str) -> None:
        if self.inside[key]:
            self.inside[key].pop(0)
            self.gate.leave(key)

    def check(self) -> None:
        assert self.gate.in_flight == sum(map(len, self.inside.values())) <= TOTAL
        assert all(len(lane) <= EACH for lane in self.inside.values())


step = st.tuples(st.sampled_from(["enter", "ends at once", "leave"]), st.sampled_from(KEYS))


@given(st.lists(step, max_size=120))
def test_bounds_order_and_no_place_lost(steps: list[tuple[str, str]]) -> None:
    crowd = Crowd()
    for number, (what, key) in enumerate(steps):
        if what == "leave":
            crowd.leave(key)
        else:
            crowd.enter(key, number, ends_at_once=what == "ends at once")
        crowd.check()
        for lane in KEYS:
            waits = len(crowd.accepted[lane]) - len(crowd.order[lane])
            idle = len(crowd.inside[lane]) < EACH and crowd.gate.in_flight < TOTAL
            assert not (waits and idle), "a free place is never left to stand"
    while crowd.gate.in_flight:
        for key in KEYS:
            crowd.leave(key)
    assert crowd.order == crowd.accepted
    assert (crowd.gate.in_flight, crowd.gate.waiting, crowd.gate._lanes) == (0, 0, {})


def test_free_places_go_round_among_lanes() -> None:
    gate = Gate(total_max=1, per_destination_max=1, lane_waiting_max=10, clock=VirtualClock())
    ran: list[str] = []
    gate.enter("first", lambda: None)
    for _ in range(3):
        for key in KEYS:
            gate.enter(key, lambda key=key: ran.append(key))  # type: ignore[misc]
    for key in ["first", *KEYS, *KEYS, *KEYS]:
        gate.leave(key)
    assert ran == [*KEYS, *KEYS, *KEYS]


def test_a_hung_destination_delays_no_other() -> None:
    gate = Gate(total_max=10, per_destination_max=1, lane_waiting_max=10, clock=VirtualClock())
    ran: list[str] = []
    for number in range(5):
        gate.enter("hung", lambda number=number: ran.append(f"hung {number}"))  # type: ignore[misc]
    for number in range(3):
        gate.enter("free", lambda number=number: ran.append(f"free {number}"))  # type: ignore[misc]
        gate.leave("free")
    assert ran == ["hung 0", "free 0", "free 1", "free 2"]


def test_a_long_queue_of_calls_not_wanted_any_more_is_passed_through() -> None:
    gate = Gate(total_max=1, per_destination_max=1, lane_waiting_max=100_000, clock=VirtualClock())
    ran: list[str] = []
    gate.enter("a", lambda: None)
    for number in range(20_000):
        key = "ab"[number % 2]
        gate.enter(key, lambda key=key: gate.leave(key))  # type: ignore[misc]
    gate.enter("b", lambda: ran.append("wanted"))
    gate.leave("a")
    assert ran == ["wanted"]
    assert (gate.in_flight, gate.waiting) == (1, 0)


def test_cleared_it_forgets_who_waits_and_keeps_count_of_who_is_inside() -> None:
    gate = Gate(total_max=2, per_destination_max=1, lane_waiting_max=10, clock=VirtualClock())
    ran: list[str] = []
    for key in ("a", "a", "b", "b", "c"):
        gate.enter(key, lambda key=key: ran.append(key))  # type: ignore[misc]
    gate.clear()
    gate.leave("a")
    gate.leave("b")
    assert ran == ["a", "b"]
    assert (gate.in_flight, gate.waiting, gate._lanes) == (0, 0, {})


def test_a_lane_says_how_long_its_first_has_waited() -> None:
    clock = VirtualClock()
    gate = Gate(total_max=1, per_destination_max=1, lane_waiting_max=10, clock=clock)
    gate.enter("a", lambda: None)
    assert gate.waited_ms("a") == gate.waited_ms("nobody") == 0
    gate.enter("a", lambda: None)
    clock.advance(5_000)
    gate.enter("a", lambda: None)
    assert 5_000 <= gate.waited_ms("a") < 10_000
    gate.leave("a")
    assert gate.waited_ms("a") < 5_000, "the first has gone in"
