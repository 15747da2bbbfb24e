"""What an audit could compare, and what it could not: said beside every verdict."""

from __future__ import annotations

import msgspec


class Coverage(msgspec.Struct, frozen=True):
    """One comparison, or one thing to know about it, and whether it could be made."""

    what: str
    checked: bool
    note: str
