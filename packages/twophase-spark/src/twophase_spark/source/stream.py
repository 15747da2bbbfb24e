"""The reader behind `spark.readStream.format("twophase")`.

It follows history by (node, seq), or entries by (topic, queue, number), every row exactly once. An offset is a map from
node to the last seq that was read, or from topic and queue to the number of the next entry. Both are written in commit
order, and the last one in the commit that adds the rows; so none can appear behind the reader (`partitions.lines`).
Spark writes the end of a batch into its checkpoint before it reads the batch: after a crash the same stretch is read
again. Nodes and queues that appear later begin at their first row.

Spark does not record the first batch's beginning: until that batch is committed, each restart asks for it anew, and by
then retention may have moved `earliest`, and time has moved `latest`. So an end records where its stretch begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from twophase.core.errors import CannotRead, ConfigurationError
from twophase_spark.readers.database import Database
from twophase_spark.source.options import filters
from twophase_spark.source.options.choosing import target_of
from twophase_spark.source.options.looking import looked_into
from twophase_spark.source.options.read_options import EARLIEST, LATEST, REPORT, ReadOptions
from twophase_spark.source.partitions import gaps
from twophase_spark.source.partitions.lines import (
    Line,
    last_of,
    line_of,
    lowest,
    newest,
    numbers_of,
    oldest_behind_ms,
    range_of,
    text_of,
)
from twophase_spark.source.partitions.parts import Part, Stretch
from twophase_spark.source.partitions.ranges import ROWS_PER_PART_MIN
from twophase_spark.source.partitions.reading import Reader, snapshot_of

LOOKS_SECONDS_MIN = 0.2
BEHIND = "behind"
LAG = "lag"
Offset = dict[str, int | dict[str, int]]
"""Node to the last seq read, or queue to the number behind it.

