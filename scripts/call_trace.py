"""Trace three requests at run time, and count their changes of file.

`scripts/trace` prints a table, `--route` the ordered files as well, `--json` everything as JSON. The figures may not
grow: `scripts/trace.toml` holds the largest that are allowed, `--check` compares, `--update` lowers them.

What is traced:

* prepare: one `POST /api/dtmsvr/prepare` on a connection kept open, from the socket until the coordinator is idle.
* submit: the submit of that message, until its one branch was called, the finish is on disk and all is idle.
* transaction: `with message.transaction(connection)` over sqlite3, in the producer's thread alone.

The coordinator is `InProcessCoordinator` on a SQLite file in a temporary folder, the branch a bare socket. Each request
was made before on the same connection, so that nothing is imported or connected in the trace.

How it counts:

* calls: `call` events of `sys.setprofile`, in all threads traced, for Python code in a file of the package `twophase`.
  A generator or coroutine that resumes is a call; a comprehension does not count, for Python 3.12 inlines it.
* files, packages: distinct files, and distinct folders, of those calls.
* changes: calls whose file is another than that of the call before. The return of a function is no change.
* returns: changes to a file that an earlier call was in. So changes = files - 1 + returns.

`twophase.testing` is left out: it stands for the clock and the threads of a real server. So is what a timer of the
event loop begins: it belongs to no request. Where two threads' calls mix, a run has more changes; the result is the
least of several runs, by returns, then by calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import sqlite3
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import twophase
from twophase import Message
from twophase.barrier import install
from twophase.testing import InProcessCoordinator

RATCHET: Final = Path(__file__).with_name("trace.toml")
RUNS: Final = 9
MEASURES: Final = ("calls", "files", "packages", "changes", "returns")
_SOURCE: Final = Path(twophase.__file__).parent
_HANDLE_RUN: Final = asyncio.Handle._run.__code__  # noqa: SLF001 -- where the event loop calls back
_INLINED: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
_REPEATS_MAX: Final = 3
_QUIET_S: Final = 0.03
_DEADLINE_S: Final = 20.0
_SWITCH_S: Final = 0.5
_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Trace(NamedTuple):
    """The ordered files of one request, relative to the package, one for each call."""

    route: tuple[str, ...]

    def figures(self) -> dict[str, int]:
        """Return the five counts by name.

        >>> Trace(("a/x.py", "a/x.py", "b/y.py", "a/x.py")).figures()
        {'calls': 4, 'files': 2, 'packages': 2, 'changes': 2, 'returns': 1}
        """
        files = set(self.route)
        changes = len(self.steps()) - 1
        return {
            "calls": len(self.route),
            "files": len(files),
            "packages": len({file.rpartition("/")[0] for file in files}),
            "changes": changes,
            "returns": changes - (len(files) - 1),
        }

    def steps(self) -> list[str]:
        """Return the route without repetitions side by side.

        >>> Trace(("x.py", "x.py", "y.py", "x.py")).steps()
        ['x.py', 'y.py', 'x.py']
        """
        before = ("", *self.route)
        return [file for last, file in zip(before, self.route, strict=False) if file != last]


class Recorder:
    """Records the files of calls while it is on, in the threads that it profiles."""

    def __init__(self) -> None:
        self._files: dict[CodeType, str | None] = {}
        self._route: list[str] | None = None
        self._only: int | None = None
        self._timer: FrameType | None = None
        self._timer_thread = 0

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take one event of `sys.setprofile`."""
        if self._timer is not None and threading.get_ident() == self._timer_thread:
            if event == "return" and frame is self._timer:
                self._timer = None
            return
        if event != "call":
            return
        if frame.f_code is _HANDLE_RUN and isinstance(frame.f_locals["self"], asyncio.TimerHandle):
            self._timer, self._timer_thread = frame, threading.get_ident()
            return
        route = self._route
        if route is None or (self._only is not None and threading.get_ident() != self._only):
            return
        code = frame.f_code
        if code not in self._files:
            self._files[code] = _file_of(code)
        file = self._files[code]
        if file is not None:
            route.append(file)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Profile this thread and those that start inside the block."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def record(self, work: Callable[[], object], *, only_here: bool = False) -> Trace:
        """Record the calls that `work` causes, in all threads or only here."""
        self._only = threading.get_ident() if only_here else None
        route: list[str] = []
        self._route = route
        work()
        self.wait_quiet()
        self._route = None
        return Trace(tuple(route))

    def wait_quiet(self) -> None:
        """Wait until no call was recorded for a while."""
        seen = -1
        while self._route is not None and seen != len(self._route):
            seen = len(self._route)
            time.sleep(_QUIET_S)


