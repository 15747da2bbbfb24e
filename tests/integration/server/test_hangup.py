"""A reload, SIGHUP, right behind the start of a server does not end it.

systemd takes an end by this signal for a clean one, and would not start the server again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.database import Database
from tests.support import server_process
from tests.support.server_process import serving

_WHILE_IT_IMPORTS = """
import os, signal, sys

class Reload:
    def find_spec(self, name, path=None, target=None):
        if name == "twophase.server.settings":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, Reload())
sys.argv[0] = "twophase"
from twophase.cli.entry import main
main()
"""
_WHILE_A_WORKER_STARTS = """
import os, signal, sys

if "twophase.server.workers" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGHUP)
"""


async def test_a_server_that_imports_its_modules_outlives_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_process, "_MAIN", _WHILE_IT_IMPORTS)
    async with serving(tmp_path) as server:
        assert (await server.terminate())[0] == 0


@pytest.mark.postgres
async def test_a_worker_that_starts_outlives_a_reload_of_all_processes(
    tmp_path: Path, postgres_database: Database
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_WHILE_A_WORKER_STARTS)
    arguments = ("--workers", "2", "--store", postgres_database.dsn)
    async with serving(tmp_path, *arguments, environment={"PYTHONPATH": str(tmp_path)}) as server:
        code, errors = await server.terminate()
    assert (code, "a worker ended" in errors) == (0, False)
