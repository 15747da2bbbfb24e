"""The number of values in JSON text, counted before any of them is made.

A text of 4 MB may hold a million values, which take a tenth of a second and a hundred times the memory of a few long
ones. Counting costs some milliseconds, whatever the text is.
"""

from __future__ import annotations

from twophase.core.errors import LimitExceeded
from twophase.core.limits import REQUEST_VALUES_MAX


def require_values(text: bytes | bytearray, values_max: int = REQUEST_VALUES_MAX.value) -> None:
    """Refuse JSON text with too many values.

    Values without a comma stand within each other: their depth is bounded, and nothing so deep is made.

    Raises:
        LimitExceeded: more than `values_max` texts, or more commas than that between values.

    >>> require_values(b'{"gid":"a,b,c,d,e,f"}', 4)
    >>> require_values(b'{"gids":["a","b","c","d"]}', 4)
    Traceback (most recent call last):
    twophase.core.errors.LimitExceeded: TP-1001: values of a request is 5 values or more, at most 4 are allowed. ...
    """
    if text.count(b'"') + text.count(b",") <= values_max:
        return
    texts = (text.count(b'"') - text.count(b'\\"')) // 2  # too few where an escaped backslash ends a text
    if texts <= values_max:
        pieces = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', 2 * values_max + 2)
        texts = (len(pieces) - 1) // 2
        if texts <= values_max and b"".join(pieces[::2]).count(b",") <= values_max:
            return
    raise too_many_values(values_max)


def too_many_values(values_max: int) -> LimitExceeded:
    """Return the refusal of a request with more values than `values_max`."""
    limit = REQUEST_VALUES_MAX
    return LimitExceeded(f"{limit.name} is {values_max + 1} {limit.unit} or more, at most {values_max} are allowed.")
