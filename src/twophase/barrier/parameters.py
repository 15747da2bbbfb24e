"""The coordinator's parameters in a request.

Each is read once, and a second value refuses the request. Frameworks differ in which of two values they return. Where
an address carries a parameter of the coordinator's own name, one framework would read the address's, and two calls
would look like one to the barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from twophase.core.errors import InvalidRequest


def one_value(parameters: Mapping[str, Any], name: str) -> str | None:
    """Return the value of a parameter; None when the request has none.

    Arguments:
        parameters: the query's, as the framework gives them: a multi-dict, a dict of texts, or one of lists of texts.

    Raises:
        InvalidRequest: it stands there twice, or its value is no text.

    >>> one_value({"gid": "g"}, "gid"), one_value({"gid": ["g"]}, "gid"), one_value({}, "gid")
    ('g', 'g', None)
    """
    if name not in parameters:
        return None
    # Werkzeug, Starlette, Django and Sanic have the one; aiohttp, WebOb and Bottle the other.
    every = getattr(parameters, "getlist", None) or getattr(parameters, "getall", None)
    given = every(name) if callable(every) else parameters[name]
    values = cast("list[object]", given) if isinstance(given, list | tuple) else [given]
    if len(values) > 1:
        raise InvalidRequest(
            f"{name} is twice in the request: the called address already has a parameter of this name.",
            remedy="Remove it from the address; the coordinator appends its own.",
        )
    if values and not isinstance(values[0], str):
        raise InvalidRequest(f"{name} is no text.")
    return cast("str", values[0]) if values else None
