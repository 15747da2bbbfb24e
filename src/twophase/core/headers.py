"""Which headers a message may give its calls: any that HTTP allows, but those that belong to the connection.

Promise: what passes here, every call can carry. It is asked when a message is taken, by the client and by every door of
the server, because a call that cannot be made would be tried for ever.
"""

from __future__ import annotations

import re
from typing import Final

CONNECTION_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""In lower case; whoever makes the call sets them, and no message does."""
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_SHOWN_MAX: Final = 45


def why_no_header(name: str, value: str) -> str:
    """Why a call cannot carry this header, without its value; empty when it can.

    >>> why_no_header("X-Tenant", "blue"), why_no_header("Keep-Alive", "timeout=5")
    ('', "'Keep-Alive' belongs to the connection and cannot be set.")
    """
    if not _NAME.fullmatch(name):
        return f"{name[:_SHOWN_MAX]!r} has characters HTTP does not allow in a name."
    if not _VALUE.fullmatch(value):
        return f"the value of {name[:_SHOWN_MAX]!r} has characters HTTP does not allow: controls, or beyond ASCII."
    if name.lower() in CONNECTION_HEADERS:
        return f"{name!r} belongs to the connection and cannot be set."
    return ""
