"""The error of a benchmark without a result."""

from __future__ import annotations

from twophase.core.errors import TwophaseError


class BenchmarkFailed(TwophaseError):
    """Nothing could be measured."""

    code = "TP-9000"
    concerns_a_message = False
    remedy = "Make sure that the server runs and that --server names it; `curl URL/api/ping` must answer."
