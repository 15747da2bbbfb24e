"""CPU and memory of process trees on this machine, from the kernel's accounts.

They are read from /proc. Memory is the proportional set size where the kernel reports it: pages that the processes of
a database share count once. Elsewhere (another user's processes, another system) it is the resident size, or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_LISTEN = "0A"
OWN_NAME = "generator + sink"
SERVER_NAME = "server"


class Process(msgspec.Struct, frozen=True):
    """The root of a process tree, and its name in the report."""

    name: str
    pid: int


class Reading(msgspec.Struct, frozen=True):
    """The account of one process tree at one moment."""

    name: str
    at_s: float
    cpu_s: float
    memory_bytes: int
    kernel_s: float = 0.0
    """The part of `cpu_s` that the kernel spent."""


class Meter:
    """Reads this process, called `own_name`, and the given trees."""

    def __init__(self, processes: Sequence[Process], own_name: str = OWN_NAME) -> None:
        self._own_name = own_name
        self._processes = [process for process in processes if (_PROC / str(process.pid)).exists()]

    def read(self) -> list[Reading]:
        """Return one reading of each."""
        at_s, kernel_s = time.perf_counter(), os.times().system
        own = Reading(self._own_name, at_s, time.process_time(), memory_bytes(os.getpid()), kernel_s)
        return [own, *(self._read(process) for process in self._processes)]

    def _read(self, process: Process) -> Reading:
        pids = list(tree(process.pid))
        at_s = time.perf_counter()
        # Children that have ended are in the accounts of their parents.
        times = [_times(pid) for pid in pids]
        work_s, kernel_s = sum(map(sum, times)), sum(kernel_s for _, kernel_s in times)
        return Reading(process.name, at_s, work_s, sum(map(memory_bytes, pids)), kernel_s)


def machine_cpu_s() -> float:
    """Return the seconds of work of all processors since the start.

    It is 0 where the kernel does not report them.
    """
    with contextlib.suppress(OSError):
        fields = [int(field) for field in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:]]
        user, nice, system, _idle, _waiting, *interrupts = fields[:8]
        return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def cpu_s(pid: int) -> float:
    """Return the seconds of work of a process and of its ended children.

    It is 0 when the process is gone.
    """
    return sum(_times(pid))


def _times(pid: int) -> tuple[float, float]:
    """Return the seconds outside the kernel and in it; ended children count."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    outside, kernel, childrens, childrens_kernel = map(int, fields[11:15])
    ticks = os.sysconf("SC_CLK_TCK")
    return (outside + childrens) / ticks, (kernel + childrens_kernel) / ticks


def tree(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants."""
    yield pid
    for task in (_PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                yield from tree(int(child))


def memory_bytes(pid: int) -> int:
    """Return the memory of one process; 0 when it is unknown."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(OSError):
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def listening(port: int) -> int | None:
    """Return the process of this machine that listens on a TCP port.

    Without such a process, or when this user may not see it, the result is empty (None).
    """
    wanted = {row.inode for row in _sockets() if row.listens and row.port == port}
    if not wanted:
        return None
    # A server's children may hold the same socket: the oldest is the root of the tree.
    return min((pid for pid in _pids() if wanted & _inodes(pid)), default=None)


def connected_to(pid: int) -> list[int]:
    """Return the local processes to which a process has TCP connections.

    Its databases are among them, for example.
    """
    own = _inodes(pid)
    ports = {row.other_port for row in _sockets() if row.inode in own and not row.listens}
    found = {listening(port) for port in ports & {row.port for row in _sockets() if row.listens}}
    return sorted(one for one in found if one is not None and one not in {pid, os.getpid()})


class _Socket(msgspec.Struct, frozen=True):
    """One line of the kernel's table of TCP sockets."""

    inode: str
    port: int
    other_port: int
    listens: bool


def _sockets() -> Iterator[_Socket]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                port, other = (int(field.rpartition(":")[2], 16) for field in fields[1:3])
                yield _Socket(fields[9], port, other, fields[3] == _LISTEN)


def _pids() -> Iterator[int]:
    return (int(directory.name) for directory in _PROC.glob("[0-9]*"))


def _inodes(pid: int) -> set[str]:
    """Return the open sockets of a process; empty when this user may not see them."""
    inodes = set()
    with contextlib.suppress(OSError):
        for file in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(file.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return inodes


async def highest_memory_mb(process: Process) -> float:
    """Watch a process until cancelled; return its highest memory."""
    highest = 0
    try:
        while True:
            highest = max(highest, memory_bytes(process.pid))
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        return highest / 1e6
