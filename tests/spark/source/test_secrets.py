"""A secret is nowhere but in the file that holds it.

It is not in plans, the event log, Spark's own log, or errors.
"""

from __future__ import annotations

import http.server
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.spark.source.stores import PostgresUnderTest, finish
from tests.support.http_server import QuietHandler, served
from tests.support.secret_files import secret_in
from twophase.barrier.installing import install

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(400)]

PROGRAM = """
import json
import sys
from pathlib import Path
from pyspark.errors import StreamingQueryException
from tests.spark.source.follower import NOT_IN_TIME, STARTS_MAX
from twophase_spark import audit, register
from twophase_spark import session as ours

def ended(stream):
    for _ in range(STARTS_MAX):
        query = stream.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            text = str(error)
            if NOT_IN_TIME not in text:
                break
        else:
            return query
    sys.exit(text)

good, bad, folder, publish = sys.argv[1:5]
publish = json.loads(publish)
log = {"enabled": "true", "dir": Path(folder).as_uri(), "compress": "false"}
extra = tuple((f"spark.eventLog.{name}", value) for name, value in log.items())
settings = ours.SessionSettings(cores=1, memory_mb=512, name="secrets", rows=0, extra=extra)
with ours.open_session(settings) as spark:
    spark.sparkContext.setLogLevel("INFO")
    register(spark)
    read = spark.read.format("twophase").option("table", "history")
    frame = read.option("url", good).load()
    frame.explain(True)
    frame.createOrReplaceTempView("history")
    spark.sql("explain extended select * from history where seq > 1").show(truncate=False)
    print(frame.count(), "rows read")
    print(frame._jdf.queryExecution().toString())
    stream = spark.readStream.format("twophase").option("url", good).load().writeStream.format("noop")
    ended(stream.option("checkpointLocation", folder + "/checkpoint")).explain(True)
    spark.range(3).write.format("twophase").mode("append").options(**publish, publisher="a", keyColumns="id").save()
    publish |= {"publisher": "b", "keyColumns": "gid", "checkpointLocation": folder + "/published"}
    frame = spark.readStream.format("twophase").option("url", good).option("columns", "gid").load()
    ended(frame.writeStream.format("twophase").options(**publish)).explain(True)
    dsn, wrong = (Path(url.removeprefix("file:")).read_text().strip() for url in (good, bad))
    with audit(spark, [dsn], [f"bank={dsn}"], [f"bank={dsn}"], grace_s=0) as (report, findings):
        findings.explain(True)
        print(findings._jdf.queryExecution().toString(), report)
        print(report.result.counts["missing_effect"], "effects missing")
    try:
        audit(spark, [dsn], [f"bank={wrong}"])
    except Exception as error:
        print(error, file=sys.stderr)
    for url in (bad, "postgresql://me:s3cr%zz@h/db"):
        try:
            read.option("url", url).load().count()
        except Exception as error:
            print(error, file=sys.stderr)
"""


class Coordinator(http.server.ThreadingHTTPServer):
    """A coordinator that accepts everything and keeps it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Coordinator  # pyright: ignore[reportIncompatibleVariableOverride] -- the library types it widely

    def do_POST(self) -> None:
        body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.headers.get("authorization", ""), body))
        count = len(body.get("messages") or body["gids"])
        answer = msgspec.json.encode({"results": [{"code": "", "state": ""}] * count})
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    server = Coordinator()
    with served(server):
        yield server


@pytest.mark.long
def test_a_secret_is_nowhere(postgres_store: PostgresUnderTest, coordinator: Coordinator, tmp_path: Path) -> None:
    finish(postgres_store, 1, 1, 3)
    install(postgres_store.dsn.replace("postgresql://", "postgresql+psycopg://", 1))
    keys = {name: secret_in(tmp_path / name, f"k3y of {name}") for name in ("authorization", "x-key")}
    publish = {
        "coordinator": f"http://127.0.0.1:{coordinator.server_address[1]}",
        "ledger": postgres_store.url,
        "checkUrl": "http://127.0.0.1:9/check",
        "url": "http://127.0.0.1:9/in",
        "authorization": keys["authorization"],
        "branchHeaders": msgspec.json.encode({"x-key": keys["x-key"]}).decode(),
    }
    password = postgres_store.dsn.partition("://")[2].partition("@")[0].partition(":")[2]
    assert len(password) > 7
    wrong = secret_in(tmp_path / "wrong-url", postgres_store.dsn.replace(password, f"{password}wrong"))
    events = tmp_path / "events"
    events.mkdir()

    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            postgres_store.url,
            wrong,
            str(events),
            msgspec.json.encode(publish).decode(),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3_000:]
    assert "3 rows read" in done.stdout
    assert "3 effects missing" in done.stdout, "the barrier is empty"
    assert "producer bank" in done.stderr
    assert "TP-8002" in done.stderr
    assert "TP-7000" in done.stderr
    written = [file.read_text(errors="replace") for file in events.rglob("*") if file.is_file()]
    assert any("twophase" in text for text in written), "the event log tells of the source"
    for text in (done.stdout, done.stderr, *written):
        assert password not in text
        assert "s3cr" not in text
        assert "k3y" not in text
    assert {key for key, _ in coordinator.asked} == {"k3y of authorization"}
    prepared = [message for _, body in coordinator.asked for message in body.get("messages", ())]
    assert len(prepared) == 3 + 3
    assert all("k3y of x-key" in msgspec.json.encode(message).decode() for message in prepared)
