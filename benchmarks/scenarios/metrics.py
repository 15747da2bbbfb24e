"""A reading of a server's metrics."""

from __future__ import annotations

import urllib.request
from typing import Final

_TIMEOUT_S: Final = 5.0


def said(server_url: str) -> dict[str, float]:
    """Return every sample by its name and labels, as `name{label="value"}`.

    Arguments:
        server_url: `http://host:port`.

    Raises:
        OSError: it does not answer.
    """
    with urllib.request.urlopen(f"{server_url}/metrics", timeout=_TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}
