"""The URL of the coordinator's store."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.core.errors import ConfigurationError
from twophase.server.stores import sqlite_path


def test_options_behind_a_sqlite_file_are_refused_and_make_no_file_of_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigurationError, match="write sqlite:///file"):
        sqlite_path("sqlite:///n.db?mode=ro")
    (tmp_path / "n.db?mode=ro").touch()  # a store that an earlier version has made goes on
    assert sqlite_path("sqlite:///n.db?mode=ro") == "n.db?mode=ro"
