"""TLS on the ports, and clients that end no handshake or no connection."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.integration.server.running import running
from tests.support.certificates import Certificates
from tests.support.fake_coordinator import Client, Wire, get, listening, message, post, prepare
from tests.support.identities import bearer, write
from tests.support.server_process import ServerProcess, serving
from tests.support.waiting import until
from twophase.server.app import EXIT_CLEAN, EXIT_CONFIGURATION
from twophase.server.handshakes import _BEYOND_BOUND_MAX
from twophase.server.http_port.connection import Connection
from twophase.server.http_port.port import Timeouts
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import changing
from twophase.server.tls import HTTP_1, HTTP_2, ServerTls

_PATIENCE_S = 60.0
_PATIENT: dict[str, Any] = {"head_timeout_ms": 600_000}
"""No handshake ends for its time alone."""
_SUBMIT = b'{"gid":"%b","trans_type":"msg","steps":[],"payloads":[]}'


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def _silent(port: int) -> Client:
    """Connect without a handshake."""
    return Client(*await asyncio.open_connection("127.0.0.1", port))


async def _connect(port: int, context: ssl.SSLContext) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, ssl=context))


def _handshakes(wire: Wire) -> int:
    assert wire.listener._handshakes is not None
    return len(wire.listener._handshakes)


async def test_a_server_says_https_and_an_ordinary_client_is_served(tmp_path: Path, certificates: Certificates) -> None:
    async with serving(tmp_path, *certificates.arguments()) as server:
        assert f" https://127.0.0.1:{server.port} " in server.ready_line

        def asked() -> tuple[int, str | None]:
            client = http.client.HTTPSConnection("127.0.0.1", server.port, context=certificates.context(), timeout=60)
            client.request("POST", "/api/dtmsvr/submit", _SUBMIT % b"g")
            status = client.getresponse().status
            version = client.sock.version()
            client.close()
            return status, version

        assert await asyncio.to_thread(asked) == (200, "TLSv1.3")
        assert (await server.terminate())[0] == EXIT_CLEAN


async def test_requests_of_every_kind_are_answered(certificates: Certificates) -> None:
    async with listening(certificates=certificates) as wire:
        client = await wire.connect()
        await client.send(b"".join(prepare(f"g{number}") for number in range(20)) + get("/api/ping"))
        assert [one.status for one in await client.responses(21)] == [200] * 21
        upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
        assert (await client.ask(prepare("h2c", *upgrade))).status == 200
        padded = message("large").replace(b'"{}"', b'"%b"' % (b"x" * 900_000))
        assert (await client.ask(post("/api/dtmsvr/prepare", padded))).status == 200
        assert (await client.ask(get("/api/ping", "Connection: close"))).status == 200
        assert await client.is_closed()
        assert wire.coordinator.heard[-1] == ("prepare", "large")


async def test_a_client_that_reads_nothing_is_not_read_from(certificates: Certificates) -> None:
    async with listening(certificates=certificates) as wire:
        client = await wire.connect()
        assert (await client.ask(get("/api/ping"))).status == 200
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a StreamWriter's transport reads too
        connection = wire.connection()
        requests = prepare("g") * 200

        async def flood() -> None:
            while True:
                await client.send(requests)

        flooding = asyncio.create_task(flood())
        await until(lambda: connection.flow.write_paused or flooding.done())
        assert connection.flow.read_paused
        assert not flooding.done()
        flooding.cancel()
        await asyncio.wait([flooding])
        client.writer.transport.abort()


async def test_a_closed_connection_stays_until_a_slow_client_has_everything(
    tmp_path: Path, certificates: Certificates
) -> None:
    payload = b"x" * 900_000
    submit = post("/api/dtmsvr/submit", message("large").replace(b'"{}"', b'"%b"' % payload))
    async with running(tmp_path, **certificates.settings()) as one:
        client = await _connect(one.port, certificates.context())
        assert (await client.ask(submit)).status == 200
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a StreamWriter's transport reads too
        (connection,) = one.server.listener.port.state.connections
        assert isinstance(connection, Connection)
        # What the kernel keeps must not be all of it.
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        query = "/api/dtmsvr/query?gid=large"
        await client.send(get(query) + get(query, "Connection: close"))
        await until(connection.transport.is_closing)
        client.writer.write(prepare("unread") * 200)  # unread bytes would reset the connection
        for _ in range(10):
            connection.enforce_timeouts(one.server.listener.port.now_s)
            await asyncio.sleep(0)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # the same
        responses = await client.responses(2)
        assert [(one.status, len(one.body) > len(payload)) for one in responses] == [(200, True)] * 2
        client.close()


async def test_a_client_that_ends_the_connection_behind_its_request_leaves_nothing_in_the_log(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(certificates=certificates) as wire:
        wire.coordinator.holds = True
        client = await wire.connect()
        await client.send(prepare("g1") + get("/api/dtmsvr/query?gid=g1"))
        await until(lambda: wire.coordinator.heard)
        client.close()
        await until(lambda: not wire.listener.connections)
        wire.coordinator.release("g1")
        assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("sent", [get("/api/ping"), b"\x16\x03\x01\x00\x05hello", b"\x00" * 100])
async def test_what_is_no_handshake_is_closed_without_a_trace(
    certificates: Certificates, sent: bytes, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async with listening(certificates=certificates) as wire:
        for _ in range(20):
            stranger = await _silent(wire.port)
            await stranger.send(sent)
            assert await stranger.is_closed()
            stranger.close()
        assert (await (await wire.connect()).ask(get("/api/ping"))).status == 200
        assert _handshakes(wire) == 0
    assert _of_the_server(caplog) == []
    assert capsys.readouterr().err == ""


def _of_the_server(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the lines of server and event loop; other tests' threads may log, too."""
    return [record for record in caplog.records if record.name.partition(".")[0] in {"asyncio", "twophase"}]


