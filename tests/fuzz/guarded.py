"""A server that knows its clients, and speaks TLS.

Tokens are in headers, base URLs and metadata; names are in certificates.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.load import http2
from benchmarks.servers.tokens import added
from tests.fuzz import rocketmq, seeds
from tests.fuzz.mutation import Mutator
from tests.support.certificates import Certificates
from tests.support.memory_transport import MemoryTransport
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.status import framed
from twophase.grpc_wire.messages import SERVICE
from twophase.server.app import Server
from twophase.server.http_port.connection import Connection

SAN: Final = "pay.internal"
_GREETING: Final = frames.PREFACE + frames.settings({})
_ROUNDS: Final = 8
_SIGNED_TIME: Final = b"20260101T000000Z"
_TURN_S: Final = 0.0005
NAMES: Final = [b"pay.internal", b"PAY.internal\x00other", b"*.internal", b"pay.internal.", b"a" * 300]
NAME_WORDS: Final = [b"\x00", b".", b"pay", b"*", "ı".encode(), "Ｐ".encode(), b"xn--", b"\xff", b"@", b"://"]


class Guarded:
    """The files of such a server, the tokens of its clients, and what they send.

    Arguments:
        folder: where the files are written.
    """

    def __init__(self, folder: Path) -> None:
        file, self._certificates = folder / "tokens.toml", Certificates(folder)
        self.tokens = [
            added(file, "producer", ["produce"], "--gid-prefix=seed-", "--requests-per-s=1000000"),
            added(file, "operator", ["observe", "operate", "payload", "topics", "admin"]),
            added(file, "queues", ["produce", "consume"]),
            added(file, "everything", ["produce", "observe", "payload"], "--destination=http://127.0.0.1:9/"),
        ]
        added(file, "pay", ["produce"], f"--san={SAN}")
        self.settings: dict[str, Any] = {"tokens": str(file)} | self._certificates.settings(client_ca=True)
        self._client = self._certificates.context(self._certificates.client(SAN))

    @property
    def requests(self) -> list[bytes]:
        """The seeds of HTTP, each with a way to say who asks."""
        found = []
        for number, request in enumerate(seeds.HTTP + seeds.OPERATORS):
            token = self.tokens[number % len(self.tokens)].encode()
            line, _, rest = request.partition(b"\r\n")
            if number % 4 == 3:
                method, _, target = line.partition(b" ")
                found.append(method + b" /t/" + token + target + b"\r\n" + rest)
            else:
                scheme = (b"Bearer ", b"bearer ", b"Basic ")[number % 3 if number % 7 == 0 else 0]
                found.append(line + b"\r\nAuthorization: " + scheme + token + b"\r\n" + rest)
        return found

    @property
    def calls(self) -> list[bytes]:
        """The same for gRPC."""
        found = []
        for number, method in enumerate(("Prepare", "Submit", "Abort", "NewGid", "Subscribe", "DeleteTopic") * 2):
            token = self.tokens[number % len(self.tokens)]
            metadata = frames.field(b"authorization", f"Bearer {token}".encode())
            for raw in seeds.GRPC_MESSAGES:
                block = http2.head(f"/{SERVICE}/{method}", "localhost") + metadata
                body = frames.frame(frames.DATA, frames.END_STREAM, 1, framed(raw))
                found.append(_GREETING + frames.header_frames(1, block) + body)
        return found

    @property
    def rocketmq(self) -> tuple[list[bytes], list[bytes]]:
        """Return the same for the port of RocketMQ's clients, and the words of it."""
        found = []
        for number, token in enumerate([*self.tokens, "wrong"]):
            key = token.encode()
            signature = hmac.new(key, _SIGNED_TIME, hashlib.sha1).hexdigest().encode()
            signed = b"MQv2-HMAC-SHA1 Credential=" + key + b", SignedHeaders=x-mq-date-time, Signature=" + signature
            known = b"Bearer " + key if number % 2 else signed
            metadata = frames.field(b"x-mq-date-time", _SIGNED_TIME) + frames.field(b"authorization", known)
            found += rocketmq.calls(metadata)
        return found, [*rocketmq.CALL_WORDS, *self.words, b"MQv2-HMAC-SHA1 ", b"Credential=", b"Signature="]

    @property
    def words(self) -> list[bytes]:
        """Pieces that mean something in a header of authorization."""
        bearer = [b"Bearer " + token.encode() for token in self.tokens]
        return [*bearer, *(one[:20] for one in bearer), b"Authorization: ", b"authorization", b"/t/", b"Basic ", b"tp_"]

    def drawing_tls(self, seed: int) -> Callable[[], list[bytes]]:
        """Return what draws a byte that says what is changed, and a request."""
        mutator = Mutator(seeds.HTTP, seeds.HTTP_WORDS, seed)
        return lambda: [bytes([mutator.random.randrange(256)]), mutator.draw()]

    async def tls(self, server: Server, cases: Sequence[list[bytes]]) -> list[bytes]:
        """Shake hands with the HTTP port, send a request, and return the answers.

        In half of the cases a record is changed on its way.
        """
        wires = [_TlsWire(self._client) for _ in cases]
        handshakes, port, loop = server.listener._handshakes, server.listener.port, asyncio.get_running_loop()
        assert handshakes is not None, "it has a certificate"
        make = handshakes.before(lambda below: Connection(port, loop, below))
        for wire in wires:
            wire.begin(make())
        for turn in range(_ROUNDS):
            for wire, (control, request) in zip(wires, cases, strict=True):
                wire.exchange(request, changed=control[0] % _ROUNDS == turn and control[0] >= 128, bit=control[0])
            await asyncio.sleep(_TURN_S)
        for wire in wires:
            wire.hang_up()
        return [wire.answer for wire in wires]

    def check_name(self, server: Server, raw: bytes) -> None:
        """Check that a certificate is a client's only by its name."""
        gate = server.gate
        names = [part.decode("utf-8", "replace") for part in raw.split(b"\0")]
        kinds = ("DNS", "DNS", "URI", "IP Address", "email", "DNS")
        alternative = tuple((kinds[number % len(kinds)], name) for number, name in enumerate(names))
        caller = gate.with_certificate({"subjectAltName": alternative, "subject": ((("commonName", SAN),),)})
        named = any(kind == "DNS" and name.isascii() and name.lower() == SAN for kind, name in alternative)
        assert (caller is not gate.unknown) == named, f"{alternative} is {caller.name!r}"


