"""`twophase bench` in a process of its own, as a person starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

ENVIRONMENT: Final = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command = [sys.executable, "-m", "twophase", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=ENVIRONMENT)
