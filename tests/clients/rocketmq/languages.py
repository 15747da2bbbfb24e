"""The commands of the programs around the official clients, by language."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final


def _python() -> list[str]:
    return [sys.executable, "-m", "tests.clients.rocketmq.python_client"]


LANGUAGES: Final[dict[str, Callable[[], list[str]]]] = {"python": _python}
