"""A directory on a disk that can lose its power.

It then holds what was synced and nothing else. `disk.c` is loaded into the processes that write there. Killed alone, a
process loses nothing: the system still has what it wrote. Here that is lost as well, so a test notices a commit that
was acknowledged before it was synced.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.servers.missing import not_tested

_SOURCE = Path(__file__).with_name("disk.c")
_FLAGS = ("-shared", "-fPIC", "-O2", "-Wno-format-truncation")


class Disk:
    """A disk below one directory; its first content is durable.

    Arguments:
        root: the directory, made before; without symbolic links in its path.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._shadow = root.with_name(f"{root.name}.shadow")
        self._library = root.with_name(f"{root.name}.so")
        _compile(self._library)
        self._begin()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the processes that write on this disk."""
        return {
            "LD_PRELOAD": str(self._library),
            "POWER_ROOT": str(self.root),
            "POWER_SHADOW": str(self._shadow),
        }

    def lose_power(self, kill: Callable[[], None]) -> None:
        """Leave in the directory what was synced.

        `kill` ends, by SIGKILL, every process that writes there.
        """
        with (self._shadow / "power").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # nothing is synced from now on, and nothing is half synced
            kill()
        shutil.rmtree(self.root)
        (self._shadow / "tree").rename(self.root)
        shutil.rmtree(self._shadow)
        self._begin()

    def _begin(self) -> None:
        for folder in (self._shadow, self._shadow / "inodes", self._shadow / "held", self._shadow / "tree"):
            folder.mkdir(mode=0o700)
        (self._shadow / "power").touch()
        for path in sorted(self.root.rglob("*")):
            durable = self._shadow / "tree" / path.relative_to(self.root)
            if path.is_dir():
                durable.mkdir(mode=0o700)
            else:
                inode = self._shadow / "inodes" / str(path.stat().st_ino)
                shutil.copyfile(path, inode)
                inode.chmod(0o600)
                durable.hardlink_to(inode)
        self._give_to_owner()

    def _give_to_owner(self) -> None:
        owner = self.root.stat()
        for path in (self._shadow, *self._shadow.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)


def _compile(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        not_tested("a loss of power", "there is no C compiler (cc) to make the disk with; install one")
    subprocess.run([compiler, *_FLAGS, "-o", str(library), str(_SOURCE)], check=True, capture_output=True)
    library.chmod(0o755)
