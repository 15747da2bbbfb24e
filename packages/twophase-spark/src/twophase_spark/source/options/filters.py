"""The filters among the options, as SQL and on the batches.

SQL reads fewer rows, and the batches are filtered exactly: a database's collation may take two gids for one prefix; the
batches are compared character by character.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from twophase_spark.source.options.read_options import ReadOptions
from twophase_spark.source.schema.sql import literal, span
from twophase_spark.source.schema.tables import HAS_STATE, TIME_OF_CREATION, TIME_OF_CUT


def columns_needed(options: ReadOptions) -> list[str]:
    """Return the columns that the filters of a read need beside those asked for."""
    names = {"gid"} if options.gid_prefix or options.gids else set()
    if options.states:
        names.add("state")
    if options.created_after_ms is not None or options.created_before_ms is not None:
        names.add(TIME_OF_CREATION[options.kind])
    if options.as_of_ms is not None:
        names.add(TIME_OF_CUT[options.kind])
    return sorted(names)


def conditions(options: ReadOptions, engine: str) -> tuple[str, ...]:
    """Return the filters on a coordinator's own table as SQL.

    Its gids compare by bytes.
    """
    found: list[str] = []
    if options.kind in HAS_STATE and options.states:
        found.append(f"state in ({', '.join(str(int(state)) for state in sorted(options.states))})")
    for column, sign, bound in _bounds(options):
        found.append(f"{column} {sign} {bound}")
    if options.gids:
        found.append(f"gid in ({', '.join(literal(engine, gid) for gid in options.gids)})")
    if options.gid_prefix:
        found += span(engine, "gid", options.gid_prefix, _behind(options.gid_prefix))
        found.append(f"substr(gid, 1, {len(options.gid_prefix)}) = {literal(engine, options.gid_prefix)}")
    return tuple(found)


def _behind(prefix: str) -> str | None:
    """Return the least text behind all that begin with `prefix`.

    The order is of code points; None when the text is not plain.

    >>> _behind("tp01"), _behind("\U0010ffff")
    ('tp02', None)
    """
    last = ord(prefix[-1])
    return prefix[:-1] + chr(last + 1) if last < 0xD7FF else None


def _bounds(options: ReadOptions) -> list[tuple[str, str, int]]:
    created = TIME_OF_CREATION.get(options.kind, "")
    cut = TIME_OF_CUT.get(options.kind, "")
    bounds = (
        (created, ">=", options.created_after_ms),
        (created, "<", options.created_before_ms),
        (cut, "<=", options.as_of_ms),
    )
    return [(column, sign, bound) for column, sign, bound in bounds if bound is not None]


def keep(batch: pa.RecordBatch, options: ReadOptions) -> pa.RecordBatch:
    """Return the rows of a database's batch that were asked for.

    A row whose time is null is not.
    """
    if not options.filters:
        return batch
    import pyarrow.compute  # noqa: PLC0415 -- slow to import, and planning a read compares nothing

    compute: Any = pyarrow.compute  # its functions are made when it is imported; no type checker sees them
    compare = {">=": compute.greater_equal, "<": compute.less, "<=": compute.less_equal}
    masks = [compare[sign](batch.column(column).cast(pa.int64()), bound) for column, sign, bound in _bounds(options)]
    if options.states:
        masks.append(
            compute.is_in(batch.column("state").cast(pa.int32()), pa.array(sorted(options.states), pa.int32()))
        )
    if options.gid_prefix:
        masks.append(compute.starts_with(batch.column("gid").cast(pa.string()), options.gid_prefix))
    if options.gids:
        masks.append(compute.is_in(batch.column("gid").cast(pa.string()), pa.array(options.gids, pa.string())))
    mask = masks[0]
    for other in masks[1:]:
        mask = compute.and_(mask, other)
    return batch.filter(mask)
