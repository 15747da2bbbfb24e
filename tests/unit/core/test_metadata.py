"""The gRPC metadata that a call can carry.

What no call can carry is refused by name.
"""

from __future__ import annotations

import pytest

from twophase.core.headers import why_no_metadata


@pytest.mark.parametrize("headers", [(), (("Tenant.Id_1-x", ""),), (("x", " ~"),), (("sign-BIN", "a\tb"),)])
def test_what_can_stand_there_is_taken(headers: tuple[tuple[str, str], ...]) -> None:
    assert why_no_metadata("order-17 ~", headers) == ""


@pytest.mark.parametrize(
    ("gid", "header", "named"),
    [
        ("ü", ("x", "1"), "gid has characters beyond ASCII"),
        ("g", ("x!", "1"), "branch_headers: 'x!' or its value"),
        ("g", ("", "1"), "branch_headers: '' or its value"),
        ("g", ("x", "a\tb"), "branch_headers: 'x' or its value"),
        ("g", ("x", "é"), "branch_headers: 'x' or its value"),
        ("g", ("x!-bin", "1"), "branch_headers: 'x!-bin' or its value"),
    ],
)
def test_what_cannot_is_named_without_its_value(gid: str, header: tuple[str, str], named: str) -> None:
    why_not = why_no_metadata(gid, [("fine", "1"), header])

    assert why_not.startswith(named)
    assert "a\tb" not in why_not
