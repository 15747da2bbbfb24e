"""The baseline of an audit: broken messages that were acknowledged.

They fail no later audit. A message is acknowledged for the classes that stand beside its gid. Another class makes it a
violation again. The file is JSON, sorted, so that a review sees what was added.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase.core.errors import ConfigurationError
from twophase_spark.rules.taxonomy import VIOLATIONS

FORMAT = 1
ACKNOWLEDGED_MAX = 100_000
"""Bound on the messages of a baseline: they are held on the driver."""
_SCHEMA = "gid string, flags array<string>"


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the file: classes by gid."""

    format: int = FORMAT
    acknowledged: dict[str, tuple[str, ...]] = {}


def read_baseline(path: Path) -> Baseline:
    """Return the contents of a file that `write_baseline` made, or a person.

    Raises:
        ConfigurationError: it is missing, or no such file; the text says what is wrong.
    """
    try:
        baseline = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise ConfigurationError(
            f"The baseline {path} cannot be read: {error.strerror}. Make one with --write-baseline {path}."
        ) from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{path} is not a baseline: {error}.") from None
    if baseline.format != FORMAT:
        raise ConfigurationError(f"{path} has format {baseline.format}; this twophase knows {FORMAT}.")
    known = {flag.value for flag in VIOLATIONS}
    wrong = sorted({flag for flags in baseline.acknowledged.values() for flag in flags} - known)
    if wrong:
        raise ConfigurationError(
            f"{path}: no promise is broken by {', '.join(wrong)}; known: {', '.join(sorted(known))}."
        )
    return baseline


def baseline_frame(spark: SparkSession, baseline: Baseline) -> DataFrame:
    """Return the baseline as (gid, flags)."""
    rows = {
        "gid": pa.array(list(baseline.acknowledged), pa.string()),
        "flags": pa.array([list(flags) for flags in baseline.acknowledged.values()], pa.list_(pa.string())),
    }
    return spark.createDataFrame(pa.table(rows), _SCHEMA)


def write_baseline(path: Path, findings: DataFrame) -> None:
    """Write a file by which every broken message of these findings is acknowledged.

    Raises:
        ConfigurationError: there are too many.
    """
    broken = F.array_intersect("flags", F.array(*[F.lit(flag.value) for flag in VIOLATIONS]))
    rows = findings.where("violation").select("gid", broken.alias("flags")).limit(ACKNOWLEDGED_MAX + 1).collect()
    if len(rows) > ACKNOWLEDGED_MAX:
        raise ConfigurationError(
            f"More than {ACKNOWLEDGED_MAX} messages are broken, too many for a baseline: find the cause first."
        )
    found = Baseline(acknowledged={row["gid"]: tuple(row["flags"]) for row in sorted(rows)})
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
