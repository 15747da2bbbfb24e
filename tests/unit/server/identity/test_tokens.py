"""The file of tokens: what is refused, and how it is written."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from twophase.core.errors import ConfigurationError
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Quota, Token, changing, digest_of, fresh_token, read_tokens

ORDERS = Token(
    "orders",
    (Scope.PRODUCE, Scope.OBSERVE),
    digest_of("tp_1"),
    ("orders.internal",),
    "o-",
    ('http://b/in?"x"',),
    Quota(1, 2, 3),
)


def _write(folder: Path, text: str) -> Path:
    file = folder / "tokens.toml"
    file.write_text(text)
    file.chmod(0o600)
    return file


def _entry(**fields: str) -> str:
    known = {"name": '"a"', "sha256": f'"{digest_of("x")}"', "scopes": '["produce"]'} | fields
    return "[[token]]\n" + "".join(f"{name} = {value}\n" for name, value in known.items() if value)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    plain = Token("stock", (Scope.TOPICS,), digest_of("tp_2"))
    with changing(file) as entries:
        entries += [ORDERS, plain]
    assert read_tokens(file) == (ORDERS, plain)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.toml"]


def test_a_token_is_new_each_time_and_fits_into_a_url() -> None:
    first, second = fresh_token(), fresh_token()
    assert first != second
    assert len(first) >= 43
    assert first.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[token]]\n", "missing required field"),
        ("nonsense", "not a file of tokens"),
        (_entry(colour='"red"'), "colour"),
        (_entry(scopes='["everything"]'), "everything"),
        (_entry(scopes="[]"), "has no scope"),
        (_entry(name='"a b"'), "name 'a b'"),
        (_entry(sha256='"ab"'), "not 64 hexadecimal digits"),
        (_entry(sha256=""), "neither sha256 nor san"),
        (_entry() + _entry(name='"b"'), "two entries have one sha256"),
        (_entry(san='["pay.internal"]') + _entry(sha256='""', san='["Pay.internal"]'), "one san"),
        (_entry(gid_prefix='"\\u0007"'), "unprintable"),
        (_entry() + "[token.quota]\nrequests_per_s = 0\n", ">= 1"),
        (_entry() + _entry(sha256=f'"{digest_of("y")}"') + "[token.quota]\nrequests_per_s = 1\n", "different quotas"),
    ],
)
def test_an_entry_that_cannot_work_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_tokens(_write(tmp_path, text))


def test_a_pipe_is_refused_and_nobody_waits_for_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    os.mkfifo(file, 0o600)
    with pytest.raises(ConfigurationError, match="not a regular file"):
        read_tokens(file)


def test_an_entry_that_cannot_work_is_not_written(tmp_path: Path) -> None:
    file = _write(tmp_path, _entry())
    before = file.read_bytes()
    with pytest.raises(ConfigurationError, match="has no scope"), changing(file) as entries:
        entries.append(Token("b", (), digest_of("y")))
    assert file.read_bytes() == before


def test_a_file_that_others_may_read_is_not_changed(tmp_path: Path) -> None:
    file = _write(tmp_path, _entry())
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="others may read"), changing(file) as entries:
        entries.clear()


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"

    def add(number: int) -> None:
        with changing(file) as entries:
            entries.append(Token(f"client-{number}", (Scope.PRODUCE,), digest_of(str(number))))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {token.name for token in read_tokens(file)} == {f"client-{number}" for number in range(8)}
