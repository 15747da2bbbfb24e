"""Options in tables: a struct has everything that is known of its options.

A field has the type and the default, its annotation how a text is read and who takes it, the struct's docstring what it
means. Readers, refusals and the reference pages come from there. A text that names no option, or an option of
something else, is refused before anything is read: silence would look like success.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from twophase.barrier.dialect import validate_table
from twophase.core.errors import ConfigurationError

_MEANING = re.compile(r"^(\w+): (.*(?:\n    .*)*)", re.MULTILINE)
Read = Callable[[str, str], Any]
"""Makes the value of an option from its name and its text.

It raises ConfigurationError, which names the option and shows nothing that may be a secret.
"""


def as_written(_: str, text: str) -> str:
    """Return the text itself."""
    return text


class Option(msgspec.Struct, frozen=True):
    """The annotation of a field that is an option.

    `name` is the one that msgspec encodes the field by, unless it is given. `fits` has groups of takers: the option is
    for those that are in every group, and for all without a group. `shown` is the default in words, where the field's
    own does not tell it. `table_of` fills the others. `read` is no lambda: in an annotation, its body finds no name of
    the module.
    """

    read: Read = as_written
    fits: tuple[tuple[str, ...], ...] = ()
    name: str = ""
    shown: str = ""
    meaning: str = ""
    field: str = ""
    default: Any = None

    @property
    def takers(self) -> str:
        """The takers, in words.

        >>> Option(fits=(("read",), ("message", "history"))).takers
        'read: message, history'
        """
        return ": ".join(", ".join(group) for group in self.fits)

    @property
    def default_shown(self) -> str:
        """The default, for a reference page."""
        if self.default is msgspec.NODEFAULT:
            return self.shown or "required"
        if isinstance(self.default, int | float) and not isinstance(self.default, bool):
            return self.shown or f"`{self.default:g}`"
        return self.shown or (f"`{self.default}`" if self.default else "")


def table_of(kind: type[msgspec.Struct]) -> tuple[Option, ...]:
    """Return the options of a struct; its docstring has `name: meaning` for each."""
    meanings = dict(_MEANING.findall(inspect.getdoc(kind) or ""))
    rows = []
    for field in msgspec.structs.fields(kind):
        for option in (note for note in get_args(field.type) if isinstance(note, Option)):
            name = option.name or field.encode_name
            more = {"name": name, "field": field.name, "default": field.default}
            rows.append(msgspec.structs.replace(option, **more, meaning=" ".join(meanings.get(name, "").split())))
    return tuple(rows)


def values_of(options: Iterable[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the options that are given, by their fields.

    Raises:
        ConfigurationError: a text cannot be read, or an option without a default is missing.
    """
    missing = [one for one in options if one.default is msgspec.NODEFAULT and one.name not in given]
    if missing:
        raise ConfigurationError(f"Option {missing[0].name} is missing. {missing[0].meaning}")
    return {one.field: one.read(one.name, given[one.name]) for one in options if one.name in given}


def require_fitting(options: Iterable[Option], given: Collection[str], takers: Collection[str], whose: str) -> None:
    """Refuse an option that would silently do nothing.

    Raises:
        ConfigurationError: one that is given fits none of `takers`, which `whose` names in the error.
    """
    for option in options:
        if option.name in given and not all(set(group).intersection(takers) for group in option.fits):
            raise ConfigurationError(f"Option {option.name} is not one of {whose}; it is for {option.takers}.")


def unknown(name: str, known: Sequence[str], whose: str) -> ConfigurationError:
    """Return the refusal of an unknown option, with those that were perhaps meant.

    >>> unknown("tabel", ["table", "url"], "this source").message
    "There is no option 'tabel' of this source. Did you mean table? Known: table, url."
    """
    near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], n=3, cutoff=0.6)
    meant = ", ".join(one for one in known if one.lower() in near)
    hint = f" Did you mean {meant}?" if meant else ""
    return ConfigurationError(f"There is no option {name!r} of {whose}.{hint} Known: {', '.join(known) or 'none'}.")


def whole(least: int, most: int) -> Read:
    """Return the reader of a whole number from `least` to `most`."""

    def read(option: str, text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise ConfigurationError(f"Option {option} is a whole number from {least} to {most}, not {text!r}.")
        return int(text)

    return read


def one_of(words: Iterable[str], made: Callable[[str], Any] = str) -> Read:
    """Return the reader of one of some words, in any case.

    `made` makes the value of the word.
    """
    known = {word.lower(): str(word) for word in words}

    def read(option: str, text: str) -> Any:
        if text.lower() not in known:
            raise ConfigurationError(f"Option {option} is one of {', '.join(known.values())}, not {text!r}.")
        return made(known[text.lower()])

    return read


def identifier(option: str, text: str) -> str:
    """Return the name of a table or column.

    Raises:
        ConfigurationError: it may be more than a name.
    """
    try:
        return validate_table(text)
    except ConfigurationError:
        raise ConfigurationError(
            f"Option {option}: {text!r} is not a table or column name: letters, digits and _."
        ) from None


def identifier_or_none(option: str, text: str) -> str:
    """Return the name of a table or column, or the empty text for none."""
    return identifier(option, text) if text else ""


def words(_: str, text: str) -> tuple[str, ...]:
    """Return the words of a list separated by commas.

    >>> words("columns", "gid, state,")
    ('gid', 'state')
    """
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)
