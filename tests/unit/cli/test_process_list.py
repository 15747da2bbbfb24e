"""A secret on the command line is warned of, and not shown."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from twophase.cli.process_list import warnings

SECRET = "tiger-4711"
_MAIN = "from twophase.cli.app import main; main()"
_STORE = f"postgresql://me:{SECRET}@127.0.0.1:1/pay"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("server", "--store", _STORE, "--workers", "0"), "--store env:NAME or file:PATH"),
        (("server", f"--store={_STORE}", "--workers", "0"), "--store env:NAME or file:PATH"),
        (("server", "--set", f"store={_STORE}", "--workers", "0"), "--set store=env:NAME or file:PATH"),
        (
            ("server", "--set", f"alert_webhook=https://hooks.test/{SECRET}", "--workers", "0"),
            "--set alert_webhook=env:NAME or file:PATH",
        ),
        (("migrate", "--store", _STORE), "--store env:NAME or file:PATH"),
        (("barrier", "install", _STORE), "write env:NAME or file:PATH"),
        (("barrier", "install", "--print", f"postgresql://127.0.0.1:1/pay?password={SECRET}"), "write env:NAME"),
        (("doctor", "--database", _STORE), "--database env:NAME or file:PATH"),
        (("import", "dtm", f"redis://:{SECRET}@127.0.0.1:1/0"), "write env:NAME or file:PATH"),
    ],
)
def test_a_command_warns_of_a_secret_among_its_arguments_once(arguments: tuple[str, ...], named: str) -> None:
    command = [sys.executable, "-c", _MAIN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": os.defpath}, check=False)

    warned = [line for line in done.stderr.splitlines() if line.startswith("warning: every user of this machine")]
    assert len(warned) == 1
    assert named in warned[0]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("server", "--store", "env:STORE"),
        ("server", "--store", "postgresql://me@[::1]:5432/pay?user=x"),
        ("server", "--set", "alert_webhook=file:hook", "--set", "retry_cap_ms=10"),
        ("server", "--set", "alert_webhook=http://alerts:9000/"),
        ("import", "dtm", "redis://cache:6379/0", "--prefix", "{a}"),
        ("status", "--server", "http://pay:36789"),
    ],
)
def test_no_warning_is_given_without_a_secret(arguments: tuple[str, ...]) -> None:
    assert not list(warnings(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--coordinator", _STORE),
        ("--producer", f"bank-a={_STORE}#pay.barrier"),
        (f"--ledger=bank-b=mysql://me:{SECRET}@db/bank#ledger?gid=gid",),
    ],
)
def test_a_location_of_an_audit_is_warned_of(arguments: tuple[str, ...]) -> None:
    (warning,) = warnings(("spark", "audit", *arguments))
    assert "write env:NAME or file:PATH" in warning
    assert SECRET not in warning


def test_a_webhook_that_cannot_be_read_counts_as_a_secret() -> None:
    assert len(list(warnings(["server", "--set", f"alert_webhook=http://[{SECRET}"]))) == 1
