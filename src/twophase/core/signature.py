"""Signatures of the coordinator's calls, and of the verdicts that answer them.

A destination with a key gets `x-twophase-signature: v1,kid=K,t=UNIX_MS,s=BASE64` with each call, each check-back and
each probe. The service that has the same key knows that the coordinator made this call, to this path, with these
parameters and this body, within the last five minutes. Promise: no two different calls have one text, so a signature
proves one call only; and a comparison takes the same time whatever it compares.

A signature may be sent again within five minutes. That changes nothing: the barrier row stands, and a verdict is for
ever. The host, and headers other than `x-twophase-oldest`, are not signed.
"""

from __future__ import annotations

import hmac
import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from twophase.core.errors import CallNotSigned, ConfigurationError

SIGNATURE_HEADER: Final = "x-twophase-signature"
VERDICT_SIGNATURE_HEADER: Final = "x-twophase-verdict-signature"
TOLERANCE_MS: Final = 300_000
"""The allowed difference between a signature's time and the service's clock."""
SECRET_BYTES_MIN: Final = 16
_KEY_REMEDY: Final = "Make one by `openssl rand -hex 32`."
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_VALUE: Final = re.compile(r"v1,kid=([A-Za-z0-9._-]{1,64}),t=([1-9][0-9]{0,14}),s=([A-Za-z0-9+/]{43}=)", re.ASCII)
_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_SIGNED_METADATA: Final = ("dtm-", "twophase-", "x-twophase-")
_UNSIGNED: Final = "it carries no signature: the coordinator has no key for this destination, or others call this route"


