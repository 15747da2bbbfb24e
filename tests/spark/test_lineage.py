"""Lineage of audits: events of real runs, and backends that do not take them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import HTTPServer
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any
from unittest import mock

import pytest
from openlineage.client import event_v2 as model
from openlineage.client import generated
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.spark.cases import BROKEN, IN_ORDER, MOVING
from tests.spark.plant import System, make_system, one_service, plant
from tests.spark.truth import nowadays
from tests.support.http_server import QuietHandler, served
from twophase.core.errors import CannotRead
from twophase_spark.cli.commands import app
from twophase_spark.inputs.plan import Plan
from twophase_spark.lineage import sending
from twophase_spark.lineage.sending import Backend, Lineage, Make, is_configured, lineage_sent
from twophase_spark.locations import parse_coordinator
from twophase_spark.reports.finding_columns import FINDING_COLUMNS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
GOOD = [case for case in IN_ORDER if one_service(case)]
BAD = [case for case in BROKEN if one_service(case)]
PLAN = Plan((parse_coordinator("sqlite:///tp.db"),))
Event = dict[str, Any]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore the environment: OpenLineage's client sets variables, too."""
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
            del os.environ[name]
        yield
    for thread in threading.enumerate():
        if thread.name == "twophase-lineage":
            thread.join(60)


