"""The concurrency limiter.

Its bounds hold, each destination has a queue in order, no waiting call is forgotten, and a destination that hangs
delays no other; nor does an owner with many messages.
"""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import until
from tests.unit.coordinator.harness import ScriptedDestination
from twophase.coordinator.dispatch.calls import NO_PERMIT, Calls
from twophase.coordinator.dispatch.limiter import UNPROVEN, ConcurrencyLimiter
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.message import Message
from twophase.destinations.base import Answer
from twophase.testing.clock import VirtualClock

TOTAL, EACH, WAITING = 4, 2, 3
KEYS = ("a", "b", "c")
OWNERS = ("", "x", "y")
SHARES = {"x": 1, "y": 3}

Queue = tuple[str, str]
"""A destination and an owner."""


class Crowd:
    """Calls that enter and leave at random; the bounds are checked at every step."""

    def __init__(self) -> None:
        self.limiter = ConcurrencyLimiter(TOTAL, EACH, WAITING, VirtualClock(), of_owner=SHARES.__getitem__)
        self.inside: dict[Queue, list[int]] = defaultdict(list)
        self.order: dict[Queue, list[int]] = defaultdict(list)
        self.accepted: dict[Queue, list[int]] = defaultdict(list)

    def enter(self, queue: Queue, number: int, *, ends_at_once: bool) -> None:
        # Recorded before `run`: a free permit is taken inside `enter`.
        self.accepted[queue].append(number)
        key, owner = queue

        def run() -> None:
            self.order[queue].append(number)
            self.inside[queue].append(number)
            self.check()
            if ends_at_once:
                self.inside[queue].remove(number)
                self.limiter.leave(key, owner)

        if not self.limiter.enter(key, run, owner):
            self.accepted[queue].remove(number)
            assert self.waiting(queue) == WAITING

    def leave(self, queue: Queue) -> None:
        if self.inside[queue]:
            self.inside[queue].pop(0)
            self.limiter.leave(*queue)

    def waiting(self, queue: Queue) -> int:
        return len(self.accepted[queue]) - len(self.order[queue])

    def to(self, key: str) -> int:
        return sum(len(self.inside[key, owner]) for owner in OWNERS)

    def of(self, owner: str) -> int:
        return sum(len(self.inside[key, owner]) for key in KEYS)

    def check(self) -> None:
        assert self.limiter.in_flight == sum(map(len, self.inside.values())) <= TOTAL
        assert all(self.to(key) <= EACH for key in KEYS)
        assert all(self.of(owner) <= share for owner, share in SHARES.items())

    def check_that_no_place_is_free_for_a_waiting_call(self) -> None:
        for key, owner in QUEUES:
            free = self.to(key) < EACH and self.of(owner) < SHARES.get(owner, TOTAL) and self.limiter.in_flight < TOTAL
            assert not (free and self.waiting((key, owner)))


QUEUES = tuple((key, owner) for key in KEYS for owner in OWNERS)
step = st.tuples(st.sampled_from(["enter", "ends at once", "leave"]), st.sampled_from(QUEUES))


@given(st.lists(step, max_size=120))
def test_bounds_order_and_no_permit_lost(steps: list[tuple[str, Queue]]) -> None:
    crowd = Crowd()
    for number, (what, queue) in enumerate(steps):
        if what == "leave":
            crowd.leave(queue)
        else:
            crowd.enter(queue, number, ends_at_once=what == "ends at once")
        crowd.check()
        crowd.check_that_no_place_is_free_for_a_waiting_call()
    while crowd.limiter.in_flight:
        for queue in QUEUES:
            crowd.leave(queue)
            crowd.check_that_no_place_is_free_for_a_waiting_call()
    assert crowd.order == crowd.accepted
    assert (crowd.limiter.in_flight, crowd.limiter.waiting) == (0, 0)
    assert (crowd.limiter._destinations, list(crowd.limiter._owners)) == ({}, [""])


def test_an_owner_with_many_calls_leaves_places_to_others() -> None:
    limiter = ConcurrencyLimiter(10, 10, 100, VirtualClock(), of_owner=lambda _owner: 5)
    ran: list[str] = []
    for number in range(30):
        key = "abc"[number % 3]
        limiter.enter(key, lambda: ran.append("many"), "many")
    limiter.enter("a", lambda: ran.append("few"), "few")
    assert ran == [*["many"] * 5, "few"]


