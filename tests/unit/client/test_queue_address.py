"""The addresses of queues, as a producer asks for them."""

from __future__ import annotations

from typing import Any

import pytest

from twophase import queue_address
from twophase.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tag", 7),
        ("keys", [7]),
        ("message_group", 7),
        ("message_id", b"7"),
        ("properties", {"shop": 7}),
        ("properties", {7: "shop"}),
    ],
)
def test_a_value_that_is_no_text_is_refused_with_its_name(name: str, value: Any) -> None:
    given: Any = {name: value}
    with pytest.raises(InvalidRequest, match=rf"{name} has b?'?7'?, which is no text; write str\(…\)"):
        queue_address("orders", **given)


def test_keys_may_come_from_a_generator() -> None:
    assert queue_address("orders", keys=(str(number) for number in (7, 8))) == "queue://orders?key=7&key=8"
