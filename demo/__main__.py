"""Play the demo: `python -m demo [--transfers N] [--keep] [--report FOLDER]`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console

from demo.crowd import Crowd
from demo.show import Show, crowd_note
from demo.stage import Stage, StageError
from demo.story import Scene, scenes
from examples.banks.processes import ROOT

_REVIVE_S = 3.0


def main() -> int:
    """Play, and return the exit code.

    0: every promise was kept; 1: one was not; 2: the demo could not continue.
    """
    options = _options()
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    show = Show(console)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="twophase-demo-") as folder:
        stage = Stage(Path(folder))
        try:
            return _play(stage, show, options)
        except StageError as error:
            show.say(f"[red]The demo could not go on:[/] {error}")
            return 2
        except KeyboardInterrupt:
            show.say("Stopped.")
            return 130
        finally:
            stage.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Two banks, a coordinator, kill -9 at every step, and the proof.",
        epilog='Example: make demo ARGS="--transfers 1000 --keep"',
    )
    parser.add_argument("--transfers", type=int, default=300, help="how many the crowd makes (default 300)")
    parser.add_argument("--keep", action="store_true", help="leave everything running afterwards, to play with")
    parser.add_argument("--report", type=Path, default=ROOT / "demo-report", help="where the audit's reports go")
    return parser.parse_args()


def _play(stage: Stage, show: Show, options: argparse.Namespace) -> int:
    show.say("[bold]twophase[/]: a local transaction and the calls that must follow it: both or neither.\n")
    with show.waiting("Starting the coordinator and both banks"):
        stage.start()
    _crowd(stage, show, options.transfers)
    played = _story(stage, show)
    stage.wait("every message to become final", lambda: not stage.unfinished(), 60)
    show.story(played)
    balanced = show.ledgers(stage)
    audited = _audit(stage, show, options.report)
    kept = balanced and audited and all(scene.as_expected for scene in played)
    show.say("\n[green bold]Every promise was kept.[/]" if kept else "\n[red bold]A promise was broken.[/]")
    if options.keep:
        _keep(stage, show)
    return 0 if kept else 1


def _crowd(stage: Stage, show: Show, transfers: int) -> None:
    what = "Transfers from A to B, with kill -9 now and then"
    with show.progress(what, transfers) as (progress, task):

        def on_told(told: Counter[str]) -> None:
            progress.update(task, completed=min(told["committed"], transfers))

        crowd = Crowd(stage, transfers, on_told)
        crowd.run()
    killed = ", ".join(f"{name} ×{count}" for name, count in sorted(crowd.kills.items())) or "nobody yet"
    show.say(f"Killed at random meanwhile: {killed}")
    others = crowd_note(crowd.told)
    if others:
        show.say(f"Customers who met a dead process asked again with a new transfer: {others}")
    show.say("")


def _story(stage: Stage, show: Show) -> list[Scene]:
    stage.wait("the crowd's messages to become final", lambda: not stage.unfinished(), 60)
    played: list[Scene] = []
    with show.progress("The classic cases", 7) as (progress, task):
        for case, play in scenes(stage):
            progress.update(task, note=case)
            played.append(play())
            progress.advance(task)
        progress.update(task, note="")
    return played


def _audit(stage: Stage, show: Show, report: Path) -> bool:
    report.mkdir(parents=True, exist_ok=True)
    show.say("\n[bold]The audit[/], on Spark, over the three databases:")
    command = [
        sys.executable, "-m", "twophase", "spark", "audit",
        "--coordinator", f"sqlite:///{stage.coordinator_db}",
        "--producer", f"bank-a=sqlite:///{stage.bank_a_db}",
        "--consumer", f"bank-b=sqlite:///{stage.bank_b_db}",
        "--ledger", f"bank-b=sqlite:///{stage.bank_b_db}#ledger",
        "--html", str(report / "audit.html"),
        "--json", str(report / "audit.json"),
    ]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def _keep(stage: Stage, show: Show) -> None:
    show.say(
        f"\nStill running; files in {stage.folder}\n"
        f"  a transfer:     curl -X POST {stage.bank_a.url}/transfer "
        """-H 'Content-Type: application/json' -d '{"transfer_id": "'$(date +%s%N)'", "amount": 5}'\n"""
        f"  its message:    curl '{stage.coordinator.url}/api/dtmsvr/query?gid=GID'\n"
        f"  metrics:        curl {stage.coordinator.url}/metrics\n"
        f"  kill a process: kill -9 {stage.coordinator.pid} (coordinator), {stage.bank_a.pid} (bank A), "
        f"{stage.bank_b.pid} (bank B); it is started again after three seconds\n"
        "Ctrl-C ends everything."
    )
    while True:
        signal.sigtimedwait([], _REVIVE_S)
        dead = [service.name for service in stage.services if not service.alive]
        if dead:
            stage.start()
            pids = ", ".join(f"{service.name} {service.pid}" for service in stage.services)
            show.say(f"started again: {', '.join(dead)} (now {pids})")


if __name__ == "__main__":
    sys.exit(main())
