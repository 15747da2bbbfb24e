"""A disk of a test's own, small enough to be filled.

It can also become read-only.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.missing import not_tested


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a disk on `folder`, which is created.

    Where that is not allowed, the summary names it.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        not_tested("a small disk", "only root may mount one; run the tests as root in a container that may mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(disk: Path, option: str) -> None:
    """Change a mount option, such as `ro` or `size=…`."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte free; return the file that takes the space."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(64 * 1024)):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk has no end")