def test_an_owner_takes_its_turn_at_a_destination_that_another_fills() -> None:
    limiter = ConcurrencyLimiter(10, 1, 100, VirtualClock())
    ran: list[str] = []
    for _ in range(5):
        limiter.enter("a", lambda: ran.append("many"), "many")
    limiter.enter("a", lambda: ran.append("few"), "few")
    limiter.leave("a", "many")
    limiter.leave("a", "many")
    assert ran == ["many", "many", "few"]


def test_an_answer_that_earns_a_place_lets_two_owners_call() -> None:
    limiter = ConcurrencyLimiter(100, 2 * UNPROVEN, 100, VirtualClock())
    ran: list[str] = []
    for _ in range(UNPROVEN):
        limiter.enter("a", lambda: None, "first")
    for owner in ("second", "third"):
        limiter.enter("a", lambda owner=owner: ran.append(owner), owner)  # type: ignore[misc]
    limiter.leave("a", "first")
    assert ran == ["second", "third"]


def test_an_owner_whose_share_is_used_up_passes_the_place_on() -> None:
    limiter = ConcurrencyLimiter(10, 1, 10, VirtualClock(), of_owner=lambda _owner: 1)
    ran: list[str] = []
    limiter.enter("a", lambda: None, "first")
    limiter.enter("b", lambda: None, "busy")
    for owner in ("busy", "free"):
        limiter.enter("a", lambda owner=owner: ran.append(owner), owner)  # type: ignore[misc]
    limiter.leave("a", "first")
    assert ran == ["free"]
    limiter.leave("b", "busy")
    limiter.leave("a", "free")
    assert ran == ["free", "busy"]


def test_a_destination_that_is_full_leaves_its_owners_place_to_another() -> None:
    limiter = ConcurrencyLimiter(10, 1, 10, VirtualClock(), of_owner=lambda _owner: 1)
    ran: list[str] = []
    limiter.enter("a", lambda: None, "x")
    for key in ("b", "c"):
        limiter.enter(key, lambda key=key: ran.append(key), "x")  # type: ignore[misc]
    limiter.enter("b", lambda: None, "y")
    limiter.leave("a", "x")
    assert ran == ["c"]


def test_a_share_that_changes_counts_from_the_next_answer_on() -> None:
    share = 1
    limiter = ConcurrencyLimiter(10, 10, 100, VirtualClock(), of_owner=lambda _owner: share)
    ran: list[str] = []
    for key in "abcdef":
        limiter.enter(key, lambda key=key: ran.append(key), "x")  # type: ignore[misc]
    assert ran == ["a"]
    share = 3
    limiter.leave("a", "x")
    assert ran == ["a", "b", "c", "d"]


def test_free_permits_go_round_among_queues() -> None:
    limiter = ConcurrencyLimiter(total_max=1, per_destination_max=1, queue_waiting_max=10, clock=VirtualClock())
    ran: list[str] = []
    limiter.enter("first", lambda: None)
    for _ in range(3):
        for key in KEYS:
            limiter.enter(key, lambda key=key: ran.append(key))  # type: ignore[misc]
    for key in ["first", *KEYS, *KEYS, *KEYS]:
        limiter.leave(key)
    assert ran == [*KEYS, *KEYS, *KEYS]


def test_a_hung_destination_delays_no_other() -> None:
    limiter = ConcurrencyLimiter(total_max=10, per_destination_max=1, queue_waiting_max=10, clock=VirtualClock())
    ran: list[str] = []
    for number in range(5):
        limiter.enter("hung", lambda number=number: ran.append(f"hung {number}"))  # type: ignore[misc]
    for number in range(3):
        limiter.enter("free", lambda number=number: ran.append(f"free {number}"))  # type: ignore[misc]
        limiter.leave("free")
    assert ran == ["hung 0", "free 0", "free 1", "free 2"]


def test_a_long_queue_of_calls_not_wanted_any_more_is_passed_through() -> None:
    limiter = ConcurrencyLimiter(total_max=1, per_destination_max=1, queue_waiting_max=100_000, clock=VirtualClock())
    ran: list[str] = []
    limiter.enter("a", lambda: None)
    for number in range(20_000):
        key = "ab"[number % 2]
        limiter.enter(key, lambda key=key: limiter.leave(key))  # type: ignore[misc]
    limiter.enter("b", lambda: ran.append("wanted"))
    limiter.leave("a")
    assert ran == ["wanted"]
    assert (limiter.in_flight, limiter.waiting) == (1, 0)


