"""The check-back server of the sink: signed questions, and its bounds."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from tests.integration.signed.running import KEY as COORDINATORS_KEY
from tests.integration.signed.running import destinations, signing
from tests.integration.signed.test_signed_calls import first_failure
from tests.servers.database import Database
from tests.support.certificates import Certificates
from tests.support.server_process import serving
from tests.support.waiting import blocked_until
from twophase.core.errors import ConfigurationError
from twophase.core.limits import REQUEST_HEADER_BYTES_MAX
from twophase.core.signature import (
    SIGNATURE_HEADER,
    VERDICT_SIGNATURE_HEADER,
    Signature,
    http_text,
    is_verdict_signed,
    key_of,
    signed,
)
from twophase.core.verdict import VERDICT_HEADER
from twophase_spark.cli.commands import app
from twophase_spark.sink.checkback import PATH
from twophase_spark.sink.checkback_server import CheckBackServer, tls_of
from twophase_spark.sink.database import WAIT_FOR_WRITER_S, bounded, engine_of, install_ledger
from twophase_spark.sink.ledger import Batch, Ledger
from twophase_spark.sink.naming import stream_batch

SECRET = "of the ledger and the coordinator"
GID = "published"
Serve = Callable[..., CheckBackServer]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """A ledger with one published message."""
    engine = engine_of(f"sqlite:///{tmp_path / 'ledger.db'}")
    published_in(engine)
    return engine


def published_in(engine: Engine) -> None:
    """Make a ledger with one published message."""
    install_ledger(engine)
    ledger = Ledger(engine)
    group = stream_batch("orders", "query", 1)
    ledger.begin(Batch(group, "orders", "query", 1), "id")
    writer = ledger.begin_run(group)
    ledger.write_down(writer, [GID])
    ledger.decide(group, [writer], 1)


@pytest.fixture
def serve(engine: Engine) -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def serve(keys: dict[str, str] | None = None, engine: Engine = engine, **bounds: Any) -> CheckBackServer:
            server = stack.enter_context(CheckBackServer(engine, "127.0.0.1", 0, keys, **bounds))
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server

        yield serve


def target_of(engine: Engine) -> str:
    return f"{PATH}?gid={GID}&trans_type=msg&op=msg&branch_id=00&barrier={Ledger(engine).identity()}"


def connected(server: CheckBackServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)


def ask(server: CheckBackServer, target: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    """Ask on a connection of its own; the answer has been read."""
    with contextlib.closing(connected(server)) as connection:
        connection.request("GET", target, headers=headers or {})
        answer = connection.getresponse()
        answer.read()
        return answer


def raw(server: CheckBackServer, sent: bytes) -> bytes:
    """Send bytes; return what comes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.server_address[1]), 30) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
        return received(client)


def received(client: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65_536):
            found += piece
    return found


def test_a_signed_question_is_answered_by_a_signed_verdict(engine: Engine, serve: Serve) -> None:
    server, target = serve({"old": "another secret of the ledger", "new": SECRET}), target_of(engine)
    key, now_ms = key_of("new", SECRET), time.time_ns() // 1_000_000
    signature = {SIGNATURE_HEADER: signed(key, now_ms, http_text(now_ms, "GET", target, "", b""))}
    with contextlib.closing(connected(server)) as connection:
        for _ in range(2):
            connection.request("GET", target, headers=signature)
            answer = connection.getresponse()
            body = answer.read()
            assert (answer.status, answer.headers[VERDICT_HEADER]) == (200, "committed")
            value = answer.headers[VERDICT_SIGNATURE_HEADER]
            assert is_verdict_signed(value, Signature(key, now_ms), GID, "committed", body)


@pytest.mark.parametrize("forged", ["none", "another key", "another target", "old"])
def test_any_other_question_reaches_no_database(engine: Engine, serve: Serve, forged: str) -> None:
    server, target = serve({"new": SECRET}), target_of(engine)
    key = key_of("new", "a secret that others know" if forged == "another key" else SECRET)
    now_ms = time.time_ns() // 1_000_000 - (3_600_000 if forged == "old" else 0)
    signed_target = target.replace(GID, "another") if forged == "another target" else target
    signature = signed(key, now_ms, http_text(now_ms, "GET", signed_target, "", b""))
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))

    answer = ask(server, target, {} if forged == "none" else {SIGNATURE_HEADER: signature})

    assert (answer.status, answer.headers[VERDICT_HEADER], answer.headers["connection"]) == (401, None, "close")
    assert statements == []


def test_keys_that_cannot_be_keys_are_refused_at_the_start(engine: Engine) -> None:
    for keys in ({}, {"new": "short"}):
        with pytest.raises(ConfigurationError, match="key"):
            CheckBackServer(engine, "127.0.0.1", 0, keys)


