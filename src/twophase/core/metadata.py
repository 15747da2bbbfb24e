"""What a gRPC call can carry beside its bytes: the gid, and the message's headers, as metadata.

Said when a message is taken, because a call that cannot be made would be tried for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = re.compile(r"[0-9A-Za-z_.-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")


def why_no_metadata(gid: str, headers: Iterable[tuple[str, str]]) -> str:
    """Why no gRPC call can be made of a message with this gid and these headers; empty when one can.

    >>> why_no_metadata("g", [("tenant", "7")]), why_no_metadata("g", [("tenant", "7\\t")])
    ('', "branch_headers: 'tenant' or its value cannot be gRPC metadata.")
    """
    if not gid.isascii():
        return "gid has characters beyond ASCII, which a gRPC call's metadata cannot carry."
    for name, value in headers:
        # The bytes of a name that ends so are sent encoded.
        if not _NAME.fullmatch(name) or not (name.lower().endswith("-bin") or _VALUE.fullmatch(value)):
            return f"branch_headers: {name[:45]!r} or its value cannot be gRPC metadata."
    return ""
