"""The columns of a read.

They are the table's own, those that were named, or those of a schema the user gave.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from twophase.core.errors import CannotRead, ConfigurationError
from twophase_spark.readers.database import open_database
from twophase_spark.source.options.looking import location_of
from twophase_spark.source.options.read_options import REPORT, ReadOptions
from twophase_spark.source.schema import ledger
from twophase_spark.source.schema.tables import COLUMNS, GAP_ROWS, PLACES, Column, Kind, arrow_schema


def schema_of(options: ReadOptions) -> StructType:
    """Return the columns of this read, when the user gives no schema.

    Raises:
        ConfigurationError: a column that the table does not have.
        CannotRead: the columns of a ledger stand in its database, and that cannot be asked.
    """
    if options.kind is Kind.LEDGER:
        return from_arrow_schema(arrow_schema(_of_ledger(options)))
    known = {column.name: column for column in COLUMNS[options.kind]}
    if not options.columns:
        chosen = [column for column in known.values() if column.default]
    else:
        unknown = [name for name in options.columns if name not in known]
        if unknown:
            raise ConfigurationError(
                f"Option columns: table {options.kind} has no {unknown}; it has {', '.join(known)}."
            )
        chosen = [known[name] for name in dict.fromkeys(options.columns)]
    if options.on_gap == REPORT:
        chosen = [*chosen, *(known[name] for name in PLACES[options.kind] if known[name] not in chosen), GAP_ROWS]
    return from_arrow_schema(arrow_schema(tuple(chosen)))


def target_of(options: ReadOptions, schema: StructType) -> pa.Schema:
    """Return the columns for Arrow, checked when the user gave the schema.

    Raises:
        ConfigurationError: a column that the table does not have, or of another type.
    """
    target = to_arrow_schema(schema, timezone="UTC")
    if options.kind is Kind.LEDGER:
        return target
    types = {column.name: column.type for column in COLUMNS[options.kind]}
    if options.on_gap == REPORT:
        types |= {GAP_ROWS.name: GAP_ROWS.type}
        missing = [name for name in (*PLACES[options.kind], GAP_ROWS.name) if name not in target.names]
        if missing:
            raise ConfigurationError(f"With onGap=report the schema needs {missing}: they tell of a gap.")
    for field in target:
        if field.name not in types:
            raise ConfigurationError(f"The schema names {field.name}; table {options.kind} has {', '.join(types)}.")
        if field.type != types[field.name]:
            raise ConfigurationError(f"The schema says {field.name} is {field.type}; it is {types[field.name]}.")
    return target


def _of_ledger(options: ReadOptions) -> tuple[Column, ...]:
    keys = {column.name: column for column in COLUMNS[Kind.LEDGER]}
    names = tuple(dict.fromkeys(options.columns)) or tuple(keys)
    if all(name in keys for name in names):
        return tuple(keys[name] for name in names)
    location = location_of(options)
    with open_database(location, snapshot=options.snapshot) as database:
        declared = database.column_types(options.relation)
    unknown = [name for name in names if name not in keys and name.lower() not in declared]
    if unknown:
        raise CannotRead(f"{location.shown} has no column {unknown}.")
    return tuple(
        keys.get(name) or Column(name, ledger.arrow_type(location.engine, declared[name.lower()])) for name in names
    )