def test_cleared_it_forgets_who_waits_and_keeps_count_of_who_is_inside() -> None:
    limiter = ConcurrencyLimiter(total_max=2, per_destination_max=1, queue_waiting_max=10, clock=VirtualClock())
    ran: list[str] = []
    for key in ("a", "a", "b", "b", "c"):
        limiter.enter(key, lambda key=key: ran.append(key))  # type: ignore[misc]
    limiter.clear()
    limiter.leave("a")
    limiter.leave("b")
    assert ran == ["a", "b"]
    assert (limiter.in_flight, limiter.waiting, limiter._destinations) == (0, 0, {})


def test_a_queue_returns_how_long_its_first_has_waited() -> None:
    clock = VirtualClock()
    limiter = ConcurrencyLimiter(total_max=1, per_destination_max=1, queue_waiting_max=10, clock=clock)
    limiter.enter("a", lambda: None)
    assert limiter.waited_ms("a") == limiter.waited_ms("nobody") == 0
    limiter.enter("a", lambda: None)
    clock.advance(5_000)
    limiter.enter("a", lambda: None)
    assert 5_000 <= limiter.waited_ms("a") < 10_000
    limiter.leave("a")
    assert limiter.waited_ms("a") < 5_000, "the first has gone in"


def test_a_destination_may_have_a_bound_of_its_own() -> None:
    bounds = {"small": 1, "large": 3}
    limiter = ConcurrencyLimiter(10, 2, 10, VirtualClock(), bounds)
    started: list[str] = []
    for key in ("small", "large", "other"):
        for _ in range(4):
            assert limiter.enter(key, lambda key=key: started.append(key))  # type: ignore[misc]
    assert started == ["small", *["large"] * 3, *["other"] * 2]
    limiter.leave("small")
    assert started[-1] == "small"


def test_a_destination_earns_its_places_by_answers() -> None:
    limiter = ConcurrencyLimiter(
        total_max=1_000, per_destination_max=UNPROVEN + 3, queue_waiting_max=1_000, clock=VirtualClock()
    )

    def begun() -> int:
        return limiter.busiest(1)[0][1]

    for _ in range(100):
        limiter.enter("a", lambda: None)
    assert begun() == UNPROVEN
    for places in (1, 2, 3, 3):
        limiter.leave("a")
        assert begun() == UNPROVEN + places
    limiter.leave("a", answered=False)
    assert begun() == UNPROVEN + 2
    for _ in range(50):
        limiter.leave("a", answered=False)
    assert begun() == UNPROVEN


def test_destinations_that_never_answer_leave_places_for_others() -> None:
    limiter = ConcurrencyLimiter(
        total_max=2_048, per_destination_max=256, queue_waiting_max=10_000, clock=VirtualClock()
    )
    for number in range(9 * 256):
        limiter.enter(f"silent {number % 9}", lambda: None)
    ran: list[str] = []
    limiter.enter("healthy", lambda: ran.append("healthy"))
    assert ran == ["healthy"]


def test_a_destination_that_has_answered_does_not_wait_for_the_turns_of_thousands_that_have_not() -> None:
    limiter = ConcurrencyLimiter(total_max=4, per_destination_max=100, queue_waiting_max=100, clock=VirtualClock())
    assert limiter.enter("well", lambda: None)
    limiter.leave("well")
    under_way: list[str] = []
    for number in range(1_000):
        limiter.enter(f"n{number}", lambda name=f"n{number}": under_way.append(name))  # type: ignore[misc]
    limiter.enter("new", lambda: under_way.append("new"))
    for _ in range(20):
        limiter.enter("well", lambda: under_way.append("well"))
    ended: list[str] = []
    for _ in range(40):
        ended.append(under_way.pop(0))
        limiter.leave(ended[-1], answered=ended[-1] == "well")
    assert 17 <= ended.count("well") <= 20
    assert ended.count("well") < len(ended), "the others have their turns, too"


def test_the_places_of_a_destination_are_remembered_while_nothing_is_called() -> None:
    limiter = ConcurrencyLimiter(
        total_max=1_000, per_destination_max=100, queue_waiting_max=1_000, clock=VirtualClock()
    )
    for number in range(5_000):
        limiter.enter(f"once {number}", lambda: None)
        limiter.leave(f"once {number}")
    assert len(limiter._learned) == 4_096
    for _ in range(50):
        limiter.enter("a", lambda: None)
        limiter.leave("a")
    for _ in range(100):
        limiter.enter("a", lambda: None)
    assert limiter.in_flight == UNPROVEN + 50


