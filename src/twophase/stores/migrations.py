"""Numbered steps from one schema version to the next, one `.sql` file each.

They are the same for every engine that has SQL.
"""

from __future__ import annotations

import re
from importlib.resources.abc import Traversable

import msgspec

_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")


class Migration(msgspec.Struct, frozen=True):
    """The way from the version before to `version`."""

    version: int
    sql: str


def released(folder: Traversable) -> tuple[Migration, ...]:
    """Return the migrations of a folder in their order, from version 2 on.

    Their files are `0002_what_it_does.sql`, `0003_…`.

    >>> from importlib.resources import files
    >>> [one.version for one in released(files("twophase.stores.sqlite") / "migrations")]
    [2, 3, 4, 5]
    """
    found = [
        Migration(int(match[1]), entry.read_text())
        for entry in folder.iterdir()
        if (match := _NUMBERED.fullmatch(entry.name))
    ]
    found.sort(key=lambda migration: migration.version)
    assert [one.version for one in found] == list(range(2, len(found) + 2)), "no version is left out or doubled"
    return tuple(found)
