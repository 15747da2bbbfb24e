"""The coverage of an audit: what it could compare, and what it could not.

It stands beside every verdict.
"""

from __future__ import annotations

import msgspec


class Coverage(msgspec.Struct, frozen=True):
    """One comparison, or one remark about it, and its result: could it be made?"""

    what: str
    checked: bool
    note: str
