"""The bulk client.

What is put off is sent again, a final answer is reported once, and the patience ends.
"""

from __future__ import annotations

import http.server
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.servers.ports import nobodys_port
from tests.support.certificates import Certificates
from tests.support.http_server import QuietHandler, served
from twophase.core.errors import CoordinatorUnreachable, PublishError, TlsFailed
from twophase.core.many import OneResult
from twophase_spark.sink.bulk import BulkClient, bulk_client
from twophase_spark.sink.options import parse

Scripted = list[tuple[int, bytes]]


class Scripting(http.server.ThreadingHTTPServer):
    """A server that answers one request after the other as its script says.

    The last answer is repeated.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.script: Scripted = []
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Scripting  # pyright: ignore[reportIncompatibleVariableOverride] -- the library types it widely

    def do_POST(self) -> None:
        body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, self.headers.get("authorization", ""), body))
        script = self.server.script
        status, answer = script.pop(0) if len(script) > 1 else script[0]
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def coordinator() -> Iterator[Scripting]:
    server = Scripting()
    with served(server):
        yield server


def results(*codes: str) -> bytes:
    return msgspec.json.encode({"results": [{"code": code, "state": ""} for code in codes]})


def submit(coordinator: Scripting, script: Scripted, gids: list[str], **options: Any) -> dict[str, str]:
    """Return the code of each gid."""
    coordinator.script = script
    told: dict[str, str] = {}

    def settled(gid: str, result: OneResult) -> None:
        assert gid not in told, "once"
        told[gid] = result.code

    with BulkClient(f"http://127.0.0.1:{coordinator.server_address[1]}", connections=1, **options) as client:
        client.submit(gids, 2, settled)
    return told


def test_what_cannot_be_taken_now_is_sent_again(coordinator: Scripting) -> None:
    script = [
        (503, b"{}"),
        (200, results("", "TP-3001")),
        (200, results("TP-4009")),
        (200, results("TP-2004")),
        (200, results("")),
    ]

    told = submit(coordinator, script, ["a", "b", "c"], authorization="Bearer x")

    assert told == {"a": "", "b": "TP-2004", "c": ""}
    asked = [body["gids"] for _, _, body in coordinator.asked]
    assert sorted(asked) == sorted([["a", "b"], ["a", "b"], ["b"], ["b"], ["c"]])
    assert {(path, key) for path, key, _ in coordinator.asked} == {("/api/twophase/submit-many", "Bearer x")}


def test_patience_ends(coordinator: Scripting) -> None:
    with pytest.raises(CoordinatorUnreachable, match="no usable answer"):
        submit(coordinator, [(503, b"{}")], ["a"], patience_s=0.2)


def test_no_coordinator_at_the_address(coordinator: Scripting) -> None:
    with BulkClient(f"http://127.0.0.1:{nobodys_port()}", connections=1, patience_s=0.2) as client:  # noqa: SIM117 -- one is what raises
        with pytest.raises(CoordinatorUnreachable, match="Connection refused"):
            client.submit(["a"], 1, lambda _gid, _result: None)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "not a coordinator"),
        (200, b'{"results":[]}', "not a coordinator"),
        (404, b"404 page not found", "status 404"),
        (400, b'{"message":"one gid is there twice."}', "twice"),
    ],
)
def test_what_answers_is_no_coordinator_of_ours(coordinator: Scripting, status: int, body: bytes, said: str) -> None:
    with pytest.raises(PublishError, match=said):
        submit(coordinator, [(status, body)], ["a"])


def test_the_options_name_the_authority_and_the_certificate_for_https(coordinator: Scripting, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificate, key = certificates.client("spark")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca)
    context.load_cert_chain(certificates.certificate, certificates.key)
    context.verify_mode = ssl.CERT_REQUIRED
    coordinator.socket = context.wrap_socket(coordinator.socket, server_side=True)
    coordinator.script = [(200, results(""))]
    options = {
        "coordinator": f"https://127.0.0.1:{coordinator.server_address[1]}",
        "ledger": "sqlite:///l.db",
        "publisher": "p",
        "keyColumns": "id",
        "checkUrl": "http://c/check",
        "url": "http://s",
    }
    files = {"ca": str(certificates.ca), "clientCertificate": str(certificate), "clientKey": str(key)}
    told: list[str] = []
    with bulk_client(parse({**options, **files})) as client:
        client.submit(["a"], 1, lambda gid, _result: told.append(gid))
    assert told == ["a"]
    with bulk_client(parse(options)) as client, pytest.raises(TlsFailed, match="its authority is unknown") as raised:
        client.submit(["b"], 1, lambda gid, _result: told.append(gid))
    assert "ca, clientCertificate and clientKey" in raised.value.remedy
