"""The benchmark finds exactly the planted faults.

They are losses, duplicates, ghosts, refusals and stalls.
"""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.failure import BenchmarkFailed
from benchmarks.load.measurement import Measurement
from benchmarks.load.run import Run
from benchmarks.load.workload import Mode, Workload
from tests.integration.bench.faulty import Faults, faulty_server
from tests.support.watch import Watch
from twophase.http_client.address import parse_address

_SHORT = Workload(connections=8, seconds=0.5, warmup_s=0.1, drain_s=5.0)


async def _measured(faults: Faults, workload: Workload = _SHORT) -> Measurement:
    async with faulty_server(faults) as url:
        return await Run(parse_address(url), workload).measure()


@pytest.mark.parametrize("branches", [1, 3])
@pytest.mark.parametrize("mode", [Mode.PAIR, Mode.SUBMIT])
async def test_without_faults_everything_is_delivered_once(mode: Mode, branches: int) -> None:
    workload = Workload(mode, 8, seconds=0.5, warmup_s=0.1, drain_s=10.0, branches=branches)

    run = await _measured(Faults(), workload)

    found = run.findings
    assert run.messages > 0
    assert found.delivered == found.acknowledged == found.begun
    assert (found.lost, found.duplicates, found.early, found.foreign, found.errors) == (0, 0, 0, 0, {})
    assert run.histograms["submit → branch"].count > 0


async def test_every_tenth_message_lost_is_found_lost() -> None:
    found = (await _measured(Faults(calls=lambda number: 0 if number % 10 == 0 else 1))).findings

    assert found.lost == found.acknowledged // 10 > 0
    assert found.delivered == found.acknowledged - found.lost
    assert not found.kept


async def test_every_tenth_message_called_twice_is_found_duplicate() -> None:
    found = (await _measured(Faults(calls=lambda number: 2 if number % 10 == 0 else 1))).findings

    assert found.duplicates == found.acknowledged // 10 > 0
    assert found.delivered == found.acknowledged
    assert found.kept


async def test_branches_called_at_prepare_are_found_too_early() -> None:
    found = (await _measured(Faults(early=True))).findings

    assert found.early > 0
    assert not found.kept


async def test_refused_requests_are_errors_and_nothing_is_lost() -> None:
    found = (await _measured(Faults(refuse=lambda number: number % 10 == 0))).findings

    assert sum(found.errors.values()) > 0
    assert all("409" in what for what in found.errors)
    assert found.lost == 0
    assert found.delivered == found.acknowledged < found.begun


async def test_when_every_request_is_refused_it_says_so() -> None:
    with pytest.raises(BenchmarkFailed, match=r"every request fails: prepare: 409 .*planted"):
        await _measured(Faults(refuse=lambda _number: True), Workload(connections=8, seconds=5.0))


async def test_answers_in_two_reads_are_understood() -> None:
    found = (await _measured(Faults(split=True))).findings

    assert found.delivered == found.begun > 0
    assert found.errors == {}


async def test_prepared_messages_are_aborted_when_the_run_is_over() -> None:
    aborted = 0

    def count(_number: int) -> bool:
        nonlocal aborted
        aborted += 1
        return False

    run = await _measured(Faults(refuse=count), Workload(Mode.PREPARE, 8, seconds=0.3, warmup_s=0.1))

    assert run.messages > 0
    assert aborted == 2 * run.findings.begun


async def test_open_loop_sees_a_stall_in_every_message_it_would_have_hit() -> None:
    """200 messages a second and a stall of 0.4 s.

    Some 80 of 200 messages wait, half of those for 0.2 s or more.

    A closed loop of four connections would have sent four requests into the stall and called 99 % of them fast.
    """
    stall = asyncio.Event()
    stall.set()
    workload = Workload(Mode.SUBMIT, connections=4, rate=200.0, seconds=1.0, warmup_s=0.1, drain_s=10.0)
    begins = int(200 * (workload.warmup_s + 0.3))

    run = await _measured(Faults(stall=stall, stall_from=begins, stall_s=0.4), workload)

    submit = run.latency("submit")
    assert submit is not None
    assert submit.p90_ms > 150
    assert run.findings.begun >= 0.95 * 200 * (run.measured_s + 0.1)
    assert run.findings.lost == 0


async def test_open_loop_sees_a_stall_that_outlasts_the_window() -> None:
    """200 messages a second, and a stall across the end of the window.

    It begins in the middle of the window and ends some 0.3 s after it.

    Half of the window's messages wait for 0.3 s or more: four of them with a request under way, all others for a
    connection. None of them would be measured by who stops at the window's end. The stall begins with a message, not
    at a time, so that it is in the window of a machine that starts late, too.
    """
    stall = asyncio.Event()
    stall.set()
    workload = Workload(Mode.SUBMIT, connections=4, rate=200.0, seconds=0.8, warmup_s=0.1, drain_s=10.0)
    middle = int(200 * (workload.warmup_s + workload.seconds / 2))

    run = await _measured(Faults(stall=stall, stall_from=middle, stall_s=0.7), workload)

    submit = run.latency("submit")
    assert submit is not None
    assert submit.count == run.histograms["whole message"].count >= 0.95 * 200 * run.measured_s
    assert submit.p90_ms > 400
    found = run.findings
    assert found.delivered == found.begun >= 0.95 * 200 * (run.measured_s + 0.1)
    assert (found.lost, found.unanswered, found.not_begun) == (0, 0, 0)


async def test_open_loop_above_capacity_measures_every_message_that_was_due() -> None:
    """Two connections with answers of 10 ms do at most 200 messages a second.

    800 are requested.

    The last message of the window waits for all before it: three times as long as the window has lasted. Those that
    were due in the warm-up are delivered, and not measured.
    """
    workload = Workload(Mode.SUBMIT, connections=2, rate=800.0, seconds=0.2, warmup_s=0.1, drain_s=10.0)

    run = await _measured(Faults(answer_s=0.01), workload)

    submit = run.latency("submit")
    assert submit is not None
    assert submit.count >= 0.95 * 800 * run.measured_s
    assert run.findings.begun - submit.count >= 0.85 * 800 * 0.1
    assert submit.p99_ms > 1000 * 2 * run.measured_s
    assert run.findings.delivered == run.findings.begun


async def test_what_never_finds_a_connection_is_reported_as_not_begun() -> None:
    stall = asyncio.Event()
    workload = Workload(Mode.SUBMIT, connections=4, rate=200.0, seconds=0.2, warmup_s=0.0, drain_s=0.2)

    found = (await _measured(Faults(stall=stall), workload)).findings

    assert (found.begun, found.unanswered, found.delivered) == (4, 4, 0)
    assert found.not_begun >= 0.9 * 200 * 0.2 - 4


async def test_without_a_stall_the_same_open_loop_is_fast() -> None:
    workload = Workload(Mode.SUBMIT, connections=4, rate=100.0, seconds=0.5, warmup_s=0.1)

    async with Watch() as watch:
        submit = (await _measured(Faults(), workload)).latency("submit")

    assert submit is not None
    assert submit.p50_ms < 250 + 1000 * watch.late_s


async def test_a_server_that_does_not_answer_leaves_requests_unanswered() -> None:
    workload = Workload(connections=4, seconds=0.2, warmup_s=0.0, drain_s=0.3)

    found = (await _measured(Faults(stall=asyncio.Event()), workload)).findings

    assert (found.unanswered, found.lost, found.delivered) == (4, 0, 0)