class _TlsWire(MemoryTransport):
    """The server's end of a connection, and a client that speaks TLS."""

    _start_tls_compatible = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._from_server, self._to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = context.wrap_bio(self._from_server, self._to_server, server_hostname="127.0.0.1")
        self._taken = 0
        self._sent = False
        self.answer = b""
        """The bytes that the client has decrypted."""

    def begin(self, protocol: asyncio.Protocol) -> None:
        self.set_protocol(protocol)
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: Any = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def _force_close(self, _error: Exception | None) -> None:
        self.abort()

    def exchange(self, request: bytes, *, changed: bool, bit: int) -> None:
        """Pass on what the server has written, then what the client says to that."""
        if self.closed:
            return
        self._from_server.write(bytes(self.written[self._taken :]))
        self._taken = len(self.written)
        try:
            self._client.do_handshake()
            if not self._sent and request:
                self._sent = True
                self._client.write(request)
            self.answer += self._client.read(65_536)
        except ssl.SSLError:
            pass  # it waits for the server, or has refused it
        said = bytearray(self._to_server.read() if self.reading else b"")
        if said and changed:
            said[bit * 7 % len(said)] ^= 1 << bit % 8
        if said:
            self._receive(bytes(said))

    def _receive(self, said: bytes) -> None:
        """Pass bytes on as a transport does; TLS takes them into a buffer of its own."""
        while said and isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = memoryview(self._protocol.get_buffer(len(said)))
            size = min(len(buffer), len(said))
            buffer[:size] = said[:size]
            self._protocol.buffer_updated(size)
            said = said[size:]
        if said:
            self._protocol.data_received(said)

    def hang_up(self) -> None:
        self._protocol.connection_lost(None)
