"""Files that hold a secret, readable by their user alone."""

from __future__ import annotations

from pathlib import Path


def secret_in(file: Path, secret: str) -> str:
    """Write a secret into a file of mode 0600; return the reference to it."""
    file.touch(mode=0o600)
    file.write_text(secret)
    return f"file:{file}"
