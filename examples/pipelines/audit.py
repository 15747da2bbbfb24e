"""One audit of a pipeline: the command, its files, and what its exit code means.

Both orchestrators run it. It imports nothing of twophase: the command may live in an environment of its own.

Environment: `TWOPHASE_AUDIT`, a folder with `fleet.toml`, in which reports, findings and state are kept; `TWOPHASE`,
the command, by default the one on the path.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

PROMISE_BROKEN = 1


class Audit(NamedTuple):
    """A run of the command: its exit code, its folder, and the JSON report."""

    exit_code: int
    folder: Path
    report: dict[str, Any]

    @property
    def sentence(self) -> str:
        """The report's sentence, and the path of its page."""
        return f"{self.report['sentence']} {self.folder / 'report.html'}"


def audit() -> Audit:
    """Audit what came since the last run.

    The reports are kept in a folder of this run.
    """
    home = Path(os.environ["TWOPHASE_AUDIT"])
    folder = home / "reports" / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
    folder.mkdir(parents=True)
    arguments = [
        *("spark", "audit"),
        f"--config={home / 'fleet.toml'}",
        f"--state={home / 'audit.state'}",
        f"--findings={home / 'findings'}",
        f"--html={folder / 'report.html'}",
        f"--json={folder / 'report.json'}",
    ]
    done = subprocess.run([os.environ.get("TWOPHASE", "twophase"), *arguments], check=False)
    report = folder / "report.json"
    told = json.loads(report.read_bytes()) if report.exists() else {"sentence": "The audit did not begin."}
    return Audit(done.returncode, folder, told)
