"""Secrets by reference: `env:NAME` or `file:PATH` travels in Spark's plan, and is looked up where it is used."""

from __future__ import annotations

import os
from pathlib import Path

from twophase.core.errors import ConfigurationError

SECRET_BYTES_MAX = 8192


def is_reference(text: str) -> bool:
    """Whether `text` names a secret instead of being one."""
    return text.startswith(("env:", "file:"))


def looked_up(option: str, text: str) -> str:
    """What a reference stands for; any other text stands for itself.

    Raises:
        ConfigurationError: there is no such variable or file.
    """
    kind, _, name = text.partition(":")
    if kind == "env":
        value = os.environ.get(name, "").strip()
        if not value:
            raise ConfigurationError(
                f"Option {option} names the environment variable {name}, which Spark's Python does not have. Set it "
                "before the session is started, on a cluster also for the executors, or use file:…."
            )
        return value
    if kind == "file":
        try:
            with Path(name).open("rb") as file:
                return file.read(SECRET_BYTES_MAX).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigurationError(f"Option {option} names the file {name}, which cannot be read: {why}.") from None
    return text
