"""A copy of the checkout, with a virtual environment that imports the copy's code.

The environment has the checkout's packages, but not its editable install: that is named by a .pth file, and a folder
which a .pth file adds is not searched for others. So `twophase` can be found in the copy only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.faults.table import Fault

_LEFT_OUT: Final = frozenset({".git", ".venv", "__pycache__"})
_WHERE: Final = "import twophase, sys; sys.stdout.write(twophase.__file__)"


class WrongCode(Exception):
    """The copy's interpreter imports code from elsewhere: its results say nothing."""


class Tree:
    """One copy.

    Arguments:
        source: the checkout; only read.
        folder: where the copy is made; must not exist yet.

    Raises:
        WrongCode: `twophase` is imported from elsewhere.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        self.root = folder
        self._process: subprocess.Popen[str] | None = None
        for path in files_of(source):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / path, target)
        venv.create(folder / ".venv", symlinks=True)
        self.python = folder / ".venv" / "bin" / "python"
        packages = sysconfig.get_path("purelib")
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        found = folder / ".venv" / "lib" / minor / "site-packages" / "checkout.pth"
        found.write_text(f"{folder / 'src'}\n{packages}\n")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        # A part that is missing on this machine fails its tests: a skipped test notices no fault.
        self.environment["TESTS_REQUIRE"] = "all"
        self._require_own_code()

    def _require_own_code(self) -> None:
        for options in ([], ["-I"]):
            asked = [str(self.python), *options, "-c", _WHERE]
            done = subprocess.run(asked, cwd="/", env=self.environment, capture_output=True, text=True, check=False)
            if done.returncode or not Path(done.stdout).resolve().is_relative_to(self.root.resolve()):
                found = done.stdout or done.stderr.rstrip().rpartition("\n")[2]
                raise WrongCode(f"{' '.join(asked[:-1])} does not import the copy's code: {found}")

    def start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Start a program in the copy, with a session of its own."""
        self._process = subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        return self._process

    def abandon(self) -> None:
        """End the program that was started last, and what it has started in its session."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """Plant a fault; take it out again at the end."""
        path = self.root / fault.file
        before = path.read_text()
        assert before.count(fault.text) == 1, "it was compared with the code before"
        self._write(path, before.replace(fault.text, fault.instead))
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        """Write, and drop the bytecode: Python compares sources by size and second only."""
        path.write_text(text)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()


def files_of(root: Path) -> list[Path]:
    """The files of a checkout, uncommitted ones too, without those that git ignores."""
    if (root / ".git").exists():
        told = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            stdout=subprocess.PIPE,
            check=True,
        )
        names = [Path(os.fsdecode(name)) for name in told.stdout.split(b"\0") if name]
    else:
        names = [path.relative_to(root) for path in root.rglob("*")]
    return sorted(name for name in set(names) if not _LEFT_OUT.intersection(name.parts) and (root / name).is_file())
