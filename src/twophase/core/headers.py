"""Headers that a message may give its calls.

Any that HTTP allows, but the connection's, the coordinator's own, and those by which a cloud's metadata service or a
service behind a proxy recognizes whom it trusts; for a gRPC call, any that its metadata can carry, beside the gid.

Promise: what passes here, every call can carry, and no receiver takes it for the coordinator's word. It is asked when a
message is taken, by the client and by every API of the server, because a call that cannot be made would be tried again
and again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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
"""Headers that the caller of a branch sets, and no message; in lower case."""
OLDEST_HEADER: Final = "x-twophase-oldest"
"""Header of a branch call with the time of the oldest unfinished message."""
_OWN: Final = ("x-twophase-", "twophase-", "dtm-")
"""Prefix of the coordinator's own headers and gRPC metadata of a call."""
_TRUSTED: Final = ("grpc-", "x-aws-", "x-google-", "x-forwarded-", "metadata-flavor")
"""Prefix of headers that gRPC, a metadata service or a proxied service trusts."""
_TRUSTED_NAMES: Final = ("forwarded$", "x-real-ip$")
"""Headers that a proxied service trusts; other names may begin so."""
_OF_PAGES: Final = ("sec-fetch-", "sec-purpose$", "origin$")
"""Headers by which a browser tells a service that a page sends a request.

A message may hold them, copied from its producer's own request; no call sends them, because services refuse pages.
"""


def _at_start(names: tuple[str, ...]) -> Callable[[str], object]:
    return re.compile("|".join(names).replace("-", "[-_]"), re.IGNORECASE).match  # to WSGI both signs are one


_reserved_at_start = _at_start(_OWN + _TRUSTED + _TRUSTED_NAMES)
_not_sent_at_start = _at_start(_OWN + _TRUSTED + _TRUSTED_NAMES + _OF_PAGES)
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_METADATA_NAME: Final = re.compile(r"[0-9A-Za-z_.-]+")
_METADATA_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_SHOWN_MAX: Final = 45


def why_no_header(name: str, value: str) -> str:
    """Return why no message may give its calls this header; empty when one may.

    The text does not contain the value.

    >>> why_no_header("X-Tenant", "blue"), why_no_header("Keep-Alive", "timeout=5")
    ('', "'Keep-Alive' belongs to the connection and cannot be set.")
    """
    if not _NAME.fullmatch(name):
        return f"{name[:_SHOWN_MAX]!r} has characters HTTP does not allow in a name."
    if not _VALUE.fullmatch(value):
        return f"the value of {name[:_SHOWN_MAX]!r} has characters HTTP does not allow: controls, or beyond ASCII."
    if name.lower() in CONNECTION_HEADERS:
        return f"{name!r} belongs to the connection and cannot be set."
    if _reserved_at_start(name):
        if name.lower().replace("_", "-").startswith(_OWN):
            return f"{name[:_SHOWN_MAX]!r} is the coordinator's own: x-twophase-*, twophase-* and dtm-* cannot be set."
        return (
            f"{name[:_SHOWN_MAX]!r} is reserved: grpc-*, x-aws-*, x-google-*, x-forwarded-*, forwarded, x-real-ip and"
            " metadata-flavor cannot be set."
        )
    return ""


def without_reserved(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the headers that a call sends.

    A message of an earlier version may hold reserved ones, and any message those of a browser.

    >>> without_reserved((("X-Tenant", "blue"), ("X_Forwarded_For", "10.0.0.1"), ("Origin", "https://shop.example")))
    (('X-Tenant', 'blue'),)
    """
    return tuple([header for header in headers if not _not_sent_at_start(header[0])])


def why_no_metadata(gid: str, headers: Iterable[tuple[str, str]]) -> str:
    r"""Return why no gRPC call can carry this gid and these headers; empty if one can.

    >>> why_no_metadata("g", [("tenant", "7")]), why_no_metadata("g", [("tenant", "7\t")])
    ('', "branch_headers: 'tenant' or its value cannot be gRPC metadata.")
    """
    if not gid.isascii():
        return "gid has characters beyond ASCII, which a gRPC call's metadata cannot carry."
    for name, value in headers:
        # The bytes of a name that ends so are sent encoded.
        if not _METADATA_NAME.fullmatch(name) or not (
            name.lower().endswith("-bin") or _METADATA_VALUE.fullmatch(value)
        ):
            return f"branch_headers: {name[:_SHOWN_MAX]!r} or its value cannot be gRPC metadata."
    return ""
