"""An operator gives a message another address.

Branches that are done stay done, and a call under way at the old address no longer counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, PATIENCE_S, Harness, message
from twophase.coordinator.operator import Act
from twophase.coordinator.state.active_message import Reply
from twophase.core.errors import InvalidRequest, StateConflict, UnknownMessage
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.options import Durability
from twophase.core.redirect import Move, Redirection
from twophase.destinations.base import Answer
from twophase.stores.rows import AttemptKind

EVE = Act("eve", "moved")
NEW = "http://bank-c/in"
SECOND = "http://bank-b/second"
REFUSED = Answer(500, b"no such account")


def anything(_: Message, __: Sequence[Move]) -> None:
    """Accept every address."""


async def redirect(harness: Harness, wanted: Redirection, gid: str = "g") -> tuple[Reply, tuple[Move, ...]]:
    """Redirect a message as the operator Eve."""
    acting = harness.coordinator.operator.redirect(gid, wanted, EVE, anything)
    return await asyncio.wait_for(acting, PATIENCE_S)


async def log_of(harness: Harness, kind: AttemptKind) -> list[tuple[str, str, str, str]]:
    """Return the attempts of a kind, once there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            view = await harness.coordinator.query("g")
            assert view is not None
            found = [(one.branch_id, one.target, one.result, one.error) for one in view.log if one.kind is kind]
            if found:
                return found
            await asyncio.sleep(0.002)


async def test_an_open_branch_is_called_at_the_new_address_under_its_id_and_what_is_done_stays_so(
    harness: Harness,
) -> None:
    harness.destination.script[SECOND].extend([REFUSED] * 50)
    await harness.submit(message("g", IN, SECOND, retry_interval_ms=600_000))
    await until(lambda: SECOND in harness.destination.urls())
    await harness.settled()

    reply, moves = await redirect(harness, Redirection(NEW, beginning=SECOND))
    harness.clock.advance(64)
    await harness.until_state("g", State.SUCCEEDED)

    assert (reply.error, moves) == (None, (Move("02", SECOND, NEW),))
    assert harness.destination.urls() == [IN, SECOND, NEW]
    assert dict(harness.destination.calls[2].query)["branch_id"] == "02"
    assert await log_of(harness, AttemptKind.OPERATOR) == [
        ("02", SECOND, "redirect", f"redirected by eve: moved; now {NEW}")
    ]


async def test_a_redirect_survives_a_restart(harness: Harness) -> None:
    harness.destination.script[IN].extend([REFUSED] * 50)
    await harness.submit(message("g", retry_interval_ms=600_000))
    await until(lambda: IN in harness.destination.urls())
    await harness.settled()
    await harness.coordinator.operator.park("g", EVE)

    await redirect(harness, Redirection(NEW))
    await harness.restart()
    await harness.coordinator.operator.redrive("g", EVE)
    harness.clock.advance(64)

    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls()[-1] == NEW


async def test_a_parked_message_stays_parked(harness: Harness) -> None:
    harness.destination.script[IN].extend([REFUSED] * 50)
    await harness.submit(message("g", retry_interval_ms=600_000))
    await until(lambda: IN in harness.destination.urls())
    await harness.coordinator.operator.park("g", EVE)

    await redirect(harness, Redirection(NEW))
    harness.clock.advance(3_600_000)
    await harness.settled()

    assert NEW not in harness.destination.urls()


async def test_a_success_at_the_old_address_that_comes_after_the_redirect_counts_no_more(harness: Harness) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g", IN, SECOND))
    await until(lambda: IN in harness.destination.urls())
    harness.destination.hold(NEW)

    await redirect(harness, Redirection(NEW, branch_id="01"))
    harness.clock.advance(64)
    await until(lambda: NEW in harness.destination.urls())
    harness.destination.release(IN)
    late = await log_of(harness, AttemptKind.BRANCH)

    assert late == [("01", IN, "succeeded", "succeeded arrived late, the message was redirected")]
    assert harness.destination.urls() == [IN, NEW], "the old round calls no second branch"
    harness.destination.release(NEW)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [IN, NEW, SECOND]


async def test_a_round_that_succeeds_while_the_redirect_is_written_is_repeated_at_the_new_address(
    harness: Harness,
) -> None:
    harness.destination.hold(IN)
    await harness.submit(message("g"))
    await until(lambda: IN in harness.destination.urls())
    harness.store.open.clear()
    redirecting = asyncio.ensure_future(redirect(harness, Redirection(NEW)))
    await until(lambda: harness.store.held_flushes == 1)
    harness.destination.release(IN)
    await asyncio.sleep(0)
    harness.store.open.set()

    reply, _ = await redirecting
    harness.clock.advance(120_000)
    await harness.until_state("g", State.SUCCEEDED)

    assert reply.state is State.SUBMITTED
    assert harness.destination.urls() == [IN, NEW]


async def test_a_message_of_check_back_durability_stores_its_decision_first(harness: Harness) -> None:
    harness.destination.hold(IN)
    early = message("g", durability=Durability.CHECK_BACK)
    await harness.prepare(early)
    await harness.submit(early)
    await until(lambda: IN in harness.destination.urls())

    reply, _ = await redirect(harness, Redirection(NEW))
    harness.clock.advance(64)
    await harness.until_state("g", State.SUCCEEDED)

    assert (reply.error, reply.state) == (None, State.SUBMITTED)
    assert harness.destination.urls() == [IN, NEW]
    harness.destination.release(IN)


