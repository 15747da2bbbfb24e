"""The machine that a figure was measured on; without it a figure means nothing."""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from benchmarks.measure import interpreter

_SHOWN = ("twophase", "uvloop", "httptools", "msgspec", "uvicorn", "asyncpg")


class Machine(msgspec.Struct, frozen=True):
    """Processor, memory, systems and versions."""

    processor: str
    cpus: int
    memory_gb: float
    system: str
    python: str
    sqlite: str
    packages: dict[str, str]

    def line(self) -> str:
        """Return one line of text for people."""
        return (
            f"{self.cpus} × {self.processor}, {self.memory_gb:.0f} GB, {self.system}, "
            f"Python {self.python}, SQLite {self.sqlite}"
        )


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    packages = {}
    for name in _SHOWN:
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        _processor(),
        os.cpu_count() or 1,
        memory_bytes / 1e9,
        f"{platform.system()} {platform.release()}",
        interpreter(),
        sqlite3.sqlite_version,
        packages,
    )


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
