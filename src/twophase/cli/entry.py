"""Entry point of the `twophase` command; it needs the base installation only.

The script is always installed; the library that reads its arguments comes with the extras.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

_EXIT_INCOMPLETE: Final = 2
"""The exit code of a command whose libraries are missing, as in `cli.app`."""


def main() -> None:
    """Run the command; without its library print which extra brings it."""
    if sys.argv[1:2] == ["server"] and sys.platform != "win32":
        # A reload right behind the start would end it. The server takes the signal once it can (`server.app`).
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        from twophase.cli import app  # noqa: PLC0415 -- needs typer, an extra
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.stderr.write(
            "twophase: the command needs the package 'typer'. Run: pip install 'twophase[server]',"
            " 'twophase[operator]' for the commands to a server elsewhere,"
            " or 'twophase[sqlalchemy]' for `twophase barrier` alone\n"
        )
        raise SystemExit(_EXIT_INCOMPLETE) from error
    app.main()
