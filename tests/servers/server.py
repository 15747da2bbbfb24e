"""The common part of the database servers for tests.

It has a directory, a private port, a guardian, and databases by name. A started server is described by an `Address`,
which travels as JSON to the other processes of the run.
"""

from __future__ import annotations

import abc
import errno
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import ClassVar

import msgspec

from benchmarks.servers.ports import KeptPort
from tests.servers import guardian
from tests.servers.database import Address, Database

START_SECONDS = 60
_PORT_TRIES = 5


class ServerUnavailable(Exception):
    """A server that this machine cannot run; the text names the cause and the remedy."""


class DatabaseServer(abc.ABC):
    """One private server of one kind: a context manager, also with `start` and `stop`.

    Arguments:
        directory: where a directory of its own is made, which other users must be able to reach;
            None for a new one in the temporary directory. Keep it short: a socket's path has 107 bytes.
        watched_pid: the process with whose end the server ends; None for this one.
    """

    kind: ClassVar[str]
    part: ClassVar[str]
    own_database: ClassVar[str]
    system_users: ClassVar[tuple[str, ...]]

    def __init__(self, directory: Path | None = None, watched_pid: int | None = None) -> None:
        self._parent = directory
        self._watched_pid = watched_pid or os.getpid()
        self._address: Address | None = None
        self._port: KeptPort | None = None

    def __enter__(self) -> DatabaseServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> Address:
        """Return the address of the running server."""
        assert self._address is not None, "the server was started"
        return self._address

    @property
    def url(self) -> str:
        """Return the server's own database as a URL."""
        return self.dsn(self.address.own_database)

    def dsn(self, name: str) -> str:
        """Return the URL of the database `name`, in the form of the server's own tools."""
        address = self.address
        return f"{self.kind}://{address.user}:{address.password}@{address.host}:{address.port}/{name}"

    def database(self, name: str) -> Database:
        """Return the database `name`, which exists already."""
        return Database(self.address, name)

    def attach(self, address: Address) -> DatabaseServer:
        """Use a server that another process of this run has started."""
        self._address = address
        return self

    def start(self) -> None:
        """Make the data directory, start the server and wait until it answers.

        Raises:
            ServerUnavailable: it is not installed, or it does not start.
        """
        self.find_programs()
        parent = self._parent or Path(tempfile.mkdtemp(prefix="twophase-", dir=short_temporary_directory()))
        parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        parent.chmod(0o711)
        for _ in range(_PORT_TRIES):
            directory = parent / self.kind
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(mode=0o700)
            user = self._give_to_system_user(directory)
            self._port = KeptPort()
            address = Address(
                kind=self.kind,
                host="127.0.0.1",
                port=self._port.number,
                user="twophase",
                password=secrets.token_hex(8),
                own_database=self.own_database,
                directory=str(directory),
                guardian_pid=0,
            )
            self.make_data(directory, address, user)
            address = msgspec.structs.replace(address, guardian_pid=self._start_guardian(directory, user, address))
            if self._answers(directory, address):
                self._address = address
                return
        log = parent / f"{self.kind}.{guardian.LOG_NAME}"
        raise ServerUnavailable(
            f"it was started {_PORT_TRIES} times and never answered; see the end of its log:\n{tail(log)}"
        )

    def stop(self) -> None:
        """Stop the server and remove its directory; safe to call twice."""
        if self._port is not None:
            self._port.release()
        if self._address is None:
            return
        directory = Path(self._address.directory)
        stop_guardian(self._address)
        if self._parent is None:
            shutil.rmtree(directory.parent, ignore_errors=True)
        self._address = None

    def crash(self) -> None:
        """Kill every process of the server, as when its machine goes down.

        Its data stays. Returns when the server has ended.
        """
        self._go_down(signal.SIGUSR1)

    def shut_down(self) -> None:
        """Shut the server down as its operator would.

        Its data stays. Returns when the server has ended.
        """
        self._go_down(signal.SIGHUP)

    def restart(self) -> None:
        """Start the server again after `crash` or `shut_down`.

        Data and port are the same. Returns when it answers.
        """
        os.kill(self.address.guardian_pid, signal.SIGUSR2)
        directory = Path(self.address.directory)
        if not self._answers(directory, self.address):
            log = directory.parent / f"{self.kind}.{guardian.LOG_NAME}"
            raise ServerUnavailable(f"it did not come back; see the end of its log:\n{tail(log)}")

    def _go_down(self, number: signal.Signals) -> None:
        os.kill(self.address.guardian_pid, number)
        pause = threading.Event()
        for _ in range(START_SECONDS * 50):
            with socket.socket() as probe:
                if probe.connect_ex((self.address.host, self.address.port)) == errno.ECONNREFUSED:
                    return
            pause.wait(0.02)
        raise ServerUnavailable(f"{self.part} does not go down")

    @abc.abstractmethod
    def find_programs(self) -> None:
        """Find the programs that are needed; raises ServerUnavailable."""

    @abc.abstractmethod
    def make_data(self, directory: Path, address: Address, user: str) -> None:
        """Fill the server's empty directory."""

    @abc.abstractmethod
    def command(self, directory: Path, address: Address) -> list[str]:
        """Return the command that starts the server in the foreground."""

    @abc.abstractmethod
    def try_connection(self, address: Address) -> bool:
        """Return True when the server answers a query to the tests' user."""

    @abc.abstractmethod
    def create_database(self, name: str) -> Database:
        """Make an empty database."""

    @abc.abstractmethod
    def drop_database(self, name: str) -> None:
        """Remove a database, whichever sessions are still connected to it."""

    def run_as(self, user: str, command: list[str], directory: Path) -> None:
        """Run a preparing program to its end, as the system user of the server."""
        done = subprocess.run(
            command,
            cwd=directory,
            user=user or None,
            group=directory.stat().st_gid if user else None,
            extra_groups=[] if user else None,
            env={
                "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin",
                "LC_ALL": "C",
                "HOME": str(directory),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerUnavailable(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-800:]}")

    def _give_to_system_user(self, directory: Path) -> str:
        """Give the directory to a system user when the tests run as root.

        The servers refuse to run as root. An empty result: run as the present user.
        """
        if os.geteuid() != 0:
            return ""
        for name in (*self.system_users, "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            os.chown(directory, entry.pw_uid, entry.pw_gid)
            return name
        raise ServerUnavailable(f"running as root, and there is no user {' or '.join(self.system_users)} or nobody")

    def _start_guardian(self, directory: Path, user: str, address: Address) -> int:
        command = [sys.executable, guardian.__file__, str(self._watched_pid), str(directory), user]
        done = subprocess.run([*command, *self.command(directory, address)], capture_output=True, text=True, check=True)
        return int(done.stdout)

    def _answers(self, directory: Path, address: Address) -> bool:
        """Wait until the server answers; return False when it ended instead.

        Its port may have been taken in between, for example.
        """
        pause = threading.Event()
        for _ in range(START_SECONDS * 10):
            if self.try_connection(address):
                return True
            if not directory.exists():
                return False
            pause.wait(0.1)
        stop_guardian(address)
        return False


def stop_guardian(address: Address) -> None:
    """Ask a server's guardian to stop it, and wait until it has removed the directory."""
    directory = Path(address.directory)
    try:
        os.kill(address.guardian_pid, signal.SIGTERM)
    except ProcessLookupError:
        shutil.rmtree(directory, ignore_errors=True)
        return
    pause = threading.Event()
    for _ in range(900):  # 45 s, more than the guardian takes
        if not directory.exists():
            return
        pause.wait(0.05)


def short_temporary_directory() -> str:
    """Return the temporary directory, or another one where it is unsuitable.

    It may be too deep for a socket, or closed to the system users.
    """
    wanted = Path(tempfile.gettempdir())
    reachable = all(step.stat().st_mode & 0o001 for step in (wanted, *wanted.parents))
    return str(wanted) if reachable and len(str(wanted)) < 40 else "/tmp"


def tail(path: Path, characters: int = 1500) -> str:
    """Return the end of a log."""
    return path.read_text(errors="replace")[-characters:] if path.exists() else "(no log)"
