"""The end of every Spark command: one line and an exit code for machines.

0 clean, 1 a promise or a bound is broken, 2 could not tell. Every failure ends in 2, never in 1: a crash must not look
like a violation, nor like a clean run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

import typer

from twophase.cli.console import echo
from twophase.core.errors import ConfigurationError, TwophaseError
from twophase_spark.reports.unmade import STOPPED, ReportFiles, as_told, last_line

EXIT_NOT_CHECKED = 2
EXIT_INTERRUPTED = 130
NO_FILES = ReportFiles()


def say(text: str) -> None:
    echo(f"twophase: {as_told(text)} …", err=True)


def warn(text: str) -> None:
    """Say what went wrong beside the work that was asked for."""
    with contextlib.suppress(OSError):  # a terminal that is gone
        echo(f"twophase: {as_told(text)}", err=True)


@contextlib.contextmanager
def exit_codes(
    files: ReportFiles = NO_FILES, *, command: str = "audit", failed: str = "Could not check."
) -> Iterator[None]:
    """End every failure with 2 and one line.

    `files` get it too, so that no old success stays there; not when they hold this run's own reports already.
    """
    try:
        yield
    except ConfigurationError as error:
        _ended(f"{failed} {error.code}: {error.message} `twophase spark {command} --help` explains it.", files)
    except TwophaseError as error:
        _ended(f"{failed} {error.code}: {error.message} {error.remedy}", files)
    except KeyboardInterrupt:
        _ended(STOPPED, files, EXIT_INTERRUPTED)
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 -- a crash must end in 2, not in 1
        _ended(f"{failed} {last_line(error)}\n`twophase spark doctor` says whether Spark itself works here.", files)


def _ended(text: str, files: ReportFiles, code: int = EXIT_NOT_CHECKED) -> NoReturn:
    files.say_not_made(text)
    with contextlib.suppress(OSError):  # a terminal that is gone changes no exit code
        echo(as_told(text), err=True)
    raise typer.Exit(code) from None
