"""Servers started for a run, each in a process of its own.

Promise: they are stopped when the run ends, however it ends. Their data lies in a directory of its own, on a real
disk, and is removed.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.failure import BenchmarkFailed
from benchmarks.servers.processes import SERVER_NAME, Process

_READY_S: Final = 30.0
_STOP_S: Final = 15.0
_SAID_MAX: Final = 1500
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
REPOSITORY: Final = Path(__file__).parents[2]
"""The working directory of `benchmarks` servers: the package is not installed."""


class Scheme(enum.StrEnum):
    """The protocol of a server's address."""

    HTTP = "http"
    GRPC = "grpc"


_PORTS: Final[dict[Scheme, tuple[str, ...]]] = {Scheme.HTTP: (), Scheme.GRPC: ("--grpc-port", "0")}


class Started(msgspec.Struct, frozen=True):
    """A running server: its address, its processes, and its time to readiness."""

    name: str
    url: str
    processes: tuple[Process, ...]
    ready_s: float = 0.0
    business_url: str = ""
    """A database of the applications' own, for transfers; empty without one."""
    urls: tuple[str, ...] = ()
    """All addresses of the ready line."""

    def address_of(self, scheme: str) -> str:
        """Return host and port of its address of another protocol."""
        return next(url.partition("://")[2] for url in self.urls if url.startswith(f"{scheme}://"))


@contextlib.contextmanager
def directory_on_disk(parent: Path | None = None) -> Iterator[Path]:
    """Yield a temporary directory on a disk, not in memory: fsync has an effect there."""
    candidates = [parent] if parent else [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]
    chosen = next(
        (candidate for candidate in candidates if candidate.is_dir() and filesystem(candidate) not in _IN_MEMORY),
        candidates[-1],
    )
    directory = Path(tempfile.mkdtemp(prefix="twophase-bench-", dir=chosen))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def filesystem(path: Path) -> str:
    """Return the type of the file system of a path; empty when it is unknown."""
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split()
            inside = str(path.resolve()) + "/"
            if inside.startswith(mount.rstrip("/") + "/") and len(mount) >= len(best):
                best, kind = mount, found
    return kind


@contextlib.contextmanager
def server(
    name: str, command: Sequence[str], cwd: Path | None = None, scheme: Scheme = Scheme.HTTP
) -> Iterator[Started]:
    """Start a server of twophase's, and stop it afterwards.

    The block begins at the server's ready line. `scheme` chooses one of its addresses,
    with TLS or without.

    Raises:
        BenchmarkFailed: it does not become ready; the text holds its output.
    """
    started_s = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=cwd)
        try:
            line = _ready_line(process)
            wanted = (f"{scheme}://", f"{scheme}s://")
            urls = tuple([word for word in line.split() if "://" in word])
            url = next((word for word in urls if word.startswith(wanted)), "")
            if not url:
                stop(process)
                errors.seek(0)
                said = (line + errors.read().decode("utf-8", "replace"))[-_SAID_MAX:].strip()
                raise BenchmarkFailed(f"the {name} server did not start: {said or 'it said nothing'}", remedy="")
            processes = (Process(SERVER_NAME, process.pid),)
            yield Started(name, url, processes, time.perf_counter() - started_s, urls=urls)
        finally:
            stop(process)


def _ready_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], _READY_S)
    return process.stdout.readline().decode() if readable else ""


def stop(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal to a process; kill it when it does not end. Safe to call twice."""
    process.send_signal(how)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def null_server(scheme: Scheme = Scheme.HTTP) -> Iterator[Started]:
    """Run the server that keeps nothing."""
    command = [sys.executable, "-m", "benchmarks.servers.null", *_PORTS[scheme]]
    with server("null", command, REPOSITORY, scheme) as started:
        yield started


@contextlib.contextmanager
def bare_server() -> Iterator[Started]:
    """Run the server beside which null is measured."""
    with server("bare", [sys.executable, "-m", "benchmarks.servers.bare"], REPOSITORY) as started:
        yield started


@contextlib.contextmanager
def echo_server(module: str = "echo") -> Iterator[Started]:
    """Run a gRPC server that answers each request with its own bytes.

    `module`: `echo`, or `grpcio_echo`.
    """
    with server(module, [sys.executable, "-m", f"benchmarks.servers.{module}"], REPOSITORY, Scheme.GRPC) as started:
        yield started


@contextlib.contextmanager
def coordinator(name: str, store: str, settings: Sequence[str] = (), scheme: Scheme = Scheme.HTTP) -> Iterator[Started]:
    """Run the server on an existing store."""
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "twophase", "server", "--http-port", "0", *_PORTS[scheme], "--log-level", "error"]
    with server(name, [*command, "--store", store, *options], scheme=scheme) as started:
        yield started


def environment() -> dict[str, str]:
    """Return the environment of started programs: this process's, with the C locale."""
    return {**os.environ, "LC_ALL": "C"}
