"""The sending of events by OpenLineage's client, which its own settings configure.

A backend that is away, slow or wrong costs a warning and, at the end of a command, `WAIT_S_MAX` at most: events are
sent by a thread of their own, in order, and dropped when `EVENTS_MAX` wait. Nothing is sent, and nothing imported,
where no setting of OpenLineage says where to.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twophase.core.credentials import without_credentials

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

    from twophase_spark.inputs.plan import Plan
    from twophase_spark.reports.report import Report

WAIT_S_MAX: Final = 5.0
"""Bound on the wait for the backend at the end, in seconds."""
EXIT_NOT_CHECKED: Final = 2
"""Exit code of an audit without a verdict."""
EVENTS_MAX: Final = 100
"""Bound on the events that wait to be sent."""
_FILES: Final = (Path("openlineage.yml"), Path("~/.openlineage/openlineage.yml"))
_SETTINGS: Final = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
_NO_CLIENT: Final = (
    "OpenLineage is configured, and its client is not installed: install twophase-spark[openlineage]. "
    "The audit goes on without events."
)
_CONSOLE: Final = "openlineage.client.transport.console"

Warn = Callable[[str], None]
Make = Callable[[], "RunEvent"]


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True when a setting of OpenLineage says where events go."""
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    is_named = any(name.startswith(_SETTINGS) and value for name, value in environment.items())
    return is_named or any(path.expanduser().is_file() for path in _FILES)


class Lineage:
    """The events of one audit after the other.

    Arguments:
        backend: takes the events; None sends none.
    """

    def __init__(self, backend: Backend | None) -> None:
        self._backend = backend

    @contextlib.contextmanager
    def run(self, plan: Plan) -> Iterator[AuditRun]:
        """Send START, and at the end of the block COMPLETE, FAIL or ABORT."""
        one = AuditRun(plan, self._backend)
        one.send("START")
        try:
            yield one
        except Exception as error:
            one.end("FAIL", error=error)
            raise
        except BaseException:
            one.end("ABORT")
            raise
        one.end("ABORT")  # unless it has ended


class AuditRun:
    """One audit, and its id in the report, in the table of findings and in the events."""

    def __init__(self, plan: Plan, backend: Backend | None) -> None:
        self.run_id = uuid.uuid4().hex
        self._plan = plan
        self._backend = backend
        self._ended = False

    def checked(self, report: Report) -> None:
        """Say that the reports are written: COMPLETE with a verdict, else FAIL."""
        self.end(None, report)

    def end(self, kind: str | None, report: Report | None = None, error: Exception | None = None) -> None:
        """Send the last event; a second one is not sent."""
        if not self._ended:
            self._ended = True
            self.send(kind, report, error)

    def send(self, kind: str | None, report: Report | None = None, error: Exception | None = None) -> None:
        """Hand one event to the backend, which makes it.

        Without a kind, the report decides.
        """
        if self._backend is None:
            return
        at, plan, run_id = datetime.now(UTC), self._plan, self.run_id

        def make() -> RunEvent:
            from openlineage.client.event_v2 import RunState  # noqa: PLC0415 -- an extra

            from twophase_spark.lineage.events import RunIdentity, event_of  # noqa: PLC0415 -- needs the extra

            by_report = "FAIL" if report is None or report.verdict.exit_code == EXIT_NOT_CHECKED else "COMPLETE"
            return event_of(RunState(kind or by_report), RunIdentity.of(run_id, os.environ), plan, at, report, error)

        self._backend.put(make)


class Backend:
    """A thread that sends events in order, and never raises.

    Arguments:
        warn: called when the backend takes no event, and again only after it has taken one.
        what: the work that goes on without events, for the warning.
        wait_s_max: bound on the wait at the end, in seconds; `WAIT_S_MAX` by default.
    """

    def __init__(self, warn: Warn, what: str = "audit", wait_s_max: float | None = None) -> None:
        self._warn = warn
        self._what = what
        self._wait_s_max = WAIT_S_MAX if wait_s_max is None else wait_s_max
        self._warned = False
        self._waiting: queue.Queue[Make | None] = queue.Queue(EVENTS_MAX)
        self._done = threading.Event()
        self._is_closed = False
        # Not waited for at the end of the process, which a backend that hangs would hold up.
        threading.Thread(target=self._send_all, name="twophase-lineage", daemon=True).start()

    def put(self, make: Make | None) -> None:
        """Send an event when those before it have been sent; None is the last."""
        try:
            self._waiting.put_nowait(make)
        except queue.Full:
            self._not_sent(f"{EVENTS_MAX} events wait")

    def close(self) -> None:
        """Wait until every event has been sent, for as long as was allowed."""
        self.put(None)
        if not self._done.wait(self._wait_s_max):
            self._not_sent(f"no answer within {self._wait_s_max:g} s")
        self._is_closed = True  # events that are still under way are not reported

    def _send_all(self) -> None:
        client: OpenLineageClient | None = None
        while (make := self._waiting.get()) is not None:
            try:
                client = client or _client()
                client.emit(make())
                self._warned = False
            except Exception as error:  # noqa: BLE001 -- lineage fails no audit
                self._not_sent(f"{type(error).__name__}: {error}")
        with contextlib.suppress(Exception):
            if client is not None:
                client.close(self._wait_s_max)
        self._done.set()

    def _not_sent(self, why: str) -> None:
        if not self._warned and not self._is_closed:
            self._warned = True
            text = without_credentials(why).splitlines()[0]
            self._warn(f"OpenLineage events were not sent; the {self._what} is not affected. {text}")


@contextlib.contextmanager
def lineage_sent(warn: Warn) -> Iterator[Lineage]:
    """Send events where OpenLineage is configured.

    At the end of the block, wait for those that are under way.

    Arguments:
        warn: called when events cannot be sent.
    """
    if not is_configured():
        yield Lineage(None)
        return
    if not has_client():
        warn(_NO_CLIENT)
        yield Lineage(None)
        return
    backend = Backend(warn)
    try:
        yield Lineage(backend)
    finally:
        backend.close()


def has_client() -> bool:
    """Return True when OpenLineage's client is installed."""
    try:
        return importlib.util.find_spec("openlineage.client") is not None
    except ModuleNotFoundError:
        return False


def _client() -> OpenLineageClient:
    from openlineage.client import OpenLineageClient  # noqa: PLC0415 -- an extra

    for name in ("openlineage", "urllib3"):  # else Python prints what they say of each try to standard error
        logging.getLogger(name).addHandler(logging.NullHandler())
    # The address of a clone may have a login in it, and the folder that an audit runs in says little.
    client = OpenLineageClient(config={"facets": {"source_code_location": {"disabled": True}}})
    console = logging.getLogger(_CONSOLE)
    if client.transport.kind == "console" and not console.handlers:
        console.addHandler(logging.StreamHandler())
        console.setLevel(logging.INFO)
        console.propagate = False
    return client
