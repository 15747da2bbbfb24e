"""A URL of dtm's store that cannot be one is refused before a driver sees it."""

from __future__ import annotations

import pytest

from twophase.core.errors import SourceError
from twophase.dtm_import.source import open_source


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_no_part_of_a_password_with_an_at_sign_is_shown(scheme: str) -> None:
    with pytest.raises(SourceError) as refused:
        open_source(f"{scheme}://eve:a@hush@127.0.0.1:1/dtm", prefix="", zone=None)

    assert "hush" not in str(refused.value)
    assert "Write it as %40." in str(refused.value)
