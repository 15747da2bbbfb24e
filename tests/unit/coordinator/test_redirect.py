"""An operator gives a message another address.

Branches that are done stay done, and a call under way at the old address no longer counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.unit.coordinator.rig import CHECK, IN, PATIENCE_S, Rig, message
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


async def redirect(rig: Rig, wanted: Redirection, gid: str = "g") -> tuple[Reply, tuple[Move, ...]]:
    """Redirect a message as the operator Eve."""
    acting = rig.coordinator.operator.redirect(gid, wanted, EVE, anything)
    return await asyncio.wait_for(acting, PATIENCE_S)


async def log_of(rig: Rig, kind: AttemptKind) -> list[tuple[str, str, str, str]]:
    """Return the attempts of a kind, once there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            view = await rig.coordinator.query("g")
            assert view is not None
            found = [(one.branch_id, one.target, one.result, one.error) for one in view.log if one.kind is kind]
            if found:
                return found
            await asyncio.sleep(0.002)


async def test_an_open_branch_is_called_at_the_new_address_under_its_id_and_what_is_done_stays_so(rig: Rig) -> None:
    rig.destination.script[SECOND].extend([REFUSED] * 50)
    await rig.submit(message("g", IN, SECOND, retry_interval_ms=600_000))
    await rig.until(lambda: SECOND in rig.destination.urls())
    await rig.settled()

    reply, moves = await redirect(rig, Redirection(NEW, beginning=SECOND))
    rig.clock.advance(64)
    await rig.until_state("g", State.SUCCEEDED)

    assert (reply.error, moves) == (None, (Move("02", SECOND, NEW),))
    assert rig.destination.urls() == [IN, SECOND, NEW]
    assert dict(rig.destination.calls[2].query)["branch_id"] == "02"
    assert await log_of(rig, AttemptKind.OPERATOR) == [
        ("02", SECOND, "redirect", f"redirected by eve: moved; now {NEW}")
    ]


async def test_a_redirect_survives_a_restart(rig: Rig) -> None:
    rig.destination.script[IN].extend([REFUSED] * 50)
    await rig.submit(message("g", retry_interval_ms=600_000))
    await rig.until(lambda: IN in rig.destination.urls())
    await rig.settled()
    await rig.coordinator.operator.park("g", EVE)

    await redirect(rig, Redirection(NEW))
    await rig.restart()
    await rig.coordinator.operator.redrive("g", EVE)
    rig.clock.advance(64)

    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls()[-1] == NEW


async def test_a_parked_message_stays_parked(rig: Rig) -> None:
    rig.destination.script[IN].extend([REFUSED] * 50)
    await rig.submit(message("g", retry_interval_ms=600_000))
    await rig.until(lambda: IN in rig.destination.urls())
    await rig.coordinator.operator.park("g", EVE)

    await redirect(rig, Redirection(NEW))
    rig.clock.advance(3_600_000)
    await rig.settled()

    assert NEW not in rig.destination.urls()


async def test_a_success_at_the_old_address_that_comes_after_the_redirect_counts_no_more(rig: Rig) -> None:
    rig.destination.hold(IN)
    await rig.submit(message("g", IN, SECOND))
    await rig.until(lambda: IN in rig.destination.urls())
    rig.destination.hold(NEW)

    await redirect(rig, Redirection(NEW, branch_id="01"))
    rig.clock.advance(64)
    await rig.until(lambda: NEW in rig.destination.urls())
    rig.destination.release(IN)
    late = await log_of(rig, AttemptKind.BRANCH)

    assert late == [("01", IN, "succeeded", "succeeded arrived late, the message was redirected")]
    assert rig.destination.urls() == [IN, NEW], "the old round calls no second branch"
    rig.destination.release(NEW)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [IN, NEW, SECOND]


async def test_a_round_that_succeeds_while_the_redirect_is_written_is_repeated_at_the_new_address(rig: Rig) -> None:
    rig.destination.hold(IN)
    await rig.submit(message("g"))
    await rig.until(lambda: IN in rig.destination.urls())
    rig.store.open.clear()
    redirecting = asyncio.ensure_future(redirect(rig, Redirection(NEW)))
    await rig.until(lambda: rig.store.held_flushes == 1)
    rig.destination.release(IN)
    await asyncio.sleep(0)
    rig.store.open.set()

    reply, _ = await redirecting
    rig.clock.advance(120_000)
    await rig.until_state("g", State.SUCCEEDED)

    assert reply.state is State.SUBMITTED
    assert rig.destination.urls() == [IN, NEW]


