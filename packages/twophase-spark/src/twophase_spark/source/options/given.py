"""The options as Spark hands them over.

They come out by the names that the source and the sink know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyspark.sql.types import StructField, StructType

from twophase_spark.option_table import Option, unknown

_OF_TABLE = "option."
_KEPT = "twophase"
_RESERVED = frozenset(
    {"provider", "owner", "comment", "collation", "location", "external", "is_managed_location", "table_type"}
)
"""Properties that Spark's catalog gives every table."""


def is_of_table(options: Mapping[str, str]) -> bool:
    """Return True for options of `create table … using twophase`."""
    return any(key.lower().startswith(_OF_TABLE) for key in options)


def kept_in(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the columns of a table, which keep its options.

    Spark 4.3 gives the reader of a catalog's table no option of the table, only its columns with their metadata. No
    option is a secret.
    """
    first, *others = schema.fields
    metadata = {**first.metadata, _KEPT: dict(options)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def kept_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a table's columns keep, below those of the read itself."""
    kept = schema.fields[0].metadata.get(_KEPT, {}) if schema.fields else {}
    return {**kept, **options}


def given_options(
    options: Mapping[str, str], known: Iterable[Option], user: str, ignored: Collection[str] = ()
) -> dict[str, str]:
    """Return the texts of options by the names in `known`, written in any case.

    A table that was made with `using twophase` brings its options as `option.NAME` too, and the properties that every
    table has.

    >>> given_options({"URL": " u ", "option.url": "u", "owner": "me"}, [Option(name="url")], "source")
    {'url': 'u'}

    Arguments:
        options: as Spark hands them over.
        known: every option there is.
        user: what the error calls the one who takes them.
        ignored: names in small letters that are Spark's own.

    Raises:
        ConfigurationError: an unknown one.
    """
    names = {option.name.lower(): option.name for option in known}
    of_table = {key for key in options if key.lower().startswith(_OF_TABLE)}
    skipped = {*ignored, *(_RESERVED if of_table else ())}
    given: dict[str, str] = {}
    for key, value in sorted(options.items(), key=lambda item: item[0] not in of_table):  # a read's own options win
        name = key.lower().removeprefix(_OF_TABLE) if key in of_table else key.lower()
        if name in skipped:
            continue
        if name not in names:
            raise unknown(key, tuple(names.values()), f"this {user}")
        given[names[name]] = str(value).strip()
    return given
