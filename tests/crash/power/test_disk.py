"""The disk itself: the content after a loss of power."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.power.disk import Disk

pytestmark = pytest.mark.crash

WRITER = """
import os, sys
os.chdir(sys.argv[1])

def write(name, text, sync=True):
    with open(name, "w") as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())

def sync_directory():
    number = os.open(".", os.O_RDONLY)
    os.fsync(number)
    os.close(number)

write("synced", "1")
write("written_again", "1")
write("written_again", "2", sync=False)
write("only_written", "1", sync=False)
write("removed", "1")
write("removed_for_good", "1")
write("moved", "1")
write("moved_for_good", "1")
os.unlink("removed_for_good")
os.rename("moved_for_good", "moved_here")
sync_directory()
os.unlink("removed")
os.rename("moved", "moved_there")
write("new_in_its_place", "another file, with the inode of none before")
print("done", flush=True)
sys.stdin.read()
"""


def test_after_a_loss_of_power_there_is_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "data"
    root.mkdir()
    (root / "from_before").write_text("1")
    disk = Disk(root)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)],
        env={**os.environ, **disk.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"done\n"
        disk.lose_power(writer.kill)

    assert {path.name: path.read_text() for path in root.iterdir()} == {
        "from_before": "1",
        "synced": "1",
        "written_again": "1",
        "only_written": "",  # the directory was synced, and the file was not
        "removed": "1",
        "moved": "1",
        "moved_here": "1",
        "new_in_its_place": "another file, with the inode of none before",
    }