async def test_a_coordinator_with_the_key_takes_the_verdict_and_one_without_it_none(
    engine: Engine, serve: Serve, tmp_path: Path
) -> None:
    server = serve({"k1": COORDINATORS_KEY})
    check = f"{server.url}?barrier={Ledger(engine).identity()}"
    off = ("--set", "probe_check_addresses=false", "--set", "check_back_first_ms=50")
    fields = {"steps": [{"action": "http://127.0.0.1:9/in"}], "payloads": ["{}"], "timeout_to_fail_ms": 1}
    async with serving(tmp_path, *off) as coordinator:
        answer = await coordinator.post("prepare", gid=GID, query_prepared=check, explicit_verdict=True, **fields)
        assert answer.status == 200, answer.body
        asked = await first_failure(coordinator, GID)
        assert (asked["status"], asked["result"], await coordinator.state(GID)) == (401, "unknown", "prepared")
        await coordinator.terminate()
    address = server.url.removesuffix(PATH)
    known = destinations((address, signing(signed_verdicts=True)), ("http://127.0.0.1:9", {}))
    async with serving(tmp_path, *off, environment=known) as coordinator:
        await coordinator.until_state(GID, "submitted")


@pytest.mark.parametrize("body", ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"])
def test_a_body_is_not_read(engine: Engine, serve: Serve, body: str) -> None:
    answer = raw(serve(), f"GET {target_of(engine)} HTTP/1.1\r\nhost: b\r\n{body}".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("kind", ["a long path", "many headers"])
def test_a_head_is_read_up_to_its_bound(serve: Serve, kind: str) -> None:
    long = b"GET /" + b"x" * (2 * REQUEST_HEADER_BYTES_MAX.value)
    many = b"GET / HTTP/1.1\r\n" + (b"x: " + b"y" * 5_000 + b"\r\n") * 30 + b"\r\n"
    answer = raw(serve(), long if kind == "a long path" else many)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("line", [b"BREW / HTTP/1.1", b"GET / HTTP/2.0", b"GET / HTTP/x", b"?"])
def test_a_request_that_cannot_be_read_is_no_fault_of_the_server(serve: Serve, line: bytes) -> None:
    assert raw(serve(), line + b"\r\nhost: a\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_too_many_parameters_are_refused(engine: Engine, serve: Serve) -> None:
    server, more = serve(), "".join(f"&p{number}=1" for number in range(96))
    assert [ask(server, target_of(engine) + end).status for end in ("", more)] == [200, 400]


@pytest.mark.parametrize("target", ["http://[/", f"//[{PATH}", "*"])
def test_a_target_that_is_no_path_is_not_found(serve: Serve, target: str) -> None:
    assert raw(serve(), f"GET {target} HTTP/1.1\r\nconnection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("kind", ["mute", "slow", "slow at its second request"])
def test_a_request_that_does_not_arrive_in_time_ends_its_connection(serve: Serve, kind: str) -> None:
    server, begun_s = serve(request_s=0.5), time.monotonic()
    with socket.create_connection(("127.0.0.1", server.server_address[1]), 30) as client:
        if kind == "slow at its second request":
            client.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
            answer = b""
            while not answer.endswith(b'{"status":"live"}'):
                answer += client.recv(65_536) or pytest.fail("closed")
        client.settimeout(0.05)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - begun_s < 20:
                if kind != "mute":
                    client.sendall(b"G")
                with contextlib.suppress(TimeoutError):
                    if not client.recv(1):
                        break
        assert time.monotonic() - begun_s < 10


def test_connections_beyond_the_bound_are_turned_away(serve: Serve) -> None:
    server = serve(connections_max=4)
    port = server.server_address[1]
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(2)]
        for client in silent:  # answered, so each has its thread
            client.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
            assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        refused = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
        assert received(refused).startswith(b"HTTP/1.1 503 "), "one address has half of the connections"
        other = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30, ("127.0.0.2", 0)))
        other.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
        answer = received(other)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer, "no connection stays open while most are taken"
        silent[0].close()
        blocked_until(lambda: raw(server, b"GET /health/live HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 "))


def test_a_ledger_that_is_locked_is_unknown_and_keeps_nobody_waiting(engine: Engine, serve: Serve) -> None:
    _is_unknown_while_locked(engine, serve, "begin exclusive")


@pytest.mark.postgres
def test_a_table_that_is_locked_is_unknown_and_keeps_nobody_waiting(
    postgres_database: Database, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKED_LEDGER", postgres_database.dsn)
    engine = engine_of("env:LOCKED_LEDGER", 2)
    published_in(engine)
    _is_unknown_while_locked(engine, serve, "lock table twophase_spark_message in access exclusive mode")
    engine.dispose()


def _is_unknown_while_locked(engine: Engine, serve: Serve, lock: str) -> None:
    server, target = serve(engine=engine), target_of(engine)

    def verdict() -> tuple[int, str | None]:
        with contextlib.closing(connected(server)) as client:
            client.request("GET", target)
            response = client.getresponse()
            return response.status, response.getheader(VERDICT_HEADER)

    committed = (200, "committed")
    assert verdict() == committed
    with engine.connect() as other:
        other.exec_driver_sql(lock)
        began_s = time.monotonic()
        assert verdict()[1] == "unknown"
        assert time.monotonic() - began_s < WAIT_FOR_WRITER_S / 2
        other.rollback()
    assert verdict() == committed
    if engine.dialect.name == "sqlite":
        with engine.connect() as other:
            assert other.exec_driver_sql("pragma busy_timeout").scalar() == WAIT_FOR_WRITER_S * 1_000


def test_a_statement_of_sqlite_that_takes_too_long_is_interrupted(engine: Engine) -> None:
    endless = "with recursive n(i) as (values (1) union all select i + 1 from n) select count(*) from n"
    with engine.connect() as connection, pytest.raises(OperationalError, match="interrupted"), bounded(connection, 50):
        connection.exec_driver_sql(endless)


def test_questions_are_answered_over_tls_alone(engine: Engine, serve: Serve, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = serve(tls=tls_of(str(certificates.certificate), str(certificates.key)))
    assert server.url.startswith("https://127.0.0.1:")
    port, context = int(server.server_address[1]), certificates.context()
    client = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
    client.request("GET", target_of(engine))
    response = client.getresponse()
    assert (response.status, response.getheader(VERDICT_HEADER)) == (200, "committed")
    client.close()
    with contextlib.closing(connected(server)) as plain:
        plain.request("GET", target_of(engine))
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            plain.getresponse()


def test_a_handshake_that_does_not_end_in_time_ends_its_connection(serve: Serve, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = serve(tls=tls_of(str(certificates.certificate), str(certificates.key)), request_s=0.1)
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=60)) as silent:
        assert silent.recv(1) == b""


def test_the_command_refuses_files_that_are_no_certificate_and_key(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"

    def refused(*options: str) -> str:
        done = CliRunner().invoke(app, ["checkback", "--ledger", ledger, "--port", "0", *options])
        assert done.exit_code == 2
        return done.output

    certificate, key = str(certificates.certificate), str(certificates.key)
    assert "belong together" in refused("--tls-certificate", certificate)
    assert "belong together" in refused("--tls-key", key)
    assert "cannot be used" in refused("--tls-certificate", certificate, "--tls-key", str(tmp_path / "none.pem"))
    assert "cannot be used" in refused("--tls-certificate", ledger, "--tls-key", key)
    certificates.key.chmod(0o644)
    assert "chmod 600" in refused("--tls-certificate", certificate, "--tls-key", key)


def test_the_command_takes_keys_by_reference_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_KEY", SECRET)
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"

    def refused(*keys: str) -> str:
        named = [part for key in keys for part in ("--keys", key)]
        done = CliRunner().invoke(app, ["checkback", "--ledger", ledger, "--port", "0", *named])
        assert done.exit_code == 2
        assert SECRET not in done.output
        return done.output

    assert "--keys expects ID=env:NAME" in refused(f"k1={SECRET}")
    assert "--keys expects ID=env:NAME" in refused("env:LEDGER_KEY")
    assert "no such environment variable" in refused("k1=env:NO_SUCH_KEY")
    assert "two keys 'k1'" in refused("k1=env:LEDGER_KEY", "k1=env:LEDGER_KEY")
    assert "key id" in refused("k 1=env:LEDGER_KEY")


def test_the_command_warns_where_other_machines_reach_it_without_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_KEY", SECRET)

    def interrupted(_: CheckBackServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CheckBackServer, "serve_forever", interrupted)
    command = ["checkback", "--ledger", f"sqlite:///{tmp_path / 'ledger.db'}", "--port", "0"]
    exposed, signed_alone = ["--host", "0.0.0.0"], ["--keys", "k1=env:LEDGER_KEY"]
    for more, warned in (([], False), (exposed, True), (exposed + signed_alone, False)):
        done = CliRunner().invoke(app, [*command, *more])
        assert ("ready" in done.output, "without --keys every client" in done.output) == (True, warned)


@pytest.mark.parametrize(
    "line",
    [
        "Content-Length : 40",
        "Content-Length\t: 40",
        "Content-Length 40",
        " Content-Length: 40",
        "X: y\r\n Content-Length: 40",
        "X: y\n Content-Length: 40",
        "X: y\rContent-Length: 40",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\r\n chunked",
        "Content\0-Length: 40",
        "X: a\0b",
        ": 40",
    ],
)
def test_a_request_of_doubtful_form_is_answered_once_and_ends_the_connection(
    engine: Engine, serve: Serve, line: str
) -> None:
    """Another server in between could take what follows for a body."""
    server, target = serve(), target_of(engine)
    question = f"GET {target} HTTP/1.1\r\nHost: a\r\n{{line}}\r\n\r\n"
    received = raw(server, (question.format(line=line) + question.format(line="X: smuggled")).encode())
    assert received.count(b"HTTP/1.1 ") == 1
    assert received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413"))
    assert VERDICT_HEADER.encode() not in received.lower()
