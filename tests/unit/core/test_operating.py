"""The JSON for operators: short where there is little to report.

What was written is read again as the same.
"""

from __future__ import annotations

import msgspec

from twophase.core.operating import Acted, ActRequest, ManyMessages, OneMessage, ShownAttempt, ShownBranch, ShownMessage

FULL = ShownMessage(
    gid="g",
    state="prepared",
    created_ms=1,
    parked=True,
    branches=[ShownBranch("01", "http://b/in", 2, done=True)],
    log=[ShownAttempt(2, "check-back", "00", "http://a/check", 500, 3, "unknown", "it failed")],
)


def test_what_has_no_value_is_left_out() -> None:
    assert msgspec.json.encode(ShownMessage("g", "submitted", 7)) == b'{"gid":"g","state":"submitted","created_ms":7}'


def test_a_page_is_read_as_it_was_written() -> None:
    page = ManyMessages([FULL], "next", 5)
    assert msgspec.json.decode(msgspec.json.encode(page), type=ManyMessages) == page
    one = OneMessage(FULL, 5)
    assert msgspec.json.decode(msgspec.json.encode(one), type=OneMessage) == one
    acted = Acted("g", "failed")
    assert msgspec.json.decode(msgspec.json.encode(acted), type=Acted) == acted


def test_an_act_needs_no_words() -> None:
    assert msgspec.json.decode(b"{}", type=ActRequest) == ActRequest("", "")