class SigningKey:
    """A key that the coordinator and a service share.

    Both hashes of an HMAC (RFC 2104 §2) begin with a block that depends on the key alone. They go on from a copy of
    that state: `hmac.digest` takes three times as long.

    Arguments:
        id: names the key in a signature.
        secret: its bytes.
    """

    __slots__ = ("_inner", "_outer", "id", "secret")

    def __init__(self, id: str, secret: bytes) -> None:  # noqa: A002 -- the name that a signature has for it
        self.id = id
        self.secret = secret
        block = (sha256(secret).digest() if len(secret) > _BLOCK_BYTES else secret).ljust(_BLOCK_BYTES, b"\0")
        self._inner = sha256(block.translate(_INNER))
        self._outer = sha256(block.translate(_OUTER))

    def sign(self, text: bytes) -> str:
        """Return the HMAC-SHA256 of a text, in base64."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False).decode()

    def __eq__(self, other: object) -> bool:
        """Return True for a key of the same id and secret."""
        return isinstance(other, SigningKey) and (self.id, self.secret) == (other.id, other.secret)

    def __hash__(self) -> int:
        """Return the hash of id and secret."""
        return hash((self.id, self.secret))

    def __repr__(self) -> str:
        """Return the id alone: a secret reaches no log."""
        return f"SigningKey({self.id!r})"


class Signature(NamedTuple):
    """An accepted signature: its key, and the time at which the call was signed."""

    key: SigningKey
    signed_ms: int


def key_of(id_: str, secret: str | bytes) -> SigningKey:
    """Return the key of this id.

    Raises:
        ConfigurationError: the id or the secret cannot be one. The secret is not shown.

    >>> key_of("2026-11", "0123456789abcdef")
    SigningKey('2026-11')
    """
    if not _ID.fullmatch(id_):
        raise ConfigurationError(f"the key id {id_[:64]!r} has other characters than A-Z a-z 0-9 . _ -, or over 64.")
    if not isinstance(secret, str | bytes | bytearray | memoryview):
        raise ConfigurationError(
            f"the key {id_!r} is {type(secret).__name__} instead of text or bytes: is its variable set?",
            remedy=_KEY_REMEDY,
        )
    content = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(content) < SECRET_BYTES_MIN:
        raise ConfigurationError(
            f"the key {id_!r} has {len(content)} bytes, at least {SECRET_BYTES_MIN} are needed.", remedy=_KEY_REMEDY
        )
    return SigningKey(id_, content)


def known_keys(keys: Mapping[str, str | bytes] | None) -> tuple[SigningKey, ...] | None:
    """Return the keys of a service; None where calls are not verified.

    Arguments:
        keys: secrets by id.

    Raises:
        ConfigurationError: no key is given, which would refuse every call, or one cannot be a key.
    """
    if keys is None:
        return None
    if not keys:
        raise ConfigurationError("keys: no key is given, so no call could be accepted.", remedy=_KEY_REMEDY)
    return tuple([key_of(id_, secret) for id_, secret in keys.items()])


def http_text(signed_ms: int, method: str, target: str, oldest: str, body: bytes) -> bytes:
    """Return the text that is signed of a call over HTTP.

    Arguments:
        signed_ms: milliseconds since 1970.
        method: GET or POST.
        target: path and query, as they stand in the request line.
        oldest: the value of the header `x-twophase-oldest`; empty without one.
        body: as it is sent.

    >>> http_text(17, "GET", "/check?gid=g", "", b"").decode().splitlines()[:5]
    ['v1', '17', 'GET', '/check?gid=g', '']
    """
    return f"v1\n{signed_ms}\n{method}\n{target}\n{oldest}\n{sha256(body).hexdigest()}".encode()


def grpc_text(signed_ms: int, method: str, metadata: Iterable[tuple[str, str | bytes]], body: bytes) -> bytes:
    """Return the text that is signed of a call over gRPC.

    Of the metadata it has what names the message and the database, sorted: `dtm-*`, `twophase-*` and `x-twophase-*`.

    Arguments:
        signed_ms: milliseconds since 1970.
        method: `/package.Service/Method`.
        metadata: all of the call's.
        body: the request's bytes.

    >>> grpc_text(17, "/b.B/In", [("tenant", "7"), ("dtm-gid", "g")], b"").decode().splitlines()[:5]
    ['v1', '17', 'gRPC', '/b.B/In', 'dtm-gid:g']
    """
    named = [
        f"{name}:{value if isinstance(value, str) else value.hex()}\n"
        for name, value in metadata
        if name.startswith(_SIGNED_METADATA) and name != SIGNATURE_HEADER
    ]
    return f"v1\n{signed_ms}\ngRPC\n{method}\n{''.join(sorted(named))}{sha256(body).hexdigest()}".encode()


def verdict_text(signed_ms: int, gid: str, verdict: str, body: bytes) -> bytes:
    """Return the text that a service signs with a verdict.

    Arguments:
        signed_ms: the time in the question's own signature.
        gid: the message that was asked about.
        verdict: the value of the verdict header.
        body: of the answer.
    """
    return f"v1 verdict\n{signed_ms}\n{gid}\n{verdict}\n{sha256(body).hexdigest()}".encode()


def signed(key: SigningKey, signed_ms: int, text: bytes) -> str:
    """Return the value of the header of a call with this text."""
    return f"v1,kid={key.id},t={signed_ms},s={key.sign(text)}"


def verify(value: str | None, keys: tuple[SigningKey, ...], now_ms: int, text_at: Callable[[int], bytes]) -> Signature:
    """Return the signature of a call that one of the keys made.

    It is at most five minutes older or newer than `now_ms`.

    Arguments:
        value: of the header; None without one.
        keys: those of the service.
        now_ms: the service's clock, in milliseconds since 1970.
        text_at: gives the call's text, as signed at a time in milliseconds since 1970.

    Raises:
        CallNotSigned: no key made it; the text gives the reason, and shows no key.
    """
    if value is None:
        raise CallNotSigned(f"This call is refused: {_UNSIGNED}.")
    found = _VALUE.fullmatch(value)
    if found is None:
        raise CallNotSigned("This call is refused: its signature is not of the form v1,kid=K,t=UNIX_MS,s=BASE64.")
    id_, signed_ms = found[1], int(found[2])
    key = next((key for key in keys if key.id == id_), None)
    if key is None:
        raise CallNotSigned(
            f"This call is refused: its signature is of the key {id_!r}, which this service does not know."
        )
    # Compared before the time, so that only the holder of a key learns of the clock.
    if not hmac.compare_digest(key.sign(text_at(signed_ms)), found[3]):
        raise CallNotSigned(
            f"This call is refused: it is not what the key {id_!r} has signed: another secret, or something on the way "
            "has changed the path, the query, the body or x-twophase-oldest."
        )
    if abs(now_ms - signed_ms) > TOLERANCE_MS:
        raise CallNotSigned(
            f"This call is refused: it was signed at {signed_ms}, and the time here is {now_ms}: set the clocks."
        )
    return Signature(key, signed_ms)


def verdict_signed(question: Signature, gid: str, verdict: str, body: bytes) -> str:
    """Return the value of the header by which a service signs a verdict."""
    return f"v1,s={question.key.sign(verdict_text(question.signed_ms, gid, verdict, body))}"


def is_verdict_signed(value: str | None, question: Signature, gid: str, verdict: str, body: bytes) -> bool:
    """Return True for a verdict that the holder of the question's key has signed."""
    # Bytes: a text beyond ASCII is no signature, and no error.
    return hmac.compare_digest((value or "").encode(), verdict_signed(question, gid, verdict, body).encode())