def _client_hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


async def test_connections_that_break_in_the_middle_of_a_handshake_leave_nothing_behind(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    hello = _client_hello(certificates.context())
    async with listening(certificates=certificates) as wire:
        for length in range(0, len(hello) + 1, 16):
            for end in (Client.reset, Client.close):
                client = await _silent(wire.port)
                await client.send(hello[:length])
                end(client)
        whole = await _silent(wire.port)
        await whole.send(hello)
        assert await whole.reader.read(3) == b"\x16\x03\x03"
        await whole.send(hello)  # not the end of a handshake
        assert await whole.is_closed(timeout_s=_PATIENCE_S)
        whole.close()
        await until(lambda: not _handshakes(wire))
        await until(lambda: not wire.listener.connections)
        assert not wire.listener.port.by_address
    assert _of_the_server(caplog) == []
    assert capsys.readouterr().err == ""


async def test_a_handshake_that_never_ends_is_ended(certificates: Certificates) -> None:
    async with listening(certificates=certificates, timeouts=Timeouts(head_s=0.2)) as wire:
        silent = await _silent(wire.port)
        assert await silent.is_closed(timeout_s=_PATIENCE_S)
        assert _handshakes(wire) == 0
        silent.close()


async def test_handshakes_that_never_end_count_and_keep_nobody_out(certificates: Certificates) -> None:
    most = _BEYOND_BOUND_MAX + 4
    async with listening(certificates=certificates, connections_max=most, timeouts=Timeouts(head_s=600)) as wire:
        silent = [await _silent(wire.port) for _ in range(3 * most)]
        await until(lambda: _handshakes(wire) == most)
        for one in silent[: 2 * most]:
            assert await one.is_closed(timeout_s=_PATIENCE_S)
        client = await wire.connect()
        assert (await client.ask(prepare("g"))).status == 200
        assert _handshakes(wire) + wire.listener.connections <= most
        for one in silent:
            one.close()


async def test_handshakes_of_one_address_count_among_its_share(certificates: Certificates) -> None:
    many = _BEYOND_BOUND_MAX + 4
    patient = Timeouts(head_s=600)
    async with listening(
        certificates=certificates, connections_max=4 * many, per_address_percent=25, timeouts=patient
    ) as wire:
        silent = [await _silent(wire.port) for _ in range(2 * many)]
        await until(lambda: _handshakes(wire) == many)
        assert (await (await wire.connect()).ask(get("/api/ping"))).status == 200
        for one in silent:
            one.close()
        await until(lambda: not _handshakes(wire))


async def test_handshakes_count_among_grpc_connections(tmp_path: Path, certificates: Certificates) -> None:
    most = _BEYOND_BOUND_MAX + 4
    most_of_all: dict[str, Any] = {"grpc_connections_max": most, "connections_per_address_percent": 100, **_PATIENT}
    async with running(tmp_path, grpc_port=0, **most_of_all, **certificates.settings()) as one:
        port = int(one.server.urls[1].rpartition(":")[2])
        silent = [await _silent(port) for _ in range(3 * most)]
        api = one.server._grpc._api
        assert api is not None
        assert api._listener._handshakes is not None
        waiting = api._listener._handshakes
        await until(lambda: len(waiting) == most)
        context = certificates.context()
        context.set_alpn_protocols(["h2"])
        client = await _connect(port, context)
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        for other in (*silent, client):
            other.writer.transport.abort()


async def test_handshakes_of_one_address_count_among_its_share_of_grpc(
    tmp_path: Path, certificates: Certificates
) -> None:
    many = _BEYOND_BOUND_MAX + 4
    shares: dict[str, Any] = {"grpc_connections_max": 4 * many, "connections_per_address_percent": 25, **_PATIENT}
    async with running(tmp_path, grpc_port=0, **shares, **certificates.settings()) as one:
        port = int(one.server.urls[1].rpartition(":")[2])
        api = one.server._grpc._api
        assert api is not None
        assert api._listener._handshakes is not None
        silent = [await _silent(port) for _ in range(3 * many)]
        for other in silent[: 2 * many]:
            assert await other.is_closed(timeout_s=_PATIENCE_S)
        assert len(api._listener._handshakes) == many
        context = certificates.context()
        context.set_alpn_protocols(["h2"])
        for other in (*silent, await _connect(port, context)):
            other.writer.transport.abort()


async def test_health_is_answered_when_all_connections_are_taken(certificates: Certificates) -> None:
    async with listening(certificates=certificates, connections_max=3) as wire:
        kept = [await wire.connect() for _ in range(3)]
        assert [(await one.ask(get("/api/ping"))).status for one in kept] == [200] * 3
        probe = await wire.connect()
        assert (await probe.ask(get("/health/live"))).status == 200
        assert (await probe.ask(prepare("g1"))).status == 503


async def test_a_drain_does_not_wait_for_clients_that_leave_a_farewell_unanswered(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving(tmp_path, *certificates.arguments()) as server:
        server.context = certificates.context()
        silent = await _silent(server.port)
        idle = await server.connect()
        assert (await idle.ask(get("/api/ping"))).status == 200
        idle.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a StreamWriter's transport reads too
        code, errors = await server.terminate()
        assert code == EXIT_CLEAN
        assert "did not take their answers" not in errors
        idle.writer.transport.abort()
        silent.close()


def _serial(client: Client) -> str:
    certificate = client.writer.get_extra_info("peercert")
    assert certificate is not None
    return str(certificate["serialNumber"])


@pytest.mark.parametrize("broken", ["no certificate", None], ids=["no certificate", "another key"])
async def test_a_renewed_certificate_is_for_new_connections_and_a_broken_one_changes_nothing(
    tmp_path: Path, certificates: Certificates, broken: str | None
) -> None:
    async with running(tmp_path, grpc_port=0, **certificates.settings()) as one:
        grpc_port = int(one.server.urls[1].rpartition(":")[2])
        context, alpn = certificates.context(), certificates.context()
        alpn.set_alpn_protocols(["h2"])
        first = await _connect(one.port, context)
        certificates.issue("127.0.0.1")
        one.server.reread()
        second = await _connect(one.port, context)
        assert _serial(first) != _serial(second)
        assert (await first.ask(get("/api/ping"))).status == 200
        key = certificates.key.read_bytes()
        certificates.issue("127.0.0.1")
        if broken is None:
            certificates.key.write_bytes(key)
        else:
            certificates.certificate.write_text(broken)
        one.server.reread()
        third, by_grpc = await _connect(one.port, context), await _connect(grpc_port, alpn)
        assert _serial(third) == _serial(second) == _serial(by_grpc)
        assert (await third.ask(get("/api/ping"))).status == 200
        for client in (first, second, third, by_grpc):
            client.close()


async def _until_logged(server: ServerProcess, text: str, times: int = 1) -> None:
    assert server.process.stderr is not None
    for _ in range(times):
        while text not in (line := (await server.process.stderr.readline()).decode()):
            assert line, f"{text!r} is logged"


@pytest.mark.postgres
async def test_every_worker_reads_the_certificate_again(
    tmp_path: Path, certificates: Certificates, postgres_database: Any
) -> None:
    arguments = ("--workers", "2", "--store", postgres_database.dsn, *certificates.arguments())
    async with serving(tmp_path, *arguments) as server:
        server.context = certificates.context()
        assert "https://" in server.ready_line
        clients = [await server.connect()]
        old = _serial(clients[0])
        certificates.issue("127.0.0.1")
        server.process.send_signal(1)
        await _until_logged(server, "the certificate was read again", times=2)
        clients += [await server.connect() for _ in range(20)]  # the kernel spreads the connections over the workers
        assert old not in {_serial(client) for client in clients[1:]}
        assert [(await client.ask(get("/api/ping"))).status for client in clients] == [200] * 21
        certificates.certificate.write_text("nothing")
        server.process.send_signal(1)
        await _until_logged(server, "the earlier one stays in force", times=2)
        for client in clients:
            client.close()


_WRONG = [
    ("tls_certificate", None, "tls_certificate: {} cannot be read"),
    ("tls_certificate", "hello", "tls_certificate: {} has no certificate in PEM form"),
    ("tls_key", None, "tls_key: {} cannot be read"),
    ("tls_key", "hello", "tls_key: {} has no private key in PEM form"),
    ("tls_client_ca", None, "tls_client_ca: {} cannot be read"),
    ("tls_client_ca", "-----BEGIN CERTIFICATE-----", "tls_client_ca: {} cannot be used"),
]


@pytest.mark.parametrize(("setting", "content", "text"), _WRONG)
async def test_a_file_that_cannot_be_used_stops_the_start(
    tmp_path: Path, certificates: Certificates, setting: str, content: str | None, text: str
) -> None:
    file = tmp_path / "wrong.pem"
    if content is not None:
        file.write_text(content)
    arguments = [*certificates.arguments(client_ca=True), "--set", f"{setting}={file}"]
    server = await ServerProcess.spawn("--port", "0", *arguments, cwd=tmp_path)
    code, errors = await server.ended()
    assert code == EXIT_CONFIGURATION
    assert text.format(file) in errors
    assert "Name a PEM file" in errors
    assert not (tmp_path / "twophase.db").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tls_key"], "tls_certificate, tls_key: one needs the other"),
        (["tls_certificate"], "tls_certificate, tls_key: one needs the other"),
        (["tls_client_ca"], "tls_client_ca: needs tls_certificate and tls_key"),
    ],
)
async def test_one_file_without_those_that_it_needs_stops_the_start(
    tmp_path: Path, certificates: Certificates, arguments: list[str], text: str
) -> None:
    files = certificates.settings(client_ca=True)
    given = [part for name in arguments for part in ("--set", f"{name}={files[name]}")]
    code, errors = await (await ServerProcess.spawn("--port", "0", *given, cwd=tmp_path)).ended()
    assert (code, text in errors) == (EXIT_CONFIGURATION, True)


