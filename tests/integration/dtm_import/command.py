"""`twophase import dtm` as the tests run it."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from tests.integration.dtm_import.stores import DtmStore
from twophase.dtm_import.command import app


def run(dtm: DtmStore, server: str, *options: str) -> Result:
    arguments = ["dtm", dtm.url, "--server", server, "--watch", "0", *dtm.options, *options]
    return CliRunner().invoke(app, arguments)


def report(dtm: DtmStore, server: str, *options: str) -> tuple[int, dict[str, Any]]:
    done = run(dtm, server, "--json", *options)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    # The coordinator of this process may log in between.
    (printed,) = (line for line in done.stdout.splitlines() if line.startswith('{"applied"'))
    return done.exit_code, json.loads(printed)
