"""Requests whose end two servers could see in different places (RFC 9112, 11.2).

Each shape of the public lists comes with a request behind it, which it would smuggle. Either the shape is refused, and
the connection ends before that request; or both are served, as two; or the connection ends with the first one. The
answer is the same for all bytes in one read and for each byte in a read of its own.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.support.fake_coordinator import Client, Wire, listening, prepare
from tests.support.waiting import until

BODY: Final = b'{"gid":"g1"}'
BEHIND: Final = prepare("smuggled")
SMUGGLED: Final = ("prepare", "smuggled")
HEAD: Final = b"POST /api/dtmsvr/abort HTTP/1.1\r\nHost: localhost\r\n"
COLD: Final = b"PUT /api/ping HTTP/1.1\r\nHost: localhost\r\n"
LENGTH: Final = b"Content-Length: 12\r\n"
CODING: Final = b"Transfer-Encoding: chunked\r\n"
CHUNKS: Final = b"c\r\n" + BODY + b"\r\n0\r\n\r\n"
UPGRADE: Final = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
WHOLE, BYTES = READS = ("in one read", "byte by byte")


def _measured(lines: bytes, head: bytes = HEAD) -> bytes:
    return head + lines + b"\r\n" + BODY


def _coded(lines: bytes, head: bytes = HEAD) -> bytes:
    return head + lines + b"\r\n" + CHUNKS


def _chunked(body: bytes, head: bytes = HEAD) -> bytes:
    return head + CODING + b"\r\n" + body


BOTH_LENGTHS: Final = {
    "length, then chunks": _coded(LENGTH + CODING),
    "chunks, then length": _coded(CODING + LENGTH),
    "length 0, then chunks": _coded(b"Content-Length: 0\r\n" + CODING),
    "both behind an offer of h2c": _coded(LENGTH + CODING + UPGRADE),
}
CODINGS: Final = {
    line.decode("latin-1"): _coded(b"Transfer-Encoding" + line + b"\r\n")
    for line in (
        *(b": xchunked", b": chunk", b": chunked, identity", b": identity, chunked", b": gzip, chunked", b": identity"),
        *(
            b": gzip",
            b":",
            b": ,chunked",
            b": chunked,",
            b': "chunked"',
            b": 'chunked'",
            b": chunked;q=1",
            b": x chunked",
        ),
        *(b": chunked, chunked", b": identity, chunked, identity", b" : chunked", b"\t: chunked", b" x: chunked"),
        *(b":\r\n chunked", b":\r\n\tchunked", b":\n chunked", b"\r\n : chunked", b"\n : chunked", b": \n\x0bchunked"),
        *(b": \x0bchunked", b": \x0cchunked", b": \x00chunked", b": \x7fchunked", b": \xa0chunked", b":\xffchunked"),
        *(b": chunked\x00", b": chunked\x0b", b": chunked\x0c", b": chunked\r", b": chunked\t", b": ch\x96nked"),
        *(b" chunked", b": chunked\r\nTransfer-Encoding: chunked", b": chunked\r\nTransfer-Encoding: identity"),
        *(b": identity\r\nTransfer-Encoding: chunked", b": identity\r\ntransfer-encoding: chunked"),
        *(b": chunked\r\ntransfer-encoding: identity", b": chunked\r\nX: y\r\nTransfer-Encoding: gzip"),
    )
}
NAMES: Final = {
    line.decode("latin-1"): _coded(line + b"\r\n")
    for line in (
        *(b" Transfer-Encoding: chunked", b"X: y\r\n Transfer-Encoding: chunked", b"X: y\rTransfer-Encoding: chunked"),
        *(
            b"X: y\nTransfer-Encoding: chunked",
            b"X: y\r\n\rTransfer-Encoding: chunked",
            b"Tra\rnsfer-Encoding: chunked",
        ),
        *(
            b"Transfer\\Encoding: chunked",
            b"Transf\x82r-Encoding: chunked",
            b"Transfer Encoding: chunked",
            b": chunked",
        ),
        *(b"X: y\n\nTransfer-Encoding: chunked", b"\x00Transfer-Encoding: chunked", b"Transfer-Encoding\x00: chunked"),
    )
}
LENGTHS: Final = {
    value.decode("latin-1"): _measured(b"Content-Length:" + value + b"\r\n")
    for value in (
        *(b" +12", b" -12", b" 0xc", b" 1_2", b" 1 2", b" 12.0", b" 12e0", b" 12, 12", b" 12, 0", b" 12;12", b"", b" "),
        *(b" 12\x00", b" \x0b12", b" 12\x0b", b" 18446744073709551628", b" 99999999999999999999", b" \xa012", b" 12,"),
        *(b' "12"', b" 12\r", b" 12x", b" \xd9\xa1\xd9\xa2", b" 1\r\n 2", b"\r\n 12", b"\n 12"),
        *(b" 12\r\nContent-Length: 12", b" 12\r\nContent-Length: 0", b" 0\r\ncontent-length: 12"),
    )
} | {
    "a blank before the colon": _measured(b"Content-Length : 12\r\n"),
    "a tab before the colon": _measured(b"Content-Length\t: 12\r\n"),
    "a NUL in the name": _measured(b"Content\x00-Length: 12\r\n"),
    "folded behind another": _measured(b"X: y\r\n Content-Length: 12\r\n"),
    "two behind an offer of h2c": _measured(LENGTH + LENGTH + UPGRADE),
    "two spellings behind an offer of h2c": _measured(LENGTH + b"content-length: 0\r\n" + UPGRADE),
}
SIZES: Final = {
    line.decode("latin-1"): _chunked(line + BODY + b"\r\n0\r\n\r\n")
    for line in (
        *(
            b"0xc\r\n",
            b"0Xc\r\n",
            b"0_c\r\n",
            b"+c\r\n",
            b"-c\r\n",
            b" c\r\n",
            b"\tc\r\n",
            b"c \r\n",
            b"c\t\r\n",
            b"\r\n",
        ),
        *(
            b"c\n",
            b"c\r",
            b"c\n\n",
            b"c\r\r\n",
            b"1000000000000000c\r\n",
            b"fffffffffffffffff\r\n",
            b"c,\r\n",
            b"cx\r\n",
        ),
        *(
            b"c.0\r\n",
            b"c;\r\n",
            b"c ;x\r\n",
            b"c; x = y\r\n",
            b"c;x\ny\r\n",
            b"c;x\ry\r\n",
            b"c;x\x00\r\n",
            b"c;x\x01\r\n",
        ),
        *(b"c;x\x7f\r\n", b"c;\xff\r\n", b'c;x="y\r\n', b'c;x="y\nz"\r\n', b"c;x=(\r\n", b"c;[x\r\n"),
    )
}
CHUNKED: Final = {
    body.decode("latin-1"): _chunked(b"c\r\n" + BODY + body)
    for body in (
        *(
            b"\n0\r\n\r\n",
            b"\r0\r\n\r\n",
            b"0\r\n\r\n",
            b"XX\r\n0\r\n\r\n",
            b"XX0\r\n\r\n",
            b"\r\n0\n\r\n",
            b"\r\n0\n\n",
        ),
        *(
            b"\r\n0\r\n\n",
            b"\r\n0\r\n\rX",
            b"\r\n0;x\ny\r\n\r\n",
            b"\r\n0\r\nX: y\n\r\n",
            b"\r\n0\r\nX: y\r\n z\r\n\r\n",
        ),
        *(b"\r\n0\r\nX : y\r\n\r\n", b"\r\n0\r\nX\r\n\r\n", b"\r\n0\r\nContent-Length: 12\r\n\r\n"),
        *(b"\r\n0\r\nContent-Length: 0\r\n\r\n", b"\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    )
}
LINES: Final = {
    "one LF": HEAD.replace(b"\r\n", b"\n", 1) + LENGTH + b"\r\n" + BODY,
    "LF alone": (HEAD + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "LF LF at the end": HEAD + b"Content-Length: 12\n\n" + BODY,
    "CR LF LF at the end": HEAD + LENGTH + b"\n" + BODY,
    "CR CR at the end": HEAD + b"Content-Length: 12\r\r" + BODY,
    "a blank before the first header": HEAD.replace(b"Host", b" Host") + LENGTH + b"\r\n" + BODY,
    "tabs": HEAD.replace(b" ", b"\t", 2) + LENGTH + b"\r\n" + BODY,
    "a blank behind the version": HEAD.replace(b"1.1\r\n", b"1.1 \r\n") + LENGTH + b"\r\n" + BODY,
    "a blank before the method": b" " + HEAD + LENGTH + b"\r\n" + BODY,
    "http in small letters": HEAD.replace(b"HTTP/", b"http/") + LENGTH + b"\r\n" + BODY,
    "a method in small letters": HEAD.replace(b"POST", b"post") + LENGTH + b"\r\n" + BODY,
    "HTTP/0.9 without a version": b"GET /api/ping\r\n\r\n",
    "HTTP/2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "chunks with HTTP/1.0": _coded(CODING, HEAD.replace(b"1.1", b"1.0")),
    "chunks with HTTP/1.0, kept open": _coded(CODING + b"Connection: keep-alive\r\n", HEAD.replace(b"1.1", b"1.0")),
    "other codings behind an offer of h2c": _coded(b"Transfer-Encoding: identity, chunked\r\n" + UPGRADE),
    "other codings at a cold route": _coded(b"Transfer-Encoding: identity, chunked\r\n", COLD),
    **{
        f"HTTP/{version.decode()}": HEAD.replace(b"1.1", version) + LENGTH + b"\r\n" + BODY
        for version in (b"0.9", b"1.2", b"2.0", b"1.10", b"01.1", b"1.1.1", b"3.0")
    },
    **{
        f"a target {target.decode('latin-1')!r}": HEAD.replace(b"/api/dtmsvr/abort", target) + LENGTH + b"\r\n" + BODY
        for target in (
            *(
                b"/api/dtmsvr/ab\x00ort",
                b"/api/dtmsvr/ab\rort",
                b"http://localhost@evil/api/dtmsvr/abort",
                b"localhost:80",
            ),
            *(
                b"ftp://localhost/api/dtmsvr/abort",
                b"*",
                b"api/dtmsvr/abort",
                b"http:///api/dtmsvr/abort",
                b"//evil/x y",
            ),
        )
    },
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CONNECT with a body": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n" + LENGTH + b"\r\n" + BODY,
    "CONNECT of a path": b"CONNECT /api/ping HTTP/1.1\r\nHost: localhost\r\n\r\n",
    **{
        f"{line.decode()!r} beside the host": HEAD + line + b"\r\n" + LENGTH + b"\r\n" + BODY
        for line in (b"Host: localhost", b"host: localhost", b"Host : localhost", b" Host: evil")
    },
    **{
        f"a host {host.decode()!r}": HEAD.replace(b"localhost", host) + LENGTH + b"\r\n" + BODY
        for host in (b"localhost, evil", b"evil@localhost", b"localhost\r\n .evil", b"")
    },
}
MISDIRECTED: Final = {
    "a whole URL of another server": HEAD.replace(b" /", b" http://evil.example/") + LENGTH + b"\r\n" + BODY,
    "a whole URL, and another host": HEAD.replace(b" /", b" http://localhost/").replace(
        b": localhost", b": evil.example"
    )
    + LENGTH
    + b"\r\n"
    + BODY,
}
REFUSED: Final = {
    f"{kind}: {name}": raw
    for kind, shapes in {
        "two lengths": BOTH_LENGTHS,
        "Transfer-Encoding": CODINGS,
        "header": NAMES,
        "Content-Length": LENGTHS,
        "size": SIZES,
        "behind a chunk": CHUNKED,
        "line": LINES,
    }.items()
    for name, raw in shapes.items()
}
ABORTED: Final = [("abort", "g1"), SMUGGLED]
PINGED: Final = [SMUGGLED]
TWO: Final = {
    **{
        f"coding {line.decode()!r}": (_coded(b"Transfer-Encoding" + line + b"\r\n"), ABORTED)
        for line in (
            b":\tchunked",
            b":chunked",
            b": cHUNKED",
            b": chunked ",
            b": chunked\r\nConnection: Transfer-Encoding",
        )
    },
    **{
        f"length {value.decode()!r}": (_measured(b"Content-Length:" + value + b"\r\n"), ABORTED)
        for value in (b" 0012", b"\t12\t ", b"12")
    },
    **{
        f"chunks {body.decode()!r}": (_chunked(body), ABORTED)
        for body in (
            *(b"C\r\n" + BODY + b"\r\n000\r\n\r\n", b"000c\r\n" + BODY + b"\r\n0\r\n\r\n"),
            *(b"c;x=y\r\n" + BODY + b"\r\n0\r\n\r\n", b'c;x="y;z"\r\n' + BODY + b"\r\n0;x\r\n\r\n"),
            *(b"c\r\n" + BODY + b"\r\n0\r\nX: y\r\n\r\n", b"c\r\n" + BODY + b"\r\n0\r\nHost: evil\r\n\r\n"),
            b"c\r\n" + BODY + b"\r\n0\r\nAuthorization: Bearer x\r\nExpect: 100-continue\r\n\r\n",
            b"c\r\n" + BODY + b"\r\n0\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        )
    },
    "empty lines before": (b"\r\n\r\n" + _measured(LENGTH), ABORTED),
    "two blanks in the request line": (_measured(LENGTH, HEAD.replace(b" HTTP", b"  HTTP")), ABORTED),
    "a whole URL": (_measured(LENGTH, HEAD.replace(b" /", b" http://localhost/")), ABORTED),
    "an offer of h2c": (_measured(LENGTH + UPGRADE), ABORTED),
    "an offer of h2c with chunks": (_coded(CODING + UPGRADE), ABORTED),
    "an offer of websocket": (_measured(LENGTH + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"), ABORTED),
    "another method in a header": (_measured(LENGTH + b"X-HTTP-Method-Override: GET\r\n"), ABORTED),
    **{
        f"{method.decode()} with a {what}": (raw.replace(b"PUT", method), PINGED)
        for method in (b"GET", b"OPTIONS", b"DELETE", b"PATCH")
        for what, raw in (("length", _measured(LENGTH, COLD)), ("coding", _coded(CODING, COLD)))
    },
    "GET with a length, and an offer of h2c": (_measured(LENGTH + UPGRADE, COLD.replace(b"PUT", b"GET")), PINGED),
    "POST to no route, with a length": (
        _measured(LENGTH, COLD.replace(b"PUT", b"POST").replace(b"ping", b"no")),
        PINGED,
    ),
}
LAST: Final = {
    "Connection: close": _measured(LENGTH + b"Connection: close\r\n"),
    "close and keep-alive": _measured(LENGTH + b"Connection: close\r\nConnection: keep-alive\r\n"),
    "HTTP/1.0": _measured(LENGTH, HEAD.replace(b"1.1", b"1.0")),
    "HTTP/1.0, kept open": _measured(LENGTH + b"Connection: keep-alive\r\n", HEAD.replace(b"1.1", b"1.0")),
    "HTTP/1.0 that waits for 100": _measured(LENGTH + b"Expect: 100-continue\r\n", HEAD.replace(b"1.1", b"1.0")),
    "HTTP/1.0, and an offer of h2c": _measured(LENGTH + UPGRADE, HEAD.replace(b"1.1", b"1.0")),
    "a trailer that closes": _chunked(b"c\r\n" + BODY + b"\r\n0\r\nConnection: close\r\n\r\n"),
    "a trailer that closes, at a cold route": _chunked(b"c\r\n" + BODY + b"\r\n0\r\nConnection: close\r\n\r\n", COLD),
    "the same at no route": _chunked(
        b"c\r\n" + BODY + b"\r\n0\r\nConnection: close\r\n\r\n", b"POST /no HTTP/1.1\r\nHost: localhost\r\n"
    ),
}
reads = pytest.mark.parametrize("reads", READS)


async def _sent(wire: Wire, raw: bytes, reads: str) -> Client:
    """Return a client whose bytes the server has read, as `reads` says."""
    client = await wire.connect()
    await until(lambda: wire.listener.connections)
    connection = wire.connection()
    for piece in [raw] if reads == WHOLE else [raw[at : at + 1] for at in range(len(raw))]:
        if not connection.transport.is_closing():
            connection.data_received(piece)
    return client


async def _answers(client: Client) -> list[int]:
    """Return the statuses of all answers until the connection ends."""
    received = b""
    async with asyncio.timeout(60):
        while data := await client.reader.read(65536):
            received += data
    return [int(answer[:3]) for answer in received.split(b"HTTP/1.1 ")[1:]]


@reads
@pytest.mark.parametrize("raw", REFUSED.values(), ids=[ascii(name)[1:-1] for name in REFUSED])
async def test_a_request_of_doubtful_form_is_refused_and_nothing_behind_it_is_read(raw: bytes, reads: str) -> None:
    async with listening() as wire:
        client = await _sent(wire, raw + BEHIND, reads)
        assert await _answers(client) == [400]
        assert wire.coordinator.heard == []


@reads
@pytest.mark.parametrize("raw", MISDIRECTED.values(), ids=MISDIRECTED)
async def test_a_request_for_another_server_is_refused_and_ends_the_connection(raw: bytes, reads: str) -> None:
    async with listening() as wire:
        client = await _sent(wire, raw + BEHIND, reads)
        assert await _answers(client) == [421]
        assert wire.coordinator.heard == []


@reads
@pytest.mark.parametrize(("raw", "heard"), TWO.values(), ids=[ascii(name)[1:-1] for name in TWO])
async def test_an_unusual_request_ends_where_the_standard_says(
    raw: bytes, heard: list[tuple[str, str]], reads: str
) -> None:
    async with listening() as wire:
        client = await _sent(wire, raw + BEHIND, reads)
        assert (await client.responses(2))[1].status == 200
        assert wire.coordinator.heard == heard
        assert (await client.ask(prepare("third"))).status == 200


@reads
@pytest.mark.parametrize("raw", LAST.values(), ids=LAST)
async def test_nothing_is_read_behind_a_request_that_is_the_last(raw: bytes, reads: str) -> None:
    async with listening() as wire:
        client = await _sent(wire, raw + BEHIND, reads)
        assert len(await _answers(client)) == 1
        assert SMUGGLED not in wire.coordinator.heard


@reads
@pytest.mark.parametrize("line", [b"GET /api/ping", b"POST /api/dtmsvr/abort", b"POST /nosuch", b"HEAD /api/ping"])
async def test_a_body_that_looks_like_a_request_is_a_body(line: bytes, reads: str) -> None:
    """Send what CL.0 and 0.CL smuggle: a length that a server forgets."""
    head = line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BEHIND)
    async with listening() as wire:
        client = await _sent(wire, head + BEHIND + prepare("next", "Connection: close"), reads)
        assert len(await _answers(client)) == 2
        assert wire.coordinator.heard == [("prepare", "next")]


@reads
@pytest.mark.parametrize("value", [b"100-continue", b"100-Continue", b"y 100-continue", b"200-maybe", b""])
async def test_a_request_that_waits_for_100_and_its_body_are_one(value: bytes, reads: str) -> None:
    async with listening() as wire:
        client = await _sent(wire, _measured(LENGTH + b"Expect: " + value + b"\r\n") + BEHIND, reads)
        statuses = [response.status for response in await client.responses(2)]
        assert [status for status in statuses if status != 100][:1] == [200]
        assert wire.coordinator.heard == ABORTED