async def test_a_key_that_every_user_may_read_or_of_another_certificate_stops_the_start(
    tmp_path: Path, certificates: Certificates
) -> None:
    certificates.key.chmod(0o644)
    arguments = ("--port", "0", *certificates.arguments())
    code, errors = await (await ServerProcess.spawn(*arguments, cwd=tmp_path)).ended()
    assert code == EXIT_CONFIGURATION
    assert f"tls_key: {certificates.key}: every user of this machine may use the file (mode 0644)" in errors
    assert f"chmod 600 {certificates.key}" in errors
    certificates.key.chmod(0o600)
    certificates.issue("127.0.0.1", file="other")
    code, errors = await (await ServerProcess.spawn(*arguments, cwd=tmp_path)).ended()
    assert code == EXIT_CONFIGURATION
    assert f"tls_key: {certificates.key} is not the key of the certificate in {certificates.certificate}" in errors


def test_nothing_older_than_tls_1_2_is_spoken(certificates: Certificates) -> None:
    tls = ServerTls(str(certificates.certificate), str(certificates.key))
    assert {tls.context(one).minimum_version for one in (HTTP_1, HTTP_2)} == {ssl.TLSVersion.TLSv1_2}


async def _status(port: int, context: ssl.SSLContext, gid: str, *headers: str) -> int:
    client = await _connect(port, context)
    try:
        return (await client.ask(post("/api/dtmsvr/submit", _SUBMIT % gid.encode(), *headers))).status
    except OSError:
        return 0
    finally:
        client.writer.transport.abort()


