"""Texts in commands that are printed to be pasted into a shell."""

from __future__ import annotations

import shlex


def argument(text: str) -> str:
    """Return a text as the last argument of a command, safe to paste.

    A gid may begin with a dash.

    >>> argument("order 17"), argument("--server=http://elsewhere")
    ("'order 17'", '-- --server=http://elsewhere')
    """
    return f"-- {shlex.quote(text)}" if text.startswith("-") else shlex.quote(text)
