"""The token of a client: where it comes from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.core.bearer import TOKEN_VARIABLE, authorization_of, token_in
from twophase.core.errors import ConfigurationError


def test_a_token_becomes_a_bearer_and_an_authorization_stays() -> None:
    assert authorization_of("tp_x") == "Bearer tp_x"
    assert authorization_of(authorization="Basic YTpi") == "Basic YTpi"


def test_the_variable_is_used_where_nothing_else_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "tp_env")
    assert authorization_of() == "Bearer tp_env"
    assert authorization_of("tp_x") == "Bearer tp_x"
    assert authorization_of(authorization="Basic YTpi") == "Basic YTpi"
    monkeypatch.delenv(TOKEN_VARIABLE)
    assert authorization_of() is None


@pytest.mark.parametrize("token", ["tp\n", "tpé"])
def test_a_token_that_no_header_may_have_is_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match="control or non-ASCII"):
        authorization_of(token)


def test_a_token_or_an_authorization_may_stand_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("tp_file\n")
    monkeypatch.setenv("ORDERS_LOGIN", "Basic YTpi")
    assert authorization_of(f"file:{file}") == "Bearer tp_file"
    assert authorization_of(authorization="env:ORDERS_LOGIN") == "Basic YTpi"
    monkeypatch.setenv(TOKEN_VARIABLE, f"file:{file}")
    assert authorization_of() == "Bearer tp_file"
    file.chmod(0o604)
    with pytest.raises(ConfigurationError, match="every user"):
        authorization_of()


def test_a_token_and_an_authorization_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="exclude"):
        authorization_of("tp_x", "Basic YTpi")


def _file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "token"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_file_has_the_token_alone(tmp_path: Path) -> None:
    assert token_in(_file(tmp_path, "tp_x\n")) == "tp_x"


@pytest.mark.parametrize(("text", "mode", "why"), [("tp_x", 0o644, "others may read"), (" \n", 0o600, "is empty")])
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, mode: int, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        token_in(_file(tmp_path, text, mode))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        token_in(tmp_path / "nosuch")