class Client:
    """A connection to the coordinator that stays open, without any code of twophase."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._host = url.removeprefix("http://")
        self._socket = socket.create_connection((host, int(port)), timeout=_DEADLINE_S)

    def post(self, request: str, fields: dict[str, Any]) -> None:
        """Send one request to dtm's routes and read its answer, which must be 200."""
        body = json.dumps(fields).encode()
        head = f"POST /api/dtmsvr/{request} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, _ = _read_http(self._socket)
        if status.split()[1] != b"200":
            raise RuntimeError(f"{request} was answered with {status!r}")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Destination:
    """A service on a bare socket that answers every call with 200."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, name="destination", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(_DEADLINE_S)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=_answer_all, args=(connection,), daemon=True).start()


class Scene:
    """A coordinator, a destination, a connection and a business database."""

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self._recorder = recorder
        self._store = folder / "coordinator.db"
        self._number = 0
        self._bank = sqlite3.connect(folder / "bank.db")
        self._destination = Destination()
        self._coordinator = InProcessCoordinator(f"sqlite:///{self._store}")
        self._url = self._coordinator.start()
        self._client = Client(self._url)
        install(self._bank)
        self._bank.execute("create table account (id text primary key, balance integer)")
        self._bank.commit()

    def close(self) -> None:
        """Stop and close everything."""
        self._client.close()
        self._coordinator.stop()
        self._destination.close()
        self._bank.close()

    def run(self) -> dict[str, Trace]:
        """Trace each request once."""
        self._number += 1
        gid = f"trace-{self._number}"
        fields = {
            "gid": gid,
            "trans_type": "msg",
            "steps": [{"action": f"{self._destination.url}/branch"}],
            "payloads": ['{"amount":30}'],
            "query_prepared": f"{self._destination.url}/check",
            "protocol": "http",
        }

        def submit() -> None:
            self._client.post("submit", fields)
            self._wait_finished(gid)

        messages: list[Message] = []

        def transact() -> None:
            message = Message(self._url).add(f"{self._destination.url}/branch", {"amount": 30})
            messages.append(message)
            with message.transaction(self._bank, check=f"{self._destination.url}/check") as connection:
                connection.execute("update account set balance = balance - 30 where id = 'A'")

        traces = {
            "prepare": self._recorder.record(lambda: self._client.post("prepare", fields)),
            "submit": self._recorder.record(submit),
            "transaction": self._recorder.record(transact, only_here=True),
        }
        self._recorder.record(lambda: self._wait_finished(messages[0].gid))  # its delivery belongs to no other trace
        return traces

    def _wait_finished(self, gid: str) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        with contextlib.closing(sqlite3.connect(f"file:{self._store}?mode=ro", uri=True)) as store:
            while not store.execute("select 1 from history where gid = ?", (gid,)).fetchone():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{gid} is not finished after {_DEADLINE_S:g} s")
                time.sleep(0.002)


def measure(runs: int = RUNS) -> dict[str, Trace]:
    """Trace all requests `runs` times; return the least trace of each."""
    recorder = Recorder()
    switch_s = sys.getswitchinterval()
    with tempfile.TemporaryDirectory(prefix="twophase-trace-") as folder, recorder.installed():
        scene = Scene(Path(folder), recorder)
        try:
            # A thread keeps the interpreter until it waits, so that two threads' calls mix as seldom as possible.
            sys.setswitchinterval(_SWITCH_S)
            scene.run()
            results = [scene.run() for _ in range(runs)]
        finally:
            sys.setswitchinterval(switch_s)
            scene.close()
    return {name: min((result[name] for result in results), key=_size) for name in results[0]}


def least(left: dict[str, Trace], right: dict[str, Trace]) -> dict[str, Trace]:
    """Return the lesser trace of each request."""
    return {name: min(left[name], right[name], key=_size) for name in left}


def worse(figures: dict[str, dict[str, int]], ratchet: dict[str, dict[str, int]]) -> list[str]:
    """Return a sentence for each figure that is larger than allowed.

    >>> worse({"prepare": {"calls": 12, "returns": 3}}, {"prepare": {"calls": 10, "returns": 3}})
    ['prepare: 12 calls, 10 are allowed']
    """
    return [
        f"{request}: {value} {name}, {ratchet[request][name]} are allowed"
        for request, values in figures.items()
        for name, value in values.items()
        if value > ratchet[request][name]
    ]


def allowed() -> dict[str, dict[str, int]]:
    """Read the ratchet."""
    return tomllib.loads(RATCHET.read_text(encoding="utf-8"))


def _figures(traces: dict[str, Trace]) -> dict[str, dict[str, int]]:
    return {name: trace.figures() for name, trace in traces.items()}


def _size(trace: Trace) -> tuple[int, int]:
    figures = trace.figures()
    return figures["returns"], figures["calls"]


def _file_of(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    if code.co_name in _INLINED or not path.is_relative_to(_SOURCE):
        return None
    file = path.relative_to(_SOURCE).as_posix()
    return None if file.startswith("testing/") else file


def _answer_all(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        while _read_http(connection)[0]:
            connection.sendall(_OK)


def _read_http(connection: socket.socket) -> tuple[bytes, bytes]:
    """Read one request or reply; return its first line and body, empty at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        if not more:
            return b"", b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(b":") for line in lines)}
    length = int(fields.get(b"content-length", b"0"))
    while len(body) < length:
        body += connection.recv(65_536)
    return first, body


