"""Signatures of calls, and questions of check-backs, as a service reads them.

A case is `target`, `signature`, `oldest` and `body`, each in a line of its own but for the last.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import sqlalchemy

from twophase.barrier import install
from twophase.barrier.http_answer import CheckBackPolicy, answer_check_back
from twophase.barrier.signing import accept, grpc_call, http_call
from twophase.core.errors import CallNotSigned
from twophase.core.headers import OLDEST_HEADER
from twophase.core.signature import SIGNATURE_HEADER, http_text, key_of, known_keys, signed
from twophase.core.verdict import VERDICT_HEADER
from twophase_spark.sink.checkback import PATH
from twophase_spark.sink.checkback_server import CheckBackServer, _Handler
from twophase_spark.sink.database import engine_of, install_ledger

_SECRETS: Final = {"k1": "the first of two secrets", "k2": "the other one, which follows"}
_KEYS: Final = known_keys(_SECRETS)
_FOREIGN: Final = key_of("k1", "a secret of another service")
_TARGETS: Final = (
    f"{PATH}?gid=seed-1&trans_type=msg&op=msg&branch_id=00&barrier=0123456789abcdef0123456789abcdef",
    f"{PATH}?gid=seed-2&trans_type=msg&op=msg&branch_id=00&prepared_at=1790000000000",
    "/in?gid=seed-3&branch_id=01&op=action&trans_type=msg",
    "/health/live",
)
WORDS: Final = [
    *(b"v1,", b"v2,", b"kid=k1", b"kid=k2", b"t=", b"t=-1", b"t=9999999999999999999", b"s=", b",", b"=", b"A" * 44),
    *(
        b"gid=",
        b"&gid=x",
        b"&barrier=",
        b"&prepared_at=",
        b"%",
        b"%00",
        b"%ff",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\xff",
        b"&" * 50,
    ),
    *(b"&op=rollback", b"&trans_type=saga", b"?", b"#", b"//", b"..", b"content-length: 5\r\n", b"HTTP/1.0", b"POST"),
]


def _calls() -> list[tuple[str, str, bytes]]:
    """Return target, oldest and body of each call that is signed rightly."""
    return [(target, oldest, body) for target in _TARGETS for oldest in ("", "1790000000000") for body in (b"", b"{}")]


class Signatures:
    """Calls that are signed, and those that are not."""

    def __init__(self) -> None:
        self._signed = set(_calls())
        now_ms = time.time_ns() // 1_000_000
        assert _KEYS is not None
        self.seeds: list[bytes] = []
        for target, oldest, body in _calls():
            for key in (*_KEYS, _FOREIGN):
                for at_ms in (now_ms, now_ms - 3_600_000):
                    header = signed(key, at_ms, http_text(at_ms, "GET", target, oldest, body))
                    self.seeds.append(b"\n".join([target.encode(), header.encode(), oldest.encode(), body]))

    def check(self, raw: bytes) -> None:
        """Check that a call is accepted only as it was signed.

        Otherwise it is refused by its own error.
        """
        target, header, oldest, body = _parts(raw)
        path, _, query = target.partition("?")
        headers = {SIGNATURE_HEADER: header, OLDEST_HEADER: oldest}
        with contextlib.suppress(CallNotSigned):
            found = accept(_KEYS, http_call("GET", path, query, headers, lambda: body, peer="192.0.2.1"))
            assert found is not None
            assert found.key != _FOREIGN
            assert (target, oldest, body) in self._signed, f"accepted, and not signed: {raw!r}"
        metadata = ((SIGNATURE_HEADER, header), ("dtm-gid", target), ("twophase-oldest", oldest))
        with contextlib.suppress(CallNotSigned):
            accept(_KEYS, grpc_call("/bank.Bank/In", metadata, body, peer="192.0.2.1"))
            raise AssertionError(f"a signature of another call is accepted: {raw!r}")


def _parts(raw: bytes) -> tuple[str, str, str, bytes]:
    target, header, oldest, body = [*raw.split(b"\n", 3), b"", b"", b""][:4]
    return target.decode("latin-1"), header.decode("latin-1"), oldest.decode("latin-1"), body


class Questions:
    """The check-back route of a service, and the server of the Spark sink.

    Each has a database of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._engine = sqlalchemy.create_engine(f"sqlite:///{folder / 'service.db'}")
        install(self._engine)
        self._policies = [
            CheckBackPolicy.of("barrier", 0.2, require_identity=required, keys=keys)
            for required, keys in ((True, None), (True, _SECRETS))
        ]
        self._ledger = engine_of(f"sqlite:///{folder / 'ledger.db'}", 2)
        install_ledger(self._ledger)
        self._servers = [
            CheckBackServer(self._ledger, "127.0.0.1", 0, keys, request_s=5.0) for keys in (None, _SECRETS)
        ]
        self.seeds = [
            f"GET {target} HTTP/1.1\r\nhost: a\r\n{SIGNATURE_HEADER}: v1,kid=k1,t=1,s=a\r\n\r\n".encode()
            for target in _TARGETS
        ]

    def close(self) -> None:
        """Close databases and ports."""
        for server in self._servers:
            server.server_close()
        self._engine.dispose()
        self._ledger.dispose()

    def check(self, raw: bytes) -> None:
        """Check that a question has an answer of a route, and no fault."""
        target, header, oldest, body = _parts(raw)
        path, _, query = target.partition("?")
        call = http_call("GET", path, query, {SIGNATURE_HEADER: header, OLDEST_HEADER: oldest}, lambda: body, peer="")
        with contextlib.suppress(ValueError):  # the framework's
            parameters = parse_qs(query, max_num_fields=100)
            for policy in self._policies:
                reply = answer_check_back(self._engine, parameters, policy, call)
                assert reply.status < 500 or reply.headers.get(VERDICT_HEADER) == "unknown", f"{reply}, to {raw!r}"

    def ask(self, pieces: list[bytes]) -> Iterator[bytes]:
        """Yield what each of the two servers answers to a connection with these bytes."""
        for server in self._servers:
            client, accepted = socket.socketpair()
            with client, accepted:
                client.settimeout(60)
                client.sendall(b"".join(pieces))
                client.shutdown(socket.SHUT_WR)
                _Handler(accepted, ("192.0.2.1", 9), server)
                accepted.close()
                said = b""
                while data := client.recv(65_536):
                    said += data
                yield said


@contextlib.contextmanager
def questions() -> Iterator[Questions]:
    """Yield the routes, with their databases in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="twophase-fuzz-") as folder:
        found = Questions(Path(folder))
        try:
            yield found
        finally:
            found.close()
