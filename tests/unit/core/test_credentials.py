"""No piece of a password is ever shown, however it is typed."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from twophase.core.credentials import holds_password, is_reference, secret_of, shown, without_credentials
from twophase.core.errors import ConfigurationError

# Each has "Hunter" or "Two" in it, whatever it is cut at.
PASSWORDS = [f"Hunter{mark}Two" for mark in ("", "@", "/", "?", "#", ":", "=", "&", "%40", "://", "@h/x?", "?a=", "'")]
SHAPES = [
    "{scheme}://me:{password}@db:5433/x",
    "{scheme}://me:{password}@db:5433/x?sslmode=verify-full&sslrootcert=/ca.pem",
    "{scheme}://me:{password}@db1:5433,db2:5434/x?target_session_attrs=read-write",
    "{scheme}://:{password}@db/x",
    "{scheme}://db/x?user=me&password={password}",
    "{scheme}://db/x?password={password}&sslmode=require",
    "{scheme}://me@db/x?password={password}",
    "{scheme}://me:{password}@db/x?password={password}",
    "{scheme}://db/x?sslcert=/c.pem&sslpassword={password}",
    "{scheme}://db/x?passfile=/{password}",
    "{scheme}:///x?host=/run/db&password={password}",
    "{scheme}://me:{password}@db:port/x",
]
SCHEMES = ["postgresql", "postgres", "postgresql+asyncpg", "mysql"]
URLS = [
    shape.format(scheme=scheme, password=password)
    for scheme, shape, password in itertools.product(SCHEMES, SHAPES, PASSWORDS)
]


@pytest.mark.parametrize("url", URLS)
def test_no_piece_of_a_password_is_shown(url: str) -> None:
    for text in (
        shown(url),
        without_credentials(url),
        without_credentials(repr(url)),
        without_credentials(f"store: {url}: refused"),
        without_credentials(shown(url)),
    ):
        assert "Hunter" not in text
        assert "Two" not in text


@pytest.mark.parametrize("mark", ["", "@", "/", "?", "#", ":", "%40"])
def test_where_the_database_is_stays_readable(mark: str) -> None:
    url = f"postgresql://me:Hunter{mark}Two@db1:5433,[::1]:5434/x?sslmode=require"

    assert shown(url) == "postgresql://db1:5433,[::1]:5434/x"
    assert shown("postgresql://db/x?user=me&password=secret") == "postgresql://db/x"


@pytest.mark.parametrize("text", ["me:Hunter@db", "postgresql:me:Hunter@db/x", "host=db password=Hunter"])
def test_what_is_no_url_is_shown_only_when_it_holds_no_login(text: str) -> None:
    assert "Hunter" not in shown(text)
    assert shown("shop.db") == "shop.db"


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////var/lib/two@phase.db",
        "http://127.0.0.1:8080/in?gid=a@b",
        "http://bank-b/in/a@b",
        "GET http://[::1]:80/in failed: connect: refused",
    ],
)
def test_other_urls_are_left_alone(text: str) -> None:
    assert without_credentials(text) == text


def test_logins_of_other_urls_are_left_out() -> None:
    assert without_credentials("http://u:Hunter/Two@bank/in") == "http://***@bank/in"
    assert without_credentials("https://token@bank/in") == "https://***@bank/in"


@pytest.mark.parametrize(
    ("said", "is_shown"),
    [
        ("me:hush@db1/twophase", "…"),
        ("db1/twophase?password=hush", "…"),
        ("twophase.db", "twophase.db"),
        ("sqlite:///file.db", "sqlite:///file.db"),
    ],
)
def test_what_is_no_database_s_url_is_shown_only_when_nothing_in_it_can_be_a_password(said: str, is_shown: str) -> None:
    assert shown(said) == is_shown


def test_text_without_a_url_keeps_no_password_either() -> None:
    assert without_credentials("cannot connect: password=hush was refused") == (
        "cannot connect: password=*** was refused"
    )


def test_a_secret_is_looked_up_where_its_reference_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_text("of the file\n")
    monkeypatch.setenv("BANK_KEY", " of the environment ")
    references = ("env:BANK_KEY", f"file:{tmp_path / 'key'}", "plain")
    assert [secret_of(text) for text in references] == ["of the environment", "of the file", "plain"]
    assert [is_reference(text) for text in references] == [True, True, False]


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), (b"\xff\xfe", "it is no text"), (b" \n", "nothing in it"), (b"s" * 8193, "longer than")],
)
def test_a_secret_that_is_missing_is_an_error_that_names_the_reference(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.touch(mode=0o600)
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=why) as raised:
        secret_of(f"file:{file}")
    assert str(file) in raised.value.message
    assert "sss" not in raised.value.message


def test_a_secret_in_a_file_that_every_user_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("hunter2")
    for mode, refused in ((0o644, True), (0o602, True), (0o640, False), (0o600, False)):
        file.chmod(mode)
        if not refused:
            assert secret_of(f"file:{file}") == "hunter2"
            continue
        with pytest.raises(ConfigurationError, match=f"every user of this machine.*{mode:04o}") as raised:
            secret_of(f"file:{file}")
        assert "hunter2" not in str(raised.value)


def test_an_empty_or_missing_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_KEY", "")
    for reference in ("env:BANK_KEY", "env:NO_SUCH_VARIABLE", "env:"):
        with pytest.raises(ConfigurationError, match=reference):
            secret_of(reference)


@pytest.mark.parametrize(
    ("url", "holds"),
    [
        ("postgresql://me:tiger@db/pay", True),
        ("postgresql://me:ti/g@er@db/pay", True),
        ("postgresql://me:1234@db/pay", True),
        ("redis://:tiger@cache:6379/0", True),
        ("postgresql://db/pay?sslmode=require&password=tiger", True),
        ("postgresql://me@db:5432/pay?user=me", False),
        ("postgresql://me@[::1]:5432/pay", False),
        ("redis://cache:6379/0", False),
        ("sqlite:///pay.db", False),
    ],
)
def test_a_password_in_a_url_is_found(url: str, *, holds: bool) -> None:
    assert holds_password(url) is holds


@pytest.mark.parametrize("unit", ["://a:", "://", "://a:a", "a://[", "://a:1/"])
@pytest.mark.parametrize(("before", "after"), [("", ""), ("@ ", " @"), ("://a:b@", "")])
def test_logins_are_looked_for_in_linear_time(before: str, unit: str, after: str) -> None:
    """At these lengths the square of the time would be minutes."""
    text = before + unit * (300_000 // len(unit)) + after
    began = time.process_time()
    without_credentials(text)
    holds_password(text)
    assert time.process_time() - began < 5
