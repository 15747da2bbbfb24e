"""`--watch`: print something again and again until Ctrl-C."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Annotated

import typer

from twophase.cli.console import flush_output, on_terminal, plain_console
from twophase.cli.operating.http_api import EXIT_UNREACHABLE

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Print it again every --every seconds, until Ctrl-C.")]
EveryOption = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.5, max=3600, help="Pause of --watch.")]


def repeat(print_once: Callable[[], None], *, watch: bool, every_s: float, as_json: bool) -> None:
    """Print once, or with `watch` again and again.

    On a terminal each print replaces the one before; elsewhere one follows the other. A server that does not answer is
    reported each time and asked again. Ctrl-C ends it with exit code 0.
    """
    if not watch:
        print_once()
        return
    in_place = on_terminal() and not as_json
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if in_place:
                plain_console().clear()
            try:
                print_once()
            except typer.Exit as ended:
                if ended.exit_code != EXIT_UNREACHABLE:
                    raise
            flush_output()
            time.sleep(every_s)
