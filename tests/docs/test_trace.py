"""The requests traced at run time: what is counted, and that no figure grows."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from scripts import call_trace
from scripts.call_trace import Recorder, Trace
from tests.docs.pages import ROOT
from twophase.core.gid import fresh_gid


def test_a_return_is_a_change_to_a_file_left_before() -> None:
    trace = Trace(("a/x.py", "a/x.py", "b/y.py", "a/x.py", "a/z.py"))

    assert trace.figures() == {"calls": 5, "files": 3, "packages": 2, "changes": 3, "returns": 1}


def test_a_figure_above_the_ratchet_is_a_finding() -> None:
    findings = call_trace.worse({"prepare": {"calls": 9, "returns": 4}}, {"prepare": {"calls": 9, "returns": 3}})

    assert findings == ["prepare: 4 returns, 3 are allowed"]


def test_only_code_of_the_package_is_recorded() -> None:
    recorder = Recorder()
    with recorder.installed():
        trace = recorder.record(lambda: json.dumps(fresh_gid(0)), only_here=True)

    assert set(trace.route) == {"core/gid.py"}


def test_what_a_timer_of_the_event_loop_begins_is_not_recorded() -> None:
    async def wait() -> None:
        loop = asyncio.get_running_loop()
        called = asyncio.Event()
        loop.call_later(0.001, fresh_gid, 0)
        loop.call_later(0.002, called.set)
        await called.wait()

    recorder = Recorder()
    with recorder.installed():
        trace = recorder.record(lambda: asyncio.run(wait()), only_here=True)

    assert trace.route == ()


def test_no_figure_of_the_trace_grows() -> None:
    command = [sys.executable, "-m", "scripts.call_trace", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)

    assert result.returncode == 0, result.stdout + result.stderr
