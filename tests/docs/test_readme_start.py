"""README's first message, as it stands there.

It needs a database file and a coordinator, and no service yet. Only the address of bank B is another one: at README's,
any server of this machine may answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, examples
from tests.support.recording_coordinator import unused_url
from twophase.barrier import install
from twophase.core.lifecycle import State
from twophase.testing import InProcessCoordinator

_PROGRAM = examples(ROOT / "README.md")["start"]
_BANK_B = "http://localhost:8002/"


def test_first_message_is_committed_and_waits_for_bank_b(
    tmp_path: Path, twophase_coordinator: InProcessCoordinator
) -> None:
    install(f"sqlite:///{tmp_path / 'bank.db'}")
    assert _BANK_B in _PROGRAM
    (tmp_path / "transfer.py").write_text(_PROGRAM.replace(_BANK_B, f"{unused_url()}/"))
    port = twophase_coordinator.url.rpartition(":")[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        "NAMED_HOSTS": json.dumps({"localhost:36789": int(port)}),
    }

    command = [sys.executable, "-m", "tests.docs.named_hosts", "transfer"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert twophase_coordinator.state(done.stdout.strip()) is State.SUBMITTED
    with contextlib.closing(sqlite3.connect(tmp_path / "bank.db")) as connection:
        assert connection.execute("select balance from account").fetchall() == [(70,)]