@pytest.fixture
def events(tmp_path: Path) -> Callable[[], list[Event]]:
    """Events go to a file, of which this returns what stands in it."""
    file = tmp_path / "events.jsonl"
    for name, value in {"TYPE": "file", "LOG_FILE_PATH": str(file), "APPEND": "true"}.items():
        os.environ[f"OPENLINEAGE__TRANSPORT__{name}"] = value
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def system(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> System:
    """A system whose audits use the tests' Spark."""
    monkeypatch.setattr("twophase_spark.session.open_session", lambda settings: contextlib.nullcontext(spark))
    return make_system(tmp_path)


def by_model(event: Event) -> model.RunEvent:
    """Return an event as OpenLineage's own classes, which check it.

    Every facet must be one that they know.
    """
    for dataset in [*event["inputs"], *event["outputs"]]:
        for name in {"facets", "inputFacets", "outputFacets"} & set(dataset):
            dataset[name] = _facets(dataset[name])
    return model.RunEvent(
        eventTime=event["eventTime"],
        eventType=model.RunState(event["eventType"]),
        run=model.Run(event["run"]["runId"], _facets(event["run"]["facets"])),
        job=model.Job(event["job"]["namespace"], event["job"]["name"], _facets(event["job"]["facets"])),
        inputs=[model.InputDataset(**one) for one in event["inputs"]],
        outputs=[model.OutputDataset(**one) for one in event["outputs"]],
        producer=event["producer"],
    )


def _facets(plain: dict[str, Event]) -> dict[str, Any]:
    return {name: _facet(facet) for name, facet in plain.items()}


def _facet(plain: Event) -> Any:
    modules = [import_module(f"{generated.__name__}.{found.name}") for found in iter_modules(generated.__path__)]
    kinds: set[Any] = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    [kind] = [kind for kind in kinds if "_get_schema" in vars(kind) and kind._get_schema() == plain["_schemaURL"]]
    return kind(producer=plain["_producer"], **{name: value for name, value in plain.items() if name[0] != "_"})


def audit(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["audit", "--grace=0", "--late=1e12", *arguments])


def test_a_run_with_violations_sends_its_start_its_result_and_the_schema_of_its_findings(
    system: System, events: Callable[[], list[Event]], tmp_path: Path, spark: SparkSession
) -> None:
    cases = nowadays([*GOOD, *BAD, *MOVING])
    plant(system, cases)
    parent = "airflow/nightly.audit/01998e2a-3b5c-7d1e-8f00-0123456789ab"
    os.environ |= {"OPENLINEAGE_NAMESPACE": "bank", "OPENLINEAGE_PARENT_ID": parent}
    findings, report = tmp_path / "findings", tmp_path / "report.json"

    done = audit(*system.arguments, f"--findings={findings}", f"--json={report}")

    assert done.exit_code == 1, done.stderr
    start, end = events()
    text = json.dumps([start, end])
    plain = json.loads(report.read_bytes())
    assert [event["eventType"] for event in (start, end)] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["run"]["runId"].replace("-", "") == plain["run_id"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("bank", "twophase.audit")
    assert end["run"]["facets"]["parent"]["job"] == {"namespace": "airflow", "name": "nightly.audit", "facets": {}}
    assert [(one["namespace"], one["name"]) for one in end["inputs"]] == [
        (f"sqlite://{system.coordinator}", "message"),
        (f"sqlite://{system.coordinator}", "history"),
        (f"sqlite://{system.bank_a}", "barrier"),
        (f"sqlite://{system.bank_b}", "barrier"),
        (f"sqlite://{system.bank_b}", "ledger"),
    ]
    [table] = end["outputs"]
    assert (table["namespace"], table["name"]) == ("file", str(findings))
    result = plain["result"]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == result["messages"] - result["clean"]
    tests = {one["name"]: one["actual"] for one in end["run"]["facets"]["test"]["tests"]}
    assert tests == {name: str(result["counts"][name]) for name in tests}
    assert {"lost", "late", "unchecked"} < set(tests)
    asserted = end["inputs"][2]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert {one["assertion"]: one["success"] for one in asserted} == dict.fromkeys(
        ("lost", "ghost", "contrary_verdict"), False
    )
    assert not any(case.gid in text for case in cases)
    sent = {one["name"]: one["type"] for one in table["facets"]["schema"]["fields"]}
    kept = {field.name: field.dataType.simpleString() for field in spark.read.parquet(str(findings)).schema}
    assert sent == kept | {"message": "struct"}
    assert set(FINDING_COLUMNS) < set(sent)
    assert [by_model(event).eventType for event in (start, end)] == [model.RunState.START, model.RunState.COMPLETE]


def test_an_audit_that_could_not_check_fails_and_shows_no_password(
    system: System, events: Callable[[], list[Event]]
) -> None:
    done = audit(
        f"--coordinator=sqlite:///{system.coordinator}", "--producer=a=postgresql://me:hunter2@127.0.0.1:1/bank"
    )

    assert done.exit_code == 2
    start, end = events()
    assert [event["eventType"] for event in (start, end)] == ["START", "FAIL"]
    assert end["run"]["facets"]["errorMessage"]["message"].startswith("TP-")
    assert (end["inputs"][2]["namespace"], end["inputs"][2]["name"]) == (
        "postgres://127.0.0.1:1",
        "bank.public.barrier",
    )
    assert "hunter2" not in json.dumps([start, end])
    by_model(end)


def test_an_audit_of_nothing_passes_no_test(system: System, events: Callable[[], list[Event]]) -> None:
    done = audit(*system.arguments)

    end = events()[-1]
    assert (done.exit_code, end["eventType"]) == (2, "FAIL")
    assert {one["status"] for one in end["run"]["facets"]["test"]["tests"]} == {"skip"}
    assert "nothing is proven" in end["run"]["facets"]["errorMessage"]["message"]


class Silent:
    """A backend that takes connections and never answers."""

    def __enter__(self) -> Silent:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class _Refusing(QuietHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.send_header("content-length", "0")
        self.end_headers()


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Refusing)
    with served(server):
        yield server.server_port


def send_to(port: int) -> None:
    for name, value in {"TYPE": "http", "URL": f"http://127.0.0.1:{port}", "TIMEOUT": "3"}.items():
        os.environ[f"OPENLINEAGE__TRANSPORT__{name}"] = value
    os.environ["OPENLINEAGE__TRANSPORT__RETRY"] = '{"total": 0}'


def test_a_backend_that_hangs_delays_no_audit(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(system, nowadays(GOOD))
    monkeypatch.setattr(sending, "WAIT_S_MAX", 0.2)
    with Silent() as backend:
        send_to(backend.port)

        done = audit(*system.arguments)

    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("CLEAN")
    assert "OpenLineage events were not sent; the audit is not affected." in done.stderr


def test_the_wait_for_a_backend_that_hangs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "WAIT_S_MAX", 0.2)
    told: list[str] = []
    with Silent() as backend:
        send_to(backend.port)
        started = time.monotonic()
        with lineage_sent(told.append) as lineage, lineage.run(PLAN):
            pass
        took_s = time.monotonic() - started

    assert took_s < 2.5, "less than the client's own three seconds"
    assert len(told) == 1


@pytest.mark.parametrize("answering", [True, False], ids=["answers 500", "is not there"])
def test_a_backend_that_refuses_costs_one_warning(*, answering: bool) -> None:
    told: list[str] = []
    with contextlib.ExitStack() as open_:
        send_to(open_.enter_context(refusing()) if answering else 1)
        with lineage_sent(told.append) as lineage:
            for _ in range(3):
                with lineage.run(PLAN):
                    pass

    [text] = told
    assert ("500" if answering else "refused") in text


def test_wrong_settings_cost_one_warning() -> None:
    os.environ["OPENLINEAGE__TRANSPORT__TYPE"] = "carrier-pigeon"
    told: list[str] = []
    with lineage_sent(told.append) as lineage, lineage.run(PLAN):
        pass
    assert len(told) == 1


def test_a_missing_client_costs_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ["OPENLINEAGE_URL"] = "http://127.0.0.1:1"
    monkeypatch.setattr(sending, "has_client", lambda: False)
    told: list[str] = []
    with lineage_sent(told.append) as lineage, lineage.run(PLAN):
        pass
    assert [text for text in told if "twophase-spark[openlineage]" in text] == told
    assert len(told) == 1


def test_events_are_sent_only_where_a_setting_says_where_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert not is_configured({})
    assert not is_configured({"OPENLINEAGE_NAMESPACE": "bank"})
    assert is_configured({"OPENLINEAGE_URL": "http://catalogue"})
    assert is_configured({"OPENLINEAGE__TRANSPORT__TYPE": "console"})
    assert not is_configured({"OPENLINEAGE_URL": "http://catalogue", "OPENLINEAGE_DISABLED": "True"})
    Path("openlineage.yml").write_text("transport:\n  type: console\n")
    assert is_configured({})


def test_events_of_the_console_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    os.environ["OPENLINEAGE__TRANSPORT__TYPE"] = "console"
    with lineage_sent(pytest.fail) as lineage, lineage.run(PLAN):
        pass
    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["eventType"] for line in err.splitlines()] == ["START", "ABORT"]


class Kept(Backend):
    """A backend that keeps the events."""

    def __init__(self) -> None:
        self.events: list[model.RunEvent] = []

    def put(self, make: Make | None) -> None:
        assert make is not None
        self.events.append(make())


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (KeyboardInterrupt(), "ABORT", None),
        (CannotRead("bank-a: postgresql://me:hunter2@h/d is away"), "FAIL", "TP-"),
        (ValueError("row ('gid-1', 'payload')"), "FAIL", "ValueError"),
    ],
    ids=["stopped", "our error", "a driver's error"],
)
def test_the_end_of_a_run_says_how_it_ended_and_nothing_of_a_row(
    error: BaseException, kind: str, text: str | None
) -> None:
    kept = Kept()
    with pytest.raises(type(error)), Lineage(kept).run(PLAN):
        raise error
    start, end = kept.events
    assert [event.eventType for event in (start, end)] == [model.RunState.START, model.RunState(kind)]
    assert end.run.facets is not None
    told = end.run.facets.get("errorMessage")
    if text is None:
        assert told is None
    else:
        message = told.message  # type: ignore[union-attr]
        assert message.startswith(text)
        assert not {"hunter2", "payload"} & set(message.replace(":", " ").replace("'", " ").split())