def _table(figures: dict[str, dict[str, int]]) -> str:
    lines = [f"{'request':<12}" + "".join(f"{name:>10}" for name in MEASURES)]
    lines += [
        f"{request:<12}" + "".join(f"{values[name]:>10}" for name in MEASURES) for request, values in figures.items()
    ]
    return "\n".join(lines)


def _ratchet_text(figures: dict[str, dict[str, int]]) -> str:
    head = (
        "# The largest figures that `scripts/trace --check` allows; `scripts/trace --update` lowers them.\n"
        "# Only a person raises one, and the commit says why.\n"
    )
    tables = (
        f"\n[{request}]\n" + "".join(f"{name} = {values[name]}\n" for name in MEASURES)
        for request, values in figures.items()
    )
    return head + "".join(tables)


def main(arguments: list[str]) -> int:
    """Trace, print and compare; 1 when a figure is larger than allowed."""
    parser = argparse.ArgumentParser(prog="scripts/trace", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--route", action="store_true", help="print the ordered files of each request, too")
    parser.add_argument("--json", action="store_true", help="print figures and routes as JSON")
    parser.add_argument(
        "--check", action="store_true", help="fail when a figure is larger than scripts/trace.toml allows"
    )
    parser.add_argument("--update", action="store_true", help="lower scripts/trace.toml to the present figures")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how often each request is traced ({RUNS})")
    options = parser.parse_args(arguments)

    traces = measure(options.runs)
    if options.check or options.update:
        for _ in range(_REPEATS_MAX):  # on a busy machine threads may mix in every run
            if not worse(_figures(traces), allowed()):
                break
            traces = least(traces, measure(options.runs))
    figures = _figures(traces)
    if options.json:
        print(json.dumps({name: figures[name] | {"route": trace.steps()} for name, trace in traces.items()}, indent=1))
    else:
        print(_table(figures))
    if options.route and not options.json:
        for name, trace in traces.items():
            print(f"\n{name}: {' → '.join(file.removesuffix('.py') for file in trace.steps())}")
    findings = worse(figures, allowed()) if options.check or options.update else []
    if findings:
        print("\n".join(findings), file=sys.stderr)
        return 1
    if options.update:
        RATCHET.write_text(_ratchet_text(figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
