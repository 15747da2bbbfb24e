"""The form of the gids in a business table.

They are text, or in a column of another type that stands for text. A slice gives every value as the text it stands for;
asked for by gid, a database compares values, not texts. So a gid is bound in the column's form, and one that a column
of that type cannot hold is not asked for: it cannot be there.
"""

from __future__ import annotations

import codecs
import enum
import re
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twophase.core.errors import CannotRead
from twophase_spark.locations import Location, Role
from twophase_spark.readers.database import Database

_INTEGER = re.compile(r"-?[1-9][0-9]{0,19}|0")
_UUID = re.compile("[0-9A-Fa-f]{8}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{12}")
_OF_8_4_4_4_12 = "{one}{{8}}-{one}{{4}}-{one}{{4}}-{one}{{4}}-{one}{{12}}|{one}{{32}}"
_LOOKED_UP = "|".join(_OF_8_4_4_4_12.format(one=one) for one in ("[0-9a-f]", "[0-9A-F]"))
"""The spellings of a UUID that `spellings_of` gives."""
_TEXT_OF_SQLITE = re.compile("char|clob|text")
"""SQLite keeps no number in a column whose declared type has one of these in it."""


class Kind(enum.StrEnum):
    """The form of a column of gids.

    CHAR: text filled up with spaces by the database; ANY: each value as it came.
    """

    TEXT = "text"
    CHAR = "char"
    INTEGER = "integer"
    UUID = "uuid"
    BYTES = "bytes"
    ANY = "any"


