"""The texts of refused settings: what was meant, and which values there are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from twophase.core.credentials import without_credentials

Port = Annotated[int, Meta(ge=0, le=65_535)]
_SHOWN_MAX: Final = 200


def meant(name: str, names: Sequence[str]) -> str:
    """Return the settings that a misspelt name may have meant, as a sentence.

    >>> meant("retry_cap", ["retry_cap_ms"]), meant("nonsense", ["retry_cap_ms"])
    (' Did you mean retry_cap_ms?', '')
    """
    begun = [known for known in names if name and known.startswith(f"{name}_")]
    found = begun or difflib.get_close_matches(name, names, n=3, cutoff=0.75)
    return f" Did you mean {', '.join(found[:3])}?" if found else ""


def why_not(hint: Any, value: object, error: msgspec.DecodeError) -> str:
    """Return the value that was refused, and the choices or the type wanted instead.

    >>> why_not(Literal["debug", "info"], "verbose", msgspec.ValidationError("Invalid"))
    "'verbose' is none of debug, info"
    """
    kinds = (hint, *get_args(hint), *(inner for member in get_args(hint) for inner in get_args(member)))
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if not isinstance(value, str | int | float):
        return f"{str(error)[:1].lower()}{str(error)[1:]}"  # a table, whose headers may be secrets
    shown = without_credentials(repr(value))[:_SHOWN_MAX]
    if choices:
        others = " and no port" if Port in kinds else ""
        return f"{shown} is none of {', '.join(choices)}{others}"
    return f"{str(error)[:1].lower()}{str(error)[1:]}, not {shown}"
