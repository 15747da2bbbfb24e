"""A PostgreSQL of the benchmark's own, removed after the run.

It has stock settings, fsync on, and a private port. A figure from a tuned database would not be the one that a reader
gets. Only the number of connections is raised, which costs nothing until they are used.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.servers.ports import KeptPort
from benchmarks.servers.processes import Process
from benchmarks.servers.started import directory_on_disk, environment, stop
from twophase.core.errors import ConfigurationError

USER: Final = "twophase"
_START_S: Final = 30.0
_POLL_S: Final = 0.05
_SETTINGS: Final = ("fsync=on", "synchronous_commit=on", "full_page_writes=on", "max_connections=200")
_INSTALL: Final = "Install PostgreSQL's server programs (Debian: apt-get install postgresql), or give --server URL."


class Postgres(msgspec.Struct, frozen=True):
    """A running PostgreSQL."""

    port: int
    process: Process
    programs: Path

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Make an empty database. Returns its URL."""
        where = ["--host=127.0.0.1", f"--port={self.port}", f"--username={USER}"]
        _run([str(self.programs / "createdb"), *where, database], None)
        return self.url(database)

    def execute(self, database: str, statement: str) -> None:
        """Run SQL that seeds."""
        where = ["--host=127.0.0.1", f"--port={self.port}", f"--username={USER}", f"--dbname={database}"]
        options = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--command={statement}"]
        _run([str(self.programs / "psql"), *where, *options], None)


@contextlib.contextmanager
def postgres(parent: Path | None = None) -> Iterator[Postgres]:
    """A PostgreSQL in a temporary directory.

    Raises:
        ConfigurationError: it is not installed, or does not start.
    """
    programs = _programs()
    with directory_on_disk(parent) as directory:
        account = _account(directory)
        data = directory / "data"
        options = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={USER}"]
        _run([str(programs / "initdb"), f"--pgdata={data}", *options], account)
        kept = KeptPort()
        here = ("listen_addresses=127.0.0.1", f"port={kept.number}", f"unix_socket_directories={directory}")
        command = [str(programs / "postgres"), "-D", str(data), *(f"--{setting}" for setting in (*_SETTINGS, *here))]
        log = directory / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=environment(),
                start_new_session=True,  # Ctrl-C is for this process, which then ends the database
                cwd=directory,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
            )
        try:
            _wait(programs, kept.number, process, log)
            yield Postgres(kept.number, Process("database", process.pid), programs)
        finally:
            stop(process, signal.SIGINT)  # a fast shutdown; SIGTERM would wait for clients


def _wait(programs: Path, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    ends_s = time.monotonic() + _START_S
    ready = [str(programs / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={port}"]
    while subprocess.run(ready, check=False).returncode:
        if process.poll() is not None or time.monotonic() > ends_s:
            said = log.read_text(errors="replace")[-800:].strip()
            raise ConfigurationError(f"PostgreSQL did not start: {said}", remedy=_INSTALL)
        time.sleep(_POLL_S)


def postgres_version() -> str:
    """Return the version of the server programs that `postgres` starts.

    It is the text that they print, such as `15.6`; empty when no programs are installed.
    """
    try:
        program = _programs() / "postgres"
    except ConfigurationError:
        return ""
    said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False, cwd="/").stdout
    return next((word for word in said.split() if word[0].isdigit()), "")


def _programs() -> Path:
    """Return the folder of the newest server programs."""
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]), reverse=True
    )
    in_path = shutil.which("postgres")
    for program in [*installed, *([Path(in_path).resolve()] if in_path else [])]:
        if (program.parent / "initdb").exists():
            return program.parent
    raise ConfigurationError("--setup postgres: PostgreSQL is not installed.", remedy=_INSTALL)


def _account(directory: Path) -> pwd.struct_passwd | None:
    """Return the account for PostgreSQL, which refuses to run as root.

    When this process runs as root, the directory is handed to that account.
    """
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(name)
            os.chown(directory, account.pw_uid, account.pw_gid)
            return account
    raise ConfigurationError("--setup postgres: running as root, and there is no account to run it as.")


def _run(command: list[str], account: pwd.struct_passwd | None) -> None:
    done = subprocess.run(
        command,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-800:]
        raise ConfigurationError(f"{Path(command[0]).name} failed: {said}", remedy=_INSTALL)
