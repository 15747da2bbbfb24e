"""Every limit is in the table, refuses the first value too many, and names itself."""

from __future__ import annotations

import pytest

from twophase.core import limits
from twophase.core.errors import LimitExceeded
from twophase.core.limits import LIMITS, Limit, require


def test_every_limit_of_the_module_is_in_the_table() -> None:
    defined = [one for one in vars(limits).values() if isinstance(one, Limit)]

    assert list(LIMITS) == defined


@pytest.mark.parametrize("limit", LIMITS, ids=lambda one: f"{one.name} {one.unit}")
def test_the_limit_itself_is_allowed_and_one_more_is_refused(limit: Limit) -> None:
    require(limit, limit.value)

    with pytest.raises(LimitExceeded, match=limit.name) as caught:
        require(limit, limit.value + 1, gid="g")
    assert caught.value.gid == "g"
    assert str(limit.value) in caught.value.message
    assert limit.unit in caught.value.message


def test_all_payloads_together_pass_a_request() -> None:
    assert limits.PAYLOAD_BYTES_MAX.value <= limits.BODY_BYTES_MAX.value


def test_begin_is_allowed_long_after_the_first_check_back_may_come() -> None:
    assert limits.BEGIN_DEADLINE_MS.value >= 35_000
