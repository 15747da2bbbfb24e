"""What an audit that stays says: a whole report when there is news in it, else one line or none.

Rounds come every few seconds, and most find what the one before them found. News is another verdict, another number of
broken messages, another message among the samples or another class of one, and something that could not be checked.
How many messages there were, and how long it took, is none.
"""

from __future__ import annotations

from collections.abc import Callable

from twophase_spark.reports.report import Report


class Teller:
    """Hears the report of every round, and says what is new.

    Arguments:
        show: is told a report that says something else than the one before it.
        say: is told the sentence of one that does not, unless no message came.
    """

    def __init__(self, show: Callable[[Report], None], say: Callable[[str], None]) -> None:
        self._show = show
        self._say = say
        self._told: object = None

    def tell(self, report: Report) -> None:
        """One round's report."""
        news = news_in(report)
        if news != self._told:
            self._show(report)
        elif report.result.messages:
            self._say(report.sentence)
        self._told = news


def news_in(report: Report) -> object:
    """What makes a report another one: equal values say the same."""
    return (
        report.verdict,
        report.result.primary,
        [line.what for line in report.coverage if not line.checked],
        [(sample.gid, sample.flags) for sample in report.result.samples],
    )
