"""The bounds of an import: the size of a message, and the values of a request."""

from __future__ import annotations

import urllib.request
from urllib.error import HTTPError

import msgspec
import pytest

from twophase.core.limits import BODY_BYTES_MAX
from twophase.core.takeover import PATH, Outcome, TakenBranch, TakenMessage, TakenState
from twophase.dtm_import.target import _ENVELOPE_BYTES, Target
from twophase.testing import InProcessCoordinator

DAY_MS = 86_400_000


def message(gid: str, payload: bytes = b"{}", branches: int = 1) -> TakenMessage:
    """Return a message that is not called while the test runs."""
    steps = tuple(TakenBranch("http://127.0.0.1:1/in", payload) for _ in range(branches))
    return TakenMessage(gid, TakenState.SUBMITTED, steps, delay_ms=DAY_MS)


def message_of(size: int) -> TakenMessage:
    """Return a message of four branches that has this size in a request."""
    rest = size - len(msgspec.json.encode(message("g", bytes(3), 4)))
    threes, left = divmod(rest, 4 * 4)  # base64 has four characters for three bytes, in each of four branches
    made = message("g" * (left + 1), bytes(3 + 3 * threes), 4)
    assert len(msgspec.json.encode(made)) == size
    return made


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_message_too_large_for_one_request_is_refused_alone(
    coordinator: InProcessCoordinator, *, dry_run: bool
) -> None:
    size_max = BODY_BYTES_MAX.value - _ENVELOPE_BYTES
    large, fits = message_of(size_max + 1), message_of(size_max)
    messages = [message("before"), large, fits, message("behind")]
    assert large.gid != fits.gid

    before, refused, taken, behind = Target(coordinator.url).take(messages, dry_run=dry_run)

    assert [before.outcome, taken.outcome, behind.outcome] == [Outcome.COPIED] * 3
    assert (refused.gid, refused.outcome) == (large.gid, Outcome.REFUSED)
    assert f"larger than {BODY_BYTES_MAX.value} bytes" in refused.message
    stored = {one.gid for one in messages if coordinator.query(one.gid) is not None}
    assert stored == (set() if dry_run else {"before", fits.gid, "behind"})


def test_a_request_of_too_many_values_is_refused(coordinator: InProcessCoordinator) -> None:
    one = {"gid": "g", "state": "submitted", "branches": [{"url": "http://b/in", "calls": [""] * 100_001}]}
    request = urllib.request.Request(f"{coordinator.url}{PATH}", msgspec.json.encode({"messages": [one]}))

    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)

    with refused.value as answer:
        assert answer.code == 400
        assert b"values of a request is 100001 values or more, at most 100000 are allowed" in answer.read()
    assert coordinator.query("g") is None
