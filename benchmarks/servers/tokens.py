"""A server's file of tokens, written by the command that operators use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def added(tokens: Path, name: str, scopes: Sequence[str], *bounds: str) -> str:
    """Add a client to the file of tokens; return its token.

    Arguments:
        tokens: the file, which is made when it is not there.
        name: of the client.
        scopes: what it may do.
        bounds: further options of `twophase token add`.
    """
    options = [*(f"--scope={scope}" for scope in scopes), f"--tokens={tokens}", *bounds]
    command = [sys.executable, "-m", "twophase", "token", "add", name, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