async def test_a_client_ca_opens_an_address_to_certificates_of_it_alone(
    tmp_path: Path, certificates: Certificates
) -> None:
    own = certificates.context(certificates.client("orders"))
    foreign = certificates.context(certificates.client("stranger", trustme.CA()))
    async with running(tmp_path, host="0.0.0.0", **certificates.settings(client_ca=True)) as one:
        assert not one.server.metrics.anonymous
        assert await _status(one.port, own, "own") == 200
        assert await _status(one.port, certificates.context(), "without") == 0
        assert await _status(one.port, foreign, "foreign") == 0
        assert await one.server.coordinator.query("foreign") is None


async def test_a_certificate_stands_for_a_token(tmp_path: Path, certificates: Certificates) -> None:
    """All requests have one head; the certificate tells their senders apart."""
    for name in ("orders", "stock"):
        tokens = write(tmp_path, name, [Scope.PRODUCE], san=(f"{name}.internal",))
    write(tmp_path, "eve", [Scope.PRODUCE])
    contexts = {
        name: certificates.context(certificates.client(f"{name}.internal")) for name in ("orders", "stock", "stranger")
    }
    async with running(tmp_path, tokens=tokens, **certificates.settings(client_ca=True)) as one:
        for number in range(3):
            for name, wanted in (("orders", 200), ("stranger", 401), ("stock", 200)):
                gid = f"{name[:5]}-{number}"
                assert await _status(one.port, contexts[name], gid) == wanted
                if wanted == 200:
                    assert (await one.view(gid)).owner == name
        assert await _status(one.port, contexts["orders"], "token", *bearer("eve")) == 200
        assert (await one.view("token")).owner == "eve"


async def test_a_certificate_whose_entry_is_gone_is_refused_on_open_connections(
    tmp_path: Path, certificates: Certificates
) -> None:
    tokens = write(tmp_path, "orders", [Scope.PRODUCE], san=("orders.internal",))
    context = certificates.context(certificates.client("orders.internal"))
    async with running(tmp_path, tokens=tokens, **certificates.settings(client_ca=True)) as one:
        client = await _connect(one.port, context)
        submit = post("/api/dtmsvr/submit", _SUBMIT % b"g")
        assert (await client.ask(submit)).status == 200
        await client.send(submit[:-10])
        await until(lambda: any(connection.reading for connection in one.server.listener.port.state.connections))  # type: ignore[union-attr]
        with changing(Path(tokens)) as entries:
            entries.clear()
        one.server.reread()
        assert (await client.ask(submit[-10:])).status == 401
        assert (await client.ask(submit)).status == 401
        client.close()