async def test_a_message_of_check_back_durability_stores_its_decision_first(rig: Rig) -> None:
    rig.destination.hold(IN)
    early = message("g", durability=Durability.CHECK_BACK)
    await rig.prepare(early)
    await rig.submit(early)
    await rig.until(lambda: IN in rig.destination.urls())

    reply, _ = await redirect(rig, Redirection(NEW))
    rig.clock.advance(64)
    await rig.until_state("g", State.SUCCEEDED)

    assert (reply.error, reply.state) == (None, State.SUBMITTED)
    assert rig.destination.urls() == [IN, NEW]
    rig.destination.release(IN)


async def test_a_prepared_message_is_asked_about_at_the_new_address_with_its_identity_and_time(rig: Rig) -> None:
    check, new = f"{CHECK}?barrier=7f", "http://bank-z/check"
    rig.destination.script[check].append(Answer(404, b"not here"))
    prepared = await rig.prepare(message("g", check_url=check))
    rig.clock.advance(36_000)
    await rig.until(lambda: check in rig.destination.urls())
    await rig.settled()

    reply, moves = await redirect(rig, Redirection(new, check=True))
    rig.clock.advance(64)
    await rig.until_state("g", State.SUCCEEDED)

    assert (reply.error, moves) == (None, (Move("00", check, f"{new}?barrier=7f"),))
    assert rig.destination.urls() == [check, f"{new}?barrier=7f", IN]
    assert dict(rig.destination.calls[1].query)["prepared_at"] == str(prepared.prepared_at_ms)


async def test_a_verdict_of_the_old_check_address_that_comes_after_the_redirect_counts_no_more(rig: Rig) -> None:
    new = "http://bank-z/check"
    rig.destination.hold(CHECK)
    rig.destination.script[CHECK].append(Answer(409, b"FAILURE"))
    await rig.prepare(message("g"))
    rig.clock.advance(36_000)
    await rig.until(lambda: CHECK in rig.destination.urls())

    await redirect(rig, Redirection(new, check=True))
    rig.destination.release(CHECK)
    await rig.settled()
    assert await rig.state("g") is State.PREPARED
    rig.clock.advance(64)

    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [CHECK, new, IN]


async def test_a_prepare_or_submit_that_is_repeated_after_a_redirect_is_no_conflict(rig: Rig) -> None:
    said = message("g", check_url=f"{CHECK}?barrier=7f")
    await rig.prepare(said)
    await redirect(rig, Redirection("http://bank-z/check", check=True))
    await redirect(rig, Redirection(NEW))

    assert (await rig.prepare(said)).error is None
    assert (await rig.submit(said)).error is None
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [NEW]
    assert isinstance((await rig.submit(said)).error, StateConflict)


async def test_nothing_is_called_before_its_delay(rig: Rig) -> None:
    await rig.submit(message("g", delay_ms=60_000))

    await redirect(rig, Redirection(NEW))
    rig.clock.advance(64)
    await rig.settled()
    assert rig.destination.urls() == []

    rig.clock.advance(60_100)
    await rig.until_state("g", State.SUCCEEDED)
    assert rig.destination.urls() == [NEW]


async def test_a_dry_run_changes_nothing(rig: Rig) -> None:
    await rig.submit(message("g", delay_ms=60_000))
    acting = rig.coordinator.operator.redirect("g", Redirection(NEW), EVE, anything, dry_run=True)

    reply, moves = await acting

    assert (reply.error, moves) == (None, (Move("01", IN, NEW),))
    row = await rig.store.get("g")
    assert row is not None
    assert NEW.encode() not in row.body
    assert await rig.store.attempts("g") == []


async def test_what_is_final_unknown_or_asked_no_more_is_refused_with_its_state(rig: Rig) -> None:
    await rig.submit(message("g"))
    await rig.until_state("g", State.SUCCEEDED)
    await rig.submit(message("later", delay_ms=60_000))

    final, _ = await redirect(rig, Redirection(NEW))
    unknown, _ = await redirect(rig, Redirection(NEW), "nobody")
    check, _ = await redirect(rig, Redirection(NEW, check=True), "later")

    assert isinstance(final.error, StateConflict)
    assert final.error.message == "current status 'succeeded', cannot redirect."
    assert isinstance(unknown.error, UnknownMessage)
    assert isinstance(check.error, StateConflict)
    assert "its producer is asked no more" in check.error.message


async def test_an_address_that_cannot_be_called_is_refused_before_anything_is_written(rig: Rig) -> None:
    await rig.submit(message("g", delay_ms=60_000))

    def refusing(_: Message, moves: Sequence[Move]) -> None:
        raise InvalidRequest(f"to: {moves[0].after} is no address.")

    with pytest.raises(InvalidRequest, match="nowhere is no address"):
        await rig.coordinator.operator.redirect("g", Redirection("nowhere"), EVE, refusing)

    assert await rig.store.attempts("g") == []
