"""An operator reads what a consumer reports.

That is the text of its refusal, the code of a barrier's error, and that a middleware has changed the status of one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask, Response, request
from sqlalchemy import NullPool, create_engine
from typer.testing import CliRunner
from werkzeug.serving import make_server

from tests.support.http_server import served
from twophase import Message
from twophase.barrier import install
from twophase.cli.app import app as command
from twophase.integrations.flask import BranchRefused, branch
from twophase.testing import InProcessCoordinator

PATIENCE_S = 60


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[str]:
    """A service whose stock is sold out, and whose other database has no barrier."""
    app = Flask("shop")
    engines = [create_engine(f"sqlite:///{tmp_path / name}.db", poolclass=NullPool) for name in ("stock", "bare")]
    install(engines[0])

    @app.post("/sold-out")
    @branch(engines[0])
    def sold_out(connection: object) -> None:
        raise BranchRefused("only 3 left")

    @app.post("/rewritten")
    @branch(engines[0])
    def rewritten(connection: object) -> None:
        raise BranchRefused("only 3 left")

    @app.after_request
    def answer_all(response: Response) -> Response:
        if request.path == "/rewritten":
            response.status_code = 200
        return response

    @app.post("/bare")
    @branch(engines[1])
    def bare(connection: object) -> None: ...

    server = make_server("127.0.0.1", 0, app)
    with served(server):
        yield f"http://127.0.0.1:{server.server_port}"


def test_explain_shows_why_the_consumer_does_not_accept(consumer: str) -> None:
    with InProcessCoordinator() as coordinator:
        for path, reason in (
            ("sold-out", "only 3 left"),
            ("bare", "TP-6001"),
            ("rewritten", "X-Twophase-Verdict: not_done"),
        ):
            message = Message(coordinator.url).add(f"{consumer}/{path}", {}).submit()
            deadline = time.monotonic() + PATIENCE_S
            told = ""
            while reason not in told and time.monotonic() < deadline:
                told = CliRunner().invoke(command, ["explain", message.gid, "--server", coordinator.url]).output
            assert reason in told
