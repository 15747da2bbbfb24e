"""Texts that no terminal obeys.

Promise: a character that is not printable, such as the one that begins an escape sequence or turns the direction of
reading, is shown by its code.
"""

from __future__ import annotations

import json


def printable(text: str, *, kept: str = "\n\t") -> str:
    r"""Return a text that changes nothing but the place where it is printed.

    `kept`: characters that stay although they are not printable.

    >>> print(printable("card\x1b[2J \u202edesrever"))
    card\x1b[2J \u202edesrever
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text])


def printable_json(text: str) -> str:
    r"""Return the same JSON with the codes that JSON has for them.

    >>> print(printable_json('"card\x9b2J \U000e0001"'))
    "card\u009b2J \udb40\udc01"
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text])