The end of a batch also has under `BEHIND` what was read before it, and a report under `LAG` how far it is behind. Keys
are texts, because Spark keeps offsets as JSON.
"""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows history, or the entries of queues."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Keep the options and the columns.

        The filters are applied after the rows were counted, so not in SQL.
        """
        self._options = options
        self._schema = schema
        self._frozen: dict[Line, int] | None = None
        self._seen: dict[Line, int] = {}
        self._look_again = 0.0
        self._done: dict[Line, int] | None = None
        target_of(options, schema)

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Return where a stream without a checkpoint begins, for every present line."""
        with looked_into(self._options) as (database, engine):
            tops = self._look(database)
            if self._options.start == LATEST:
                return _offset(tops)
            if self._options.start == EARLIEST:
                firsts = {line: lowest(database, engine, line) for line in tops}
                return _offset({node: tops[node] if first is None else first - 1 for node, first in firsts.items()})
        named = seqs_of(self._options.start_seqs or {})
        ahead = {line: seq for line, seq in named.items() if seq > tops.get(line, 0)}
        if ahead:
            raise ConfigurationError(
                f"Option start names seqs that do not exist yet: {_known(ahead)}; the store has {_known(tops)}."
            )
        return _offset({node: named.get(node, 0) for node in tops})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """Return a limit of `maxRowsPerBatch` rows a batch, when that option was given."""
        most = self._options.rows_per_batch_max
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Freeze where this run ends: a live coordinator would never let it."""
        self._frozen = self._tops()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 -- Spark's name
        """Return where the next batch ends: as far as there are rows, within the limits.

        The frozen end is a limit, too.
        """
        done = seqs_of(start)
        tops = self._tops()
        _require_same_store(done, tops)
        if self._frozen is not None:
            tops = {node: min(seq, self._frozen.get(node, 0)) for node, seq in tops.items()}
        left = {node: max(0, seq - done.get(node, 0)) for node, seq in tops.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(left.values())
        taken = shared_out(left, most)
        self._done = {node: done.get(node, 0) + taken.get(node, 0) for node in done | tops}
        if not any(taken.values()):
            return start  # the very same text: another text is a batch to Spark
        return {**_offset(self._done), BEHIND: _known(done)}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Return where history ends now, for Spark's progress report.

        Under `LAG` stands what the batch that was planned last leaves to read: `rows`, and `ms`, the age of the oldest
        of them by this machine's clock; 0 for none.
        """
        if self._done is None:  # nothing has been planned in this process
            return _offset(self._tops())
        with looked_into(self._options) as (database, engine):
            tops = self._look(database)
            left = {line: top - self._done.get(line, 0) for line, top in tops.items()}
            times = [
                oldest_behind_ms(database, engine, line, self._done.get(line, 0))
                for line, rows in left.items()
                if rows > 0
            ]
        oldest = min((at for at in times if at is not None), default=None)
        age_ms = 0 if oldest is None else max(0, _now_ms() - oldest)
        return {**_offset(tops), LAG: {"rows": sum(max(0, rows) for rows in left.values()), "ms": age_ms}}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the stretches of a batch, cut into tasks of a useful size.

        They begin where the batch's end records it.
        """
        noted = end.get(BEHIND)
        done = seqs_of(noted if isinstance(noted, dict) else start)
        spans = [(node, done.get(node, 0) + 1, last) for node, last in seqs_of(end).items() if last > done.get(node, 0)]
        rows = sum(last - first + 1 for _, first, last in spans)
        width = max(ROWS_PER_PART_MIN, -(-rows // self._options.partitions))
        return [
            Part(stretch=Stretch(node, begin, min(begin + width - 1, last), topic))
            for (topic, node), first, last in spans
            for begin in range(first, last + 1, width)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one stretch, and the reports of its gaps."""
        assert isinstance(partition, Part), "Spark hands back what was planned"
        assert partition.stretch is not None, "a stream reads stretches"
        yield from read_stretch(self._options, target_of(self._options, self._schema), partition.stretch)

    def commit(self, end: Offset) -> None:
        """Do nothing: the rows stay in the store for others."""

    def _tops(self) -> dict[Line, int]:
        """Return where each line ends.

        It is read at most every `LOOKS_SECONDS_MIN`, because Spark polls far more often.
        """
        if time.monotonic() >= self._look_again:
            with looked_into(self._options) as (database, _):
                self._look(database)
        return self._seen

    def _look(self, database: Database) -> dict[Line, int]:
        """Read where each line ends in this snapshot.

        The next calls use it: none may see an older end.
        """
        self._seen = newest(database, self._options.kind)
        self._look_again = time.monotonic() + LOOKS_SECONDS_MIN
        return self._seen


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_stretch(options: ReadOptions, target: pa.Schema, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """Yield every row of the stretch that passes the filters; report gaps.

    By option onGap they are rows, or an error.

    Raises:
        HistoryGap: rows are gone, and onGap is fail.
        CannotRead: the store ends before the stretch, so its numbers went back after the batch was planned.
    """
    with snapshot_of(options) as (run, engine):
        reader = Reader(options, target, engine)
        counted = 0
        for raw in run(reader.statement(range_of(stretch, engine)), reader.types()):
            counted += raw.num_rows
            batch = reader.shaped(filters.keep(raw, options))
            if batch.num_rows:
                yield batch
        if counted != stretch.last - stretch.first + 1:
            lasts = [last for one in run(last_of(stretch, engine), {}) for last in one.column("place").to_pylist()]
            line = (stretch.topic, stretch.node)
            _require_same_store({line: stretch.last}, {line: max(lasts, default=0)})
            seqs = run(numbers_of(stretch, engine), {})
            found = gaps.holes(stretch, (seq for one in seqs for seq in one.column("place").to_pylist()))
            if options.on_gap != REPORT:
                raise gaps.failure(found)
            yield gaps.as_rows(found, target)


def shared_out(left: dict[Line, int], most: int) -> dict[Line, int]:
    """Return how many rows of each line a batch takes.

    It takes all, or `most` in equal shares, none of which is wasted.

    >>> shared_out({("", 1): 10, ("", 2): 500, ("", 3): 500}, 110)
    {('', 1): 10, ('', 2): 50, ('', 3): 50}
    """
    taken: dict[Line, int] = {}
    by_backlog = sorted(left, key=lambda node: (left[node], node))
    for position, node in enumerate(by_backlog):
        share = -(-most // (len(by_backlog) - position))
        taken[node] = min(left[node], share, most)
        most -= taken[node]
    return taken


def _require_same_store(done: dict[Line, int], tops: dict[Line, int]) -> None:
    """Refuse a store whose numbers went back: it is not the one that was followed.

    Rows that it wrote since cannot be distinguished.
    """
    behind = {node: seq for node, seq in done.items() if seq > tops.get(node, 0)}
    if behind:
        raise CannotRead(
            f"The checkpoint has read up to {_known(behind)}, and the store only has {_known(tops)}. It is another "
            "store, one restored from a backup, or a standby that was behind; follow it with a new checkpoint."
        )


def seqs_of(offset: Mapping[str, int | dict[str, int]]) -> dict[Line, int]:
    """Return line to the last number read.

    >>> seqs_of({"1": 7, "behind": {"1": 5}}), seqs_of({"orders/0": 7})
    ({('', 1): 7}, {('orders', 0): 7})
    """
    return {line_of(name): seq for name, seq in offset.items() if isinstance(seq, int)}


def _offset(seqs: dict[Line, int]) -> Offset:
    return {**_known(seqs)}


def _known(seqs: dict[Line, int]) -> dict[str, int]:
    return {text_of(line): seq for line, seq in sorted(seqs.items())}
