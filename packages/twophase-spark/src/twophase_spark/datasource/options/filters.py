"""The filters among the options, as SQL and on the batches.

SQL reads fewer rows, and the batches are filtered exactly: a database's collation may take two gids for one prefix; the
batches are compared character by character.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from twophase_spark.datasource.options.read_options import ReadOptions
from twophase_spark.datasource.schema.sql import literal, span
from twophase_spark.datasource.schema.tables import HAS_STATE, TIME_OF_CREATION, TIME_OF_CUT


def columns_needed(wanted: ReadOptions) -> list[str]:
    """Return the columns that the filters of a read need beside those asked for."""
    names = {"gid"} if wanted.gid_prefix else set()
    if wanted.states:
        names.add("state")
    if wanted.created_after_ms is not None or wanted.created_before_ms is not None:
        names.add(TIME_OF_CREATION[wanted.kind])
    if wanted.as_of_ms is not None:
        names.add(TIME_OF_CUT[wanted.kind])
    return sorted(names)


def conditions(wanted: ReadOptions, engine: str) -> tuple[str, ...]:
    """Return the filters on a coordinator's own table as SQL.

    Its gids compare by bytes.
    """
    found: list[str] = []
    if wanted.kind in HAS_STATE and wanted.states:
        found.append(f"state in ({', '.join(str(state) for state in sorted(wanted.states))})")
    for column, sign, bound in _bounds(wanted):
        found.append(f"{column} {sign} {bound}")
    if wanted.gid_prefix:
        found += span(engine, "gid", wanted.gid_prefix, _behind(wanted.gid_prefix))
        found.append(f"substr(gid, 1, {len(wanted.gid_prefix)}) = {literal(engine, wanted.gid_prefix)}")
    return tuple(found)


def _behind(prefix: str) -> str | None:
    """Return the least text behind all that begin with `prefix`.

    The order is of code points; None when the text is not plain.

    >>> _behind("tp01"), _behind("\U0010ffff")
    ('tp02', None)
    """
    last = ord(prefix[-1])
    return prefix[:-1] + chr(last + 1) if last < 0xD7FF else None


def _bounds(wanted: ReadOptions) -> list[tuple[str, str, int]]:
    created = TIME_OF_CREATION.get(wanted.kind, "")
    cut = TIME_OF_CUT.get(wanted.kind, "")
    bounds = (
        (created, ">=", wanted.created_after_ms),
        (created, "<", wanted.created_before_ms),
        (cut, "<=", wanted.as_of_ms),
    )
    return [(column, sign, bound) for column, sign, bound in bounds if bound is not None]


def keep(batch: pa.RecordBatch, wanted: ReadOptions) -> pa.RecordBatch:
    """Return the rows of a database's batch that were asked for.

    A row whose time is null is not.
    """
    if not wanted.filters:
        return batch
    import pyarrow.compute  # noqa: PLC0415 -- slow to import, and planning a read compares nothing

    compute: Any = pyarrow.compute  # its functions are made when it is imported; no type checker sees them
    compare = {">=": compute.greater_equal, "<": compute.less, "<=": compute.less_equal}
    masks = [compare[sign](batch.column(column).cast(pa.int64()), bound) for column, sign, bound in _bounds(wanted)]
    if wanted.states:
        masks.append(compute.is_in(batch.column("state").cast(pa.int32()), pa.array(sorted(wanted.states), pa.int32())))
    if wanted.gid_prefix:
        masks.append(compute.starts_with(batch.column("gid").cast(pa.string()), wanted.gid_prefix))
    mask = masks[0]
    for other in masks[1:]:
        mask = compute.and_(mask, other)
    return batch.filter(mask)
