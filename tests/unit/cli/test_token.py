"""`twophase token`: a token is printed once, and the file never holds it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from twophase.cli.token import app
from twophase.server.identity.tokens import digest_of, read_tokens


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


def _run(file: Path, *arguments: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, [*arguments, "--tokens", str(file)])
    return ran.exit_code, ran.stdout, ran.stderr


def test_a_token_is_printed_alone_and_only_its_digest_is_kept(file: Path) -> None:
    code, printed, _ = _run(file, "add", "orders", "--scope", "produce")
    token = printed.strip()
    assert code == 0
    assert token not in file.read_text()
    assert [(one.name, one.sha256) for one in read_tokens(file)] == [("orders", digest_of(token))]


def test_the_list_shows_no_token(file: Path) -> None:
    _, printed, _ = _run(file, "add", "orders", "--scope", "produce", "--gid-prefix", "o-", "--requests-per-s", "5")
    code, shown, _ = _run(file, "list")
    assert code == 0
    assert shown.startswith("orders  produce  sha256 ")
    assert "requests_per_s=5  gid_prefix=o-" in shown
    assert printed.strip() not in shown


def test_revoke_removes_all_of_a_name_or_all_but_the_newest(file: Path) -> None:
    tokens = [_run(file, "add", "orders", "--scope", "produce")[1].strip() for _ in range(3)]
    assert _run(file, "revoke", "orders", "--older")[0] == 0
    assert [one.sha256 for one in read_tokens(file)] == [digest_of(tokens[-1])]
    assert _run(file, "revoke", "orders")[0] == 0
    assert read_tokens(file) == ()
    code, _, told = _run(file, "revoke", "orders")
    assert code == 1
    assert "no token of orders" in told


def test_a_client_with_a_certificate_gets_no_token(file: Path) -> None:
    code, printed, _ = _run(file, "add", "pay", "--scope", "produce", "--san", "pay.internal")
    assert (code, printed) == (0, "")
    assert read_tokens(file)[0].san == ("pay.internal",)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "a b", "--scope", "produce"), "name 'a b'"),
        (("add", "a", "--scope", "produce", "--destination", "nonsense"), "destinations of a"),
        (("add", "a", "--scope", "produce", "--san", "x", "--san", "x"), "one san"),
    ],
)
def test_what_cannot_work_is_refused_and_not_written(file: Path, arguments: tuple[str, ...], why: str) -> None:
    code, printed, told = _run(file, *arguments)
    assert code == 2
    assert why in told
    assert printed == ""
    assert not file.exists()
