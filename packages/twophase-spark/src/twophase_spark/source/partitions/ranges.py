"""The division of a table into ranges of an indexed key.

Each is read by one task, together every row once. Numbers are cut evenly. Texts (gids) are cut at keys that exist: a
guess between the lowest and the highest is moved to the next key by the index, and the database itself orders these. So
the ranges have no gap and no overlap under any collation; only their sizes depend on how good the guess was.
"""

from __future__ import annotations

import itertools

from twophase_spark.readers.database import Database
from twophase_spark.source.schema.sql import literal, select, span

ROWS_PER_PART_MIN = 20_000
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_CHARACTERS_GUESSED = 6

Conditions = tuple[str, ...]


def number_ranges(key: str, first: int, last: int, parts_max: int) -> list[Conditions]:
    """Return `first` ≤ key ≤ `last` in at most `parts_max` parts of equal width.

    >>> number_ranges("id", 1, 60_000, 2)
    [('id >= 1', 'id < 30001'), ('id >= 30001', 'id < 60001')]
    >>> number_ranges("id", 1, 500, 8)
    [('id >= 1', 'id < 501')]
    """
    width = last - first + 1
    count = max(1, min(parts_max, width // ROWS_PER_PART_MIN))
    bounds = [first + width * part // count for part in range(count)] + [last + 1]
    return [tuple(span("", key, begin, end)) for begin, end in itertools.pairwise(bounds)]


def text_ranges(database: Database, engine: str, table: str, key: str, parts_max: int) -> list[Conditions]:
    """Return the whole table in at most `parts_max` parts by an indexed text key.

    It is open at both ends.
    """
    counted = select(["count(*)"], f"(select 1 as one from {table} limit {ROWS_PER_PART_MIN + 1}) as few")  # noqa: S608 -- validated
    [(few,)] = database.rows(counted)
    if few <= ROWS_PER_PART_MIN or parts_max == 1:
        return [()]
    [(lowest, highest)] = database.rows(select([f"min({key})", f"max({key})"], table))
    found: set[str] = set()
    for guess in guesses(str(lowest), str(highest), parts_max):
        [(snapped,)] = database.rows(select([f"min({key})"], table, span(engine, key, guess, None)))
        if snapped is not None:
            found.add(str(snapped))
    found.discard(str(lowest))
    if not found:
        return [()]
    listed = ", ".join(literal(engine, one) for one in found)
    ordered = database.rows(select([f"distinct {key}"], table, [f"{key} in ({listed})"], key))
    bounds = [None, *(str(row[0]) for row in ordered), None]
    return [tuple(span(engine, key, begin, end)) for begin, end in itertools.pairwise(bounds)]


def guesses(lowest: str, highest: str, parts: int) -> list[str]:
    """Return texts that cut the range into about equal `parts`.

    The range is from `lowest` to `highest`.

    >>> guesses("tp10", "tp30", 2)
    ['tp200000']
    >>> guesses("a", "a", 4)
    []
    """
    common = _common(lowest, highest)
    tails = [text[len(common) :][:_CHARACTERS_GUESSED] for text in (lowest, highest)]
    plain = all(character in _BASE36 for tail in tails for character in tail)
    alphabet = _BASE36 if plain else _PRINTABLE
    low, high = (_number(tail, alphabet) for tail in tails)
    numbers = sorted({low + (high - low) * part // parts for part in range(1, parts)} - {low})
    return [common + _text(number, alphabet) for number in numbers]


def _common(one: str, other: str) -> str:
    return one[
        : next(
            (position for position, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
            min(len(one), len(other)),
        )
    ]


def _number(text: str, alphabet: str) -> int:
    number = 0
    for position in range(_CHARACTERS_GUESSED):
        digit = text[position] if position < len(text) else alphabet[0]
        number = number * len(alphabet) + (max(0, alphabet.find(digit)) if digit <= alphabet[-1] else len(alphabet) - 1)
    return number


def _text(number: int, alphabet: str) -> str:
    digits: list[str] = []
    for _ in range(_CHARACTERS_GUESSED):
        number, digit = divmod(number, len(alphabet))
        digits.append(alphabet[digit])
    return "".join(reversed(digits))
