"""The output of an audit that runs for good: a whole report for news, else a line.

Rounds come every few seconds, and most find what the one before them found. News is another verdict, another number of
broken messages, another message among the samples or another class of one, and something that could not be checked. The
number of messages and the duration are no news.
"""

from __future__ import annotations

from collections.abc import Callable

from twophase_spark.reports.report import Report


class Reporter:
    """Takes the report of every round, and prints what is new.

    Arguments:
        show: called with a report that differs from the one before it.
        say: called with the sentence of one that does not, unless no message came.
    """

    def __init__(self, show: Callable[[Report], None], say: Callable[[str], None]) -> None:
        self._show = show
        self._say = say
        self._last: object = None

    def tell(self, report: Report) -> None:
        """Print one round's report."""
        news = news_in(report)
        if news != self._last:
            self._show(report)
        elif report.result.messages:
            self._say(report.sentence)
        self._last = news


def news_in(report: Report) -> object:
    """Return the parts of a report that make news: equal values mean no news."""
    return (
        report.verdict,
        report.result.primary,
        [line.what for line in report.coverage if not line.checked],
        [(sample.gid, sample.flags) for sample in report.result.samples],
    )
