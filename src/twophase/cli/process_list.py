"""Warnings of secrets on the command line, which every user may read.

Promise: a warning names the option and its remedy, and never shows the secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import urlsplit

from twophase.core.credentials import holds_password

_OPTIONS: Final = frozenset({"--store", "--database"})
_WEBHOOK: Final = "--set alert_webhook"
_DATABASE: Final = re.compile(r"(?:[\w.-]+=)?(?:postgres|mysql|mariadb|redis)")
"""The beginning of a database's URL, or of a location of an audit: `NAME=URL`."""


def warnings(arguments: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each argument that holds a secret.

    >>> list(warnings(["migrate", "--store", "postgresql://me:tiger@db/pay"]))
    ['warning: every user of this machine may read the secret in --store: write --store env:NAME or file:PATH']
    >>> list(warnings(["migrate", "--store", "postgresql://me@db/pay"]))
    []
    """
    for before, argument in pairwise(("", *arguments)):
        option, value = before, argument
        if argument.startswith("--"):
            option, _, value = argument.partition("=")
        separator = " "
        if option == "--set":
            name, separator, value = value.partition("=")
            option = f"--set {name}"
        if option == _WEBHOOK:
            is_secret = _is_more_than_a_host(value)
        else:
            is_secret = _DATABASE.match(value) is not None and holds_password(value)
        if is_secret:
            is_named = option in _OPTIONS or option.startswith("--set ")
            what, remedy = (option, f"{option}{separator}") if is_named else ("the argument of a database", "")
            yield (
                f"warning: every user of this machine may read the secret in {what}:"
                f" write {remedy}env:NAME or file:PATH"
            )


def _is_more_than_a_host(url: str) -> bool:
    """Return True for a webhook that may hold a token, in whichever part."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return True
    return "://" in url and ("@" in parts.netloc or parts.path not in {"", "/"} or bool(parts.query))
