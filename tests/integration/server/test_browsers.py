"""Requests of web pages are refused on every port.

Those of dtm's clients, also its writing GETs, are served.
"""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
import msgspec
import pytest

from tests.integration.server.running import running
from tests.integration.server.test_grpc import Dtm
from tests.support.fake_coordinator import Wire, listening, message, post, prepare
from twophase.server.browsers import BrowserGuard

EVIL = "Origin: https://evil.example"
WRITING = [
    ("GET /api/dtmsvr/subscribe?topic=t&url=http://evil/", b""),
    ("GET /api/dtmsvr/unsubscribe?topic=t&url=http://evil/", b""),
    ("GET /api/dtmsvr/resetCronTime?timeout=1", b""),
    ("POST /api/dtmsvr/submit", message("g1")),
    ("POST /api/dtmsvr/abort", b'{"gid":"g1"}'),
    ("POST /api/twophase/messages/g1/park", b""),
]


def _request(line: str, *headers: str, body: bytes = b"", version: str = "1.1") -> bytes:
    lines = [f"{line} HTTP/{version}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _read(body: bytes) -> str:
    return str(msgspec.json.decode(body)["code"])


@pytest.mark.parametrize(
    "mark",
    [
        EVIL,
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "sec-fetch-site: Same-Site",
        "Sec-Fetch-Site: cross-site \t",
        "Sec-Fetch-Site: cross-planet",
        "Sec-Fetch-Site:",
        "Sec-Purpose: prefetch",
        "Sec-Purpose: prefetch;prerender",
    ],
)
@pytest.mark.parametrize(("line", "body"), WRITING, ids=[line for line, _ in WRITING])
async def test_a_page_of_another_site_changes_nothing(wire: Wire, line: str, body: bytes, mark: str) -> None:
    client = await wire.connect()
    answer = await client.ask(_request(line, "Host: localhost", mark, "Content-Type: text/plain", body=body))
    assert (answer.status, _read(answer.body)) == (403, "TP-1006")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert wire.coordinator.heard == []
    assert await client.is_closed()


CHROMIUM = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"
SENDERS = {
    "a typed address, or a redirect behind one": (("Sec-Fetch-Site: none", CHROMIUM), 403),
    "a link of another program": (("Sec-Fetch-Site: \tNone",), 403),
    "an image of a page at a plain-text address": ((CHROMIUM, "Referer: http://evil.example/"), 403),
    "a page of the server": (("Sec-Fetch-Site: same-origin", CHROMIUM), 200),
    "a page of the setting origins": (("Origin: https://console.example", CHROMIUM), 200),
    "a client of dtm": (("User-Agent: Go-http-client/1.1",), 200),
    "a client without a name": ((), 200),
}


@pytest.mark.parametrize(("headers", "status"), SENDERS.values(), ids=SENDERS)
async def test_a_get_that_changes_something_is_for_programs(
    tmp_path: Path, headers: tuple[str, ...], status: int
) -> None:
    async with running(tmp_path, origins="https://console.example") as server, listening() as wire:
        wire.port = server.port
        for method in ("GET", "HEAD"):
            for line, _ in WRITING[:3]:
                client = await wire.connect()
                await client.send(
                    _request(line.replace("GET", method), "Host: localhost", *headers, "Connection: close")
                )
                head = await client.reader.read()
                assert (head.split()[1] == b"403") is (status == 403), (line, head)
        known = (await server.server.coordinator.topics.refresh()).revision
        assert (known > 0) is (status == 200)


@pytest.mark.parametrize("site", ["none", "same-origin", "\tNone \t"])
async def test_an_address_that_a_person_types_is_served(wire: Wire, site: str) -> None:
    client = await wire.connect()
    answer = await client.ask(_request("GET /api/ping", "Host: localhost:36789", f"Sec-Fetch-Site: {site}"))
    assert answer.status == 200


async def test_an_origin_of_the_setting_is_served(tmp_path: Path) -> None:
    async with running(tmp_path, origins="https://console.example") as server, listening() as wire:
        wire.port = server.port
        client = await wire.connect()
        known = _request("GET /api/ping", "Host: localhost", "Origin: https://console.example")
        assert (await client.ask(known)).status == 200
        assert (await client.ask(_request("GET /api/ping", "Host: localhost", EVIL))).status == 403


REBOUND = [
    "evil.example",
    "evil.example:36789",
    "localhost.evil.example",
    "2130706433",
    "0x7f.0.0.1",
    "10.9.8.7",
    "[::2]",
]


@pytest.mark.parametrize("host", REBOUND)
async def test_a_name_that_is_not_the_servers_is_refused(wire: Wire, host: str) -> None:
    client = await wire.connect()
    answer = await client.ask(_request("GET /api/dtmsvr/all", f"Host: {host}"))
    assert (answer.status, _read(answer.body)) == (421, "TP-1007")


NO_HOST = {
    "missing": (),
    "twice": ("Host: localhost", "Host: localhost"),
    "twice, in another case": ("Host: localhost", "host: localhost"),
    "empty": ("Host:",),
    "with a user": ("Host: a@localhost",),
    "a list": ("Host: localhost, localhost",),
    "an origin twice": ("Host: localhost", EVIL, EVIL),
}


@pytest.mark.parametrize("headers", NO_HOST.values(), ids=NO_HOST)
@pytest.mark.parametrize(("line", "body"), [("GET /api/ping", b""), ("POST /api/dtmsvr/submit", message("g1"))])
async def test_a_host_that_is_missing_or_doubled_is_refused(
    wire: Wire, line: str, body: bytes, headers: tuple[str, ...]
) -> None:
    client = await wire.connect()
    answer = await client.ask(_request(line, *headers, body=body))
    assert answer.status == 400
    assert wire.coordinator.heard == []


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:1", "127.0.0.1", "127.0.0.1:80"])
async def test_the_servers_own_names_are_served(wire: Wire, host: str) -> None:
    client = await wire.connect()
    assert (await client.ask(_request("GET /api/ping", f"Host: {host}"))).status == 200


async def test_an_http_1_0_request_needs_no_host_and_one_that_is_there_counts(wire: Wire) -> None:
    """RFC 9112, 3.2: HTTP/1.0 has no Host; old health checks send none."""
    for headers, status in [((), 200), (("Host: evil.example",), 421), (("Host: localhost",) * 2, 400)]:
        client = await wire.connect()
        assert (await client.ask(_request("GET /api/ping", *headers, version="1.0"))).status == status


async def test_a_refused_head_is_not_remembered_and_a_remembered_one_is_no_way_in(wire: Wire) -> None:
    client = await wire.connect()
    assert (await client.ask(prepare("g1"))).status == 200
    assert (await client.ask(prepare("g1"))).status == 200
    for _ in range(2):
        client = await wire.connect()
        await client.send(prepare("g2") + prepare("g3", EVIL))
        assert [one.status for one in await client.responses(2)] == [200, 403]
    assert ("prepare", "g3") not in wire.coordinator.heard


async def test_a_head_in_pieces_with_an_upgrade_is_checked_too(wire: Wire) -> None:
    for marks, status in [((EVIL,), 403), (("Host: localhost",), 400)]:
        client = await wire.connect()
        for byte in post("/api/dtmsvr/abort", b'{"gid":"g1"}', "Upgrade: h2c", "Connection: Upgrade", *marks):
            client.writer.write(bytes((byte,)))
            await client.writer.drain()
        assert (await client.response()).status == status
    assert wire.coordinator.heard == []


def test_a_server_on_every_address_is_reached_by_every_address_and_no_foreign_name() -> None:
    guard = BrowserGuard()
    guard.listens("0.0.0.0", "0.0.0.0")
    assert guard.why_not_host(b"10.1.2.3:36789") is None
    assert guard.why_not_host(b"[fe80::1]:36789") is None
    assert guard.why_not_host(b"evil.example") is not None


def test_names_of_the_setting_are_served() -> None:
    guard = BrowserGuard(["Pay.internal", "*.cluster.local"])
    assert guard.why_not_host(b"pay.internal:1") is None
    assert guard.why_not_host(b"pay.prod.cluster.local") is None
    assert guard.why_not_host(b"cluster.local") is not None
    assert guard.why_not_host(b"evilcluster.local") is not None
    assert BrowserGuard(["*"]).why_not_host(b"any.example") is None


STRICT = {
    "a fragment": b"POST /api/dtmsvr/submit#x HTTP/1.1\r\n",
    "a fragment of nothing": b"POST /api/dtmsvr/submit# HTTP/1.1\r\n",
    "HTTP/2.0": b"POST /api/dtmsvr/submit HTTP/2.0\r\n",
    "HTTP/0.9": b"POST /api/dtmsvr/submit HTTP/0.9\r\n",
    "a whole URL with a user": b"POST http://a@localhost/api/dtmsvr/submit HTTP/1.1\r\n",
    "a whole URL of another scheme": b"POST ftp://localhost/api/dtmsvr/submit HTTP/1.1\r\n",
    "an authority": b"POST localhost:36789 HTTP/1.1\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\n",
}


@pytest.mark.parametrize("line", STRICT.values(), ids=STRICT)
async def test_a_request_line_that_is_not_strict_is_refused(wire: Wire, line: bytes) -> None:
    client = await wire.connect()
    body = message("g1")
    answer = await client.ask(line + b"Host: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert answer.status == 400
    assert wire.coordinator.heard == []
    assert await client.is_closed()


async def test_the_version_of_each_request_of_a_connection_counts(wire: Wire) -> None:
    client = await wire.connect()
    await client.send(prepare("g1") + prepare("g2").replace(b"HTTP/1.1", b"HTTP/2.0"))
    assert [one.status for one in await client.responses(2)] == [200, 400]


async def test_the_server_that_a_whole_url_names_counts(wire: Wire) -> None:
    """RFC 9112, 3.2.2: it counts instead of Host, which must be right all the same."""
    for authority, host, status in [
        ("localhost", "localhost", 200),
        ("evil.example", "localhost", 421),
        ("localhost", "evil.example", 421),
    ]:
        client = await wire.connect()
        answer = await client.ask(_request(f"GET http://{authority}/api/ping", f"Host: {host}"))
        assert answer.status == status


async def test_no_answer_is_kept_or_guessed_at(wire: Wire) -> None:
    client = await wire.connect()
    asked = [
        prepare("g1"),
        prepare("g1"),
        _request("GET /api/ping", "Host: localhost"),
        _request("GET /x", "Host: localhost"),
    ]
    for request in asked:
        answer = await client.ask(request)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    assert (await client.ask(post("/api/dtmsvr/prepare", b"{bad"))).headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("options", "metadata", "code"),
    [
        ((), (("origin", "https://evil.example"),), "TP-1006"),
        ((), (("sec-fetch-site", "cross-site"),), "TP-1006"),
        ((("grpc.default_authority", "evil.example"),), (), "TP-1007"),
        ((("grpc.default_authority", "localhost:1"),), (), ""),
    ],
)
async def test_the_grpc_port_refuses_what_a_browser_could_send(
    tmp_path: Path, options: tuple[tuple[str, str], ...], metadata: tuple[tuple[str, str], ...], code: str
) -> None:
    async with running(tmp_path, grpc_port=0) as server:
        target = server.server.urls[1].removeprefix("grpc://")
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/dtmgimp.Dtm/NewGid")
            if not code:
                assert await Dtm(channel).raw("NewGid", b"")
                return
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(b"", metadata=metadata, timeout=20)
            assert ("twophase-code", code) in tuple(refused.value.trailing_metadata() or ())


async def test_every_origin_of_a_call_of_grpc_counts(tmp_path: Path) -> None:
    known = "https://console.example"
    async with running(tmp_path, grpc_port=0, origins=known) as server:
        async with grpc.aio.insecure_channel(server.server.urls[1].removeprefix("grpc://")) as channel:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/dtmgimp.Dtm/NewGid")
            codes = []
            for origins in ([known], ["https://evil.example", known], [known, "https://evil.example"]):
                call = method(b"", metadata=[("origin", origin) for origin in origins], timeout=20)
                codes.append((await call.code()).name)
        assert codes == ["OK", "PERMISSION_DENIED", "PERMISSION_DENIED"]
