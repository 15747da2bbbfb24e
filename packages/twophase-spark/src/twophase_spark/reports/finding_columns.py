"""The table of findings: a row for each message of a run that is not in order."""

from __future__ import annotations

from typing import Final

_EFFECTS = "array<struct<source:string,branch_id:string>>"

RUN_COLUMNS: Final = {"run_id": "string", "as_of": "timestamp"}
"""Columns that each row of a run has alike, with their types in Spark."""

FINDING_COLUMNS: Final = {
    "gid": "string",
    "primary": "string",
    "flags": "array<string>",
    "violation": "boolean",
    "acknowledged": "boolean",
    "unknown": "array<string>",
    "message": "struct",
    "producers": "array<struct<source:string,reason:string>>",
    "barriers": _EFFECTS,
    "ledger": _EFFECTS,
    "differing": "array<struct<source:string,branch_id:string,agrees:string>>",
}
"""Columns of a finding, with their types in Spark.

The message's fields are those of `schemas.JOURNAL`.
"""
