"""The table of all settings, for help texts and documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args, get_type_hints

import msgspec

from twophase.server.settings import PREFIX, Settings


class Described(msgspec.Struct, frozen=True):
    """One setting, for help texts and documentation."""

    name: str
    variable: str
    default: str
    description: str


def describe() -> Iterator[Described]:
    """Yield all settings, in their order.

    >>> next(describe()).variable
    'TWOPHASE_STORE'
    """
    hints = get_type_hints(Settings, include_extras=True)
    for field in msgspec.structs.fields(Settings):
        notes = [meta.description for meta in get_args(hints[field.name])[1:] if meta.description]
        yield Described(field.name, PREFIX + field.name.upper(), _shown(field.default), notes[0])


def _shown(default: object) -> str:
    return "[]" if default == () else str(default) or '""'
