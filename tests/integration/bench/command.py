"""`python -m benchmarks.load` in a process of its own, as a person starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
ENVIRONMENT: Final = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command = [sys.executable, "-m", "benchmarks.load", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, env=ENVIRONMENT, cwd=ROOT)