async def test_a_call_that_is_not_wanted_any_more_earns_no_place_and_takes_none() -> None:
    limiter = ConcurrencyLimiter(
        total_max=1_000, per_destination_max=100, queue_waiting_max=1_000, clock=VirtualClock()
    )
    calls = Calls({"http": ScriptedDestination()}, limiter)
    answers: list[Answer] = []
    for number in range(50):
        active = ActiveMessage(Message(f"g{number}", ()))
        calls.start(active, "http://silent/in", lambda _: None, lambda _key, answer: answers.append(answer))
    await until(lambda: answers == [NO_PERMIT] * 50)
    for _ in range(100):
        limiter.enter("http://silent", lambda: None)
    assert limiter.in_flight == UNPROVEN


def test_a_call_that_may_not_wait_is_made_now_or_never_and_leaves_nothing() -> None:
    limiter = ConcurrencyLimiter(1, 2 * UNPROVEN, 10, VirtualClock())
    ran: list[str] = []
    assert limiter.enter("a", lambda: ran.append("now"), "x", pressure=1)
    assert not limiter.enter("a", lambda: ran.append("never"), "x", pressure=1)
    assert not limiter.enter("b", lambda: ran.append("never"), "y", pressure=1)
    limiter.leave("a", "x")
    assert ran == ["now"]
    assert (limiter._destinations, list(limiter._owners), limiter.waiting) == ({}, [""], 0)


def test_under_pressure_a_call_waits_only_where_turns_come_quickly() -> None:
    clock = VirtualClock()
    limiter = ConcurrencyLimiter(total_max=100, per_destination_max=UNPROVEN + 1, queue_waiting_max=100, clock=clock)
    ran: list[str] = []
    for _ in range(UNPROVEN):
        limiter.enter("a", lambda: ran.append("first"))
    assert not limiter.enter("a", lambda: ran.append("never"), pressure=1), "it has not answered"
    limiter.leave("a")
    limiter.enter("a", lambda: ran.append("first"))
    limiter.enter("a", lambda: ran.append("first"))
    assert limiter.enter("a", lambda: ran.append("waited"), pressure=1)
    assert not limiter.enter("a", lambda: ran.append("never"), pressure=2)
    clock.advance(1_999)
    assert limiter.enter("a", lambda: ran.append("waited"), pressure=1)
    clock.advance(2)
    assert not limiter.enter("a", lambda: ran.append("never"), pressure=1), "its first call waits for two seconds"
    limiter.leave("a")
    assert limiter.enter("a", lambda: ran.append("waited"), pressure=1)
    for _ in range(3):
        limiter.leave("a")
    assert ran == ["first"] * (UNPROVEN + 2) + ["waited"] * 3


def test_calls_that_come_no_nearer_make_room_the_slowest_queue_and_its_last_first() -> None:
    clock = VirtualClock()
    limiter = ConcurrencyLimiter(total_max=100, per_destination_max=1, queue_waiting_max=100, clock=clock)
    given_up: list[str] = []
    ran: list[str] = []
    for key in ("slow", "slower", "quick"):
        limiter.enter(key, lambda: None)

    def wait(key: str, number: int) -> None:
        name = f"{key}{number}"
        limiter.enter(key, lambda: ran.append(name), give_up=lambda: given_up.append(name))

    for number in range(3):
        wait("slower", number)
    clock.advance(10)
    for number in range(4):
        wait("slow", number)
    clock.advance(2_000)
    for number in range(5):
        wait("quick", number)

    limiter.make_room(3)
    assert given_up == ["slower2", "slower1", "slow3"]
    limiter.make_room(100)
    assert given_up[3:] == ["slow2", "slow1"], "each queue keeps its first, and a quick one all"
    assert limiter.waiting == 7
    for _ in range(6):
        limiter.leave("quick")
    for key in ("slower", "slow"):
        limiter.leave(key)
        limiter.leave(key)
    assert ran == [*(f"quick{number}" for number in range(5)), "slower0", "slow0"]
    assert (limiter.in_flight, limiter.waiting, limiter._destinations) == (0, 0, {})
