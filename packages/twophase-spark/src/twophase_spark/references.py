"""Secrets by reference: `env:NAME` or `file:PATH`, looked up where they are used.

The reference travels in Spark's plan, the secret does not. Promise: a file that every user of the machine may use is
refused, as everywhere in twophase, and an error names the option and the reference without showing a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from twophase.core.credentials import secret_of
from twophase.core.errors import ConfigurationError


def looked_up(option: str, text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the value of a reference; any other text stands for itself.

    Arguments:
        option: the name of the option whose value `text` is.
        text: the reference, or a text that is no secret.
        environment: where `env:` looks.

    Raises:
        ConfigurationError: there is no such variable, or `secret_of` refuses the file.

    >>> looked_up("url", "env:STORE_URL", {"STORE_URL": "postgresql://me:tiger@db/store"})
    'postgresql://me:tiger@db/store'
    """
    kind, _, name = text.partition(":")
    if kind == "env":
        value = environment.get(name, "").strip()
        if not value:
            raise ConfigurationError(
                f"Option {option} names the environment variable {name}, which Spark's Python does not have. Set it "
                "before the session is started, on a cluster also for the executors, or use file:…."
            )
        return value
    try:
        return secret_of(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"Option {option}: {error.message}", remedy=error.remedy) from None