_NAMES = {
    Kind.TEXT: ("text", "varchar", "name", "citext", "tinytext", "mediumtext", "longtext", "enum", "set"),
    Kind.CHAR: ("bpchar", "char"),
    Kind.INTEGER: ("int2", "int4", "int8", "tinyint", "smallint", "mediumint", "int", "bigint"),
    Kind.UUID: ("uuid",),
    Kind.BYTES: ("bytea", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names}


def kind_of(location: Location, database: Database) -> Kind:
    """Return the form of the gids in this location's table.

    Raises:
        CannotRead: in a type that has several ways of being written, or none that is an id.
    """
    column = location.gid_column if location.role is Role.LEDGER else "gid"
    declared = database.type_of(location.table, column)
    if location.engine == "sqlite":
        is_text = location.role is not Role.LEDGER and _TEXT_OF_SQLITE.search(declared)
        return Kind.TEXT if is_text else Kind.ANY
    kind = _KINDS.get(declared)
    if kind is None:
        raise CannotRead(
            f"{location.role} {location.name}, {location.shown}: column {column} is {declared or 'of no known type'}; "
            "a gid is text, an integer, a uuid or bytes."
        )
    return kind


def is_typed(location: Location, database: Database, column: str) -> bool:
    """Return True for a column whose values become text without loss.

    They are all texts, all whole numbers or all UUIDs.
    """
    declared = database.type_of(location.table, column)
    if location.engine == "sqlite":
        return _TEXT_OF_SQLITE.search(declared) is not None
    return _KINDS.get(declared) in {Kind.TEXT, Kind.CHAR, Kind.INTEGER, Kind.UUID}


_BASIC = "basic"
"""Instead of a codec: every character of Unicode's first plane."""
_CODECS = {
    "utf8": "", "utf8mb3": _BASIC, "utf8mb4": "", "ucs2": _BASIC, "utf16le": "", "sql_ascii": "",
    "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "greek": "iso8859_7",
    "hebrew": "iso8859_8", "koi8r": "koi8_r", "koi8u": "koi8_u", "sjis": "shift_jis", "ujis": "euc_jp",
    "macroman": "mac_roman", "tis620": "tis_620",
}  # fmt: skip
"""Python's codecs by the databases' names of character sets, where the two differ."""


def codec_of(location: Location, database: Database) -> str:
    """Return Python's name of the characters that this location's gids may have.

    A database refuses to compare a text with a column that cannot hold it. The name is empty where all can be held,
    and where Python does not know the character set.
    """
    column = location.gid_column if location.role is Role.LEDGER else "gid"
    charset = database.charset_of(location.table, column)
    if location.engine == "postgresql":
        if charset.startswith("latin"):
            return charset
        charset = charset.replace("win", "cp")
    elif charset == "utf8":
        charset = "utf8mb3"
    codec = _CODECS.get(charset, charset)
    try:
        return codec if codec in {"", _BASIC} else codecs.lookup(codec).name
    except LookupError:
        return ""


def holdable(gids: Sequence[str], codec: str, engine: str) -> list[str]:
    """Return those of these gids that texts of such a database can be.

    >>> holdable(["g1", "über", "💶"], "cp1252", "mysql"), holdable(["g1", "a\\0b"], "", "postgresql")
    (['g1', 'über'], ['g1'])
    """
    found = [gid for gid in gids if "\0" not in gid] if engine == "postgresql" else [*gids]
    if codec == _BASIC:
        return [gid for gid in found if max(gid, default="") <= "\uffff"]
    return [gid for gid in found if _is_in(codec, gid)] if codec else found


def _is_in(codec: str, gid: str) -> bool:
    if gid.isascii():
        return True
    try:
        gid.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def asked_for(gids: Sequence[str], kind: Kind, engine: str, codec: str = "") -> list[object]:
    """Return these gids as values of such a column, those it can hold.

    >>> asked_for(["g1", "7", "07"], Kind.INTEGER, "postgresql"), asked_for(["7"], Kind.ANY, "sqlite")
    ([7], ['7', b'7', 7])
    """
    if kind is Kind.INTEGER:
        return [*_integers(gids, engine)]
    if kind is Kind.UUID:
        return [*{str(uuid.UUID(gid)): None for gid in gids if _UUID.fullmatch(gid)}]
    if kind is Kind.BYTES:
        return [gid.encode() for gid in gids]
    if kind is Kind.ANY:
        return [*gids, *(gid.encode() for gid in gids), *_integers(gids, engine)]
    return [*holdable(gids, codec, engine)]


def is_given(column: str, kind: Kind) -> str:
    """Return the condition that a row has a gid.

    An empty text, or one of blanks, counts as no gid.
    >>> is_given("gid", Kind.UUID), is_given("gid", Kind.TEXT)
    ('gid is not null', "rtrim(gid) <> ''")
    """
    if kind in {Kind.INTEGER, Kind.UUID}:
        return f"{column} is not null"
    return f"{column} <> ''" if kind in {Kind.BYTES, Kind.CHAR} else f"rtrim({column}) <> ''"


def _integers(gids: Sequence[str], engine: str) -> list[int]:
    end = 2**64 if engine == "mysql" else 2**63  # MySQL has unsigned ones; the others refuse what is larger
    numbers = (int(gid) for gid in gids if _INTEGER.fullmatch(gid))
    return [number for number in numbers if -(2**63) <= number < end]


def spellings_of(gids: Sequence[str]) -> list[str]:
    """Return these gids, and those that are UUIDs in each usual spelling.

    >>> len(spellings_of(["7f3a0c1e-0000-4000-8000-00000000000a"])), spellings_of(["7f3a"])
    (4, ['7f3a'])
    """
    found: dict[str, None] = {}
    for gid in gids:
        found[gid] = None
        if _UUID.fullmatch(gid):
            value = uuid.UUID(gid)
            found |= dict.fromkeys((str(value), str(value).upper(), value.hex, value.hex.upper()))
    return [*found]


def in_one_spelling(gids: pa.Array) -> pa.Array:
    """Return gids of which those that are UUIDs have small letters and dashes.

    >>> in_one_spelling(pa.array(["7F3A0C1E00004000800000000000000A", "G1"])).to_pylist()
    ['7f3a0c1e-0000-4000-8000-00000000000a', 'G1']
    """
    compute: Any = pc  # its functions are made when it is imported; no type checker sees them
    is_uuid = compute.match_substring_regex(gids, pattern=f"^(?:{_UUID.pattern})$")
    digits = compute.replace_substring(compute.utf8_lower(gids), pattern="-", replacement="")
    groups = "^(.{8})(.{4})(.{4})(.{4})(.{12})$"
    dashed = compute.replace_substring_regex(digits, pattern=groups, replacement=r"\1-\2-\3-\4-\5")
    return compute.if_else(is_uuid, dashed, gids)


def unusually_spelled(gids: pa.Array) -> str | None:
    """Return a UUID among these gids that is in no usual spelling; None without one.

    `in_one_spelling` makes it equal to others, and no look by gid finds it.
    >>> unusually_spelled(pa.array(["7F3A0C1E00004000800000000000000A", "G1"]))
    >>> unusually_spelled(pa.array(["7F3a0c1e-0000-4000-8000-00000000000a"]))
    '7F3a0c1e-0000-4000-8000-00000000000a'
    """
    compute: Any = pc  # as above
    is_uuid = compute.match_substring_regex(gids, pattern=f"^(?:{_UUID.pattern})$")
    is_usual = compute.match_substring_regex(gids, pattern=f"^(?:{_LOOKED_UP})$")
    found = gids.filter(compute.and_not(is_uuid, is_usual))
    return str(found[0].as_py()) if len(found) else None