async def test_a_prepared_message_is_asked_about_at_the_new_address_with_its_identity_and_time(
    harness: Harness,
) -> None:
    check, new = f"{CHECK}?barrier=7f", "http://bank-z/check"
    harness.destination.script[check].append(Answer(404, b"not here"))
    prepared = await harness.prepare(message("g", check_url=check))
    harness.clock.advance(36_000)
    await until(lambda: check in harness.destination.urls())
    await harness.settled()

    reply, moves = await redirect(harness, Redirection(new, check=True))
    harness.clock.advance(64)
    await harness.until_state("g", State.SUCCEEDED)

    assert (reply.error, moves) == (None, (Move("00", check, f"{new}?barrier=7f"),))
    assert harness.destination.urls() == [check, f"{new}?barrier=7f", IN]
    assert dict(harness.destination.calls[1].query)["prepared_at"] == str(prepared.prepared_at_ms)


async def test_a_verdict_of_the_old_check_address_that_comes_after_the_redirect_counts_no_more(
    harness: Harness,
) -> None:
    new = "http://bank-z/check"
    harness.destination.hold(CHECK)
    harness.destination.script[CHECK].append(Answer(409, b"FAILURE"))
    await harness.prepare(message("g"))
    harness.clock.advance(36_000)
    await until(lambda: CHECK in harness.destination.urls())

    await redirect(harness, Redirection(new, check=True))
    harness.destination.release(CHECK)
    await harness.settled()
    assert await harness.state("g") is State.PREPARED
    harness.clock.advance(64)

    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [CHECK, new, IN]


async def test_a_prepare_or_submit_that_is_repeated_after_a_redirect_is_no_conflict(harness: Harness) -> None:
    said = message("g", check_url=f"{CHECK}?barrier=7f")
    await harness.prepare(said)
    await redirect(harness, Redirection("http://bank-z/check", check=True))
    await redirect(harness, Redirection(NEW))

    assert (await harness.prepare(said)).error is None
    assert (await harness.submit(said)).error is None
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [NEW]
    assert isinstance((await harness.submit(said)).error, StateConflict)


async def test_nothing_is_called_before_its_delay(harness: Harness) -> None:
    await harness.submit(message("g", delay_ms=60_000))

    await redirect(harness, Redirection(NEW))
    harness.clock.advance(64)
    await harness.settled()
    assert harness.destination.urls() == []

    harness.clock.advance(60_100)
    await harness.until_state("g", State.SUCCEEDED)
    assert harness.destination.urls() == [NEW]


async def test_a_dry_run_changes_nothing(harness: Harness) -> None:
    await harness.submit(message("g", delay_ms=60_000))
    acting = harness.coordinator.operator.redirect("g", Redirection(NEW), EVE, anything, dry_run=True)

    reply, moves = await acting

    assert (reply.error, moves) == (None, (Move("01", IN, NEW),))
    row = await harness.store.get("g")
    assert row is not None
    assert NEW.encode() not in row.body
    assert await harness.store.attempts("g") == []


async def test_what_is_final_unknown_or_asked_no_more_is_refused_with_its_state(harness: Harness) -> None:
    await harness.submit(message("g"))
    await harness.until_state("g", State.SUCCEEDED)
    await harness.submit(message("later", delay_ms=60_000))

    final, _ = await redirect(harness, Redirection(NEW))
    unknown, _ = await redirect(harness, Redirection(NEW), "nobody")
    check, _ = await redirect(harness, Redirection(NEW, check=True), "later")

    assert isinstance(final.error, StateConflict)
    assert final.error.message == "current status 'succeeded', cannot redirect."
    assert isinstance(unknown.error, UnknownMessage)
    assert isinstance(check.error, StateConflict)
    assert "its producer is no longer asked" in check.error.message


async def test_an_address_that_cannot_be_called_is_refused_before_anything_is_written(harness: Harness) -> None:
    await harness.submit(message("g", delay_ms=60_000))

    def refusing(_: Message, moves: Sequence[Move]) -> None:
        raise InvalidRequest(f"to: {moves[0].after} is no address.")

    with pytest.raises(InvalidRequest, match="nowhere is no address"):
        await harness.coordinator.operator.redirect("g", Redirection("nowhere"), EVE, refusing)

    assert await harness.store.attempts("g") == []


async def test_a_redirect_that_another_one_overtakes_is_checked_for_the_address_that_it_now_makes(
    harness: Harness,
) -> None:
    await harness.submit(message("g", "http://old/allowed", delay_ms=600_000))
    harness.store.open.clear()
    first = asyncio.ensure_future(redirect(harness, Redirection("http://old/secret")))
    await until(lambda: harness.store.held_flushes == 1)

    def only_allowed(_: Message, moves: Sequence[Move]) -> None:
        for move in moves:
            if not move.after.endswith("/allowed"):
                raise InvalidRequest(f"to: {move.after} is not allowed.")

    wanted = Redirection("http://new", beginning="http://old")
    second = asyncio.ensure_future(harness.coordinator.operator.redirect("g", wanted, EVE, only_allowed))
    await until(lambda: bool((active := harness.coordinator._memory.get("g")) and active.queue))
    harness.store.open.set()

    assert (await first)[0].error is None
    reply, moves = await asyncio.wait_for(second, PATIENCE_S)
    assert isinstance(reply.error, InvalidRequest)
    assert "http://new/secret is not allowed" in reply.error.message
    assert moves == ()
    view = await harness.coordinator.query("g")
    assert view is not None
    assert [branch.subscribers for branch in view.message.branches] == [("http://old/secret",)]
