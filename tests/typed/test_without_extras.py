"""The types for an application without any of the database libraries."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
APPLICATION: Final = """
import sqlite3
from typing import assert_type

from twophase import Message
from twophase.barrier import once
from twophase.client.transaction import Transaction


def check(message: Message, bank: sqlite3.Connection, thing: object) -> None:
    assert_type(message.transaction(bank, "http://a/check"), Transaction[sqlite3.Connection])
    assert_type(once(bank, {}, lambda connection: connection.total_changes), int | None)
    message.transaction(thing, "http://a/check")  # type: ignore[call-overload]
    once(thing, {}, print)  # type: ignore[call-overload]
"""


def test_engines_have_types_where_no_database_library_is_installed(tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    options = ["--strict", "--no-site-packages", "--follow-imports=silent", "--config-file="]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "application.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
