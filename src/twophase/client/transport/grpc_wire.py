"""The coordinator's gRPC requests as bytes, and its answers as those of HTTP.

The module is sans-IO (dtm-wire §2). A gRPC status becomes the equivalent HTTP answer. So one function,
`wire.read_answer`, decides for both what an answer means for the caller. This is the inverse of
`server/api/dtm_grpc`; it also understands dtm's coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from twophase.client.transport.wire import Disconnected, HttpAnswer, NotTrusted, Operation, Reply, TransportFailure
from twophase.core.address import shown_address
from twophase.core.errors import ConfigurationError, InvalidRequest
from twophase.core.limits import BODY_BYTES_MAX, require
from twophase.core.message import Message
from twophase.core.options import option_fields
from twophase.grpc_wire.messages import SERVICE, Request
from twophase.grpc_wire.messages import encode_request as encode_protobuf
from twophase.http_client.address import parse_address
from twophase.http_client.outcome import HttpError
from twophase.http_client.tls_failure import EXPIRED, NOT_YET_VALID, OTHER_NAME, UNKNOWN_AUTHORITY, distrust

DEFAULT_PORT: Final = 36_790
METHODS: Final = {
    operation: f"/{SERVICE}/{operation.value.capitalize()}"
    for operation in (Operation.PREPARE, Operation.SUBMIT, Operation.ABORT)
}
_REMEDY: Final = f"Write grpc://host:{DEFAULT_PORT}, the address at which `twophase server` listens."
_VERIFY_FAILED: Final = "CERTIFICATE_VERIFY_FAILED: "
_REASONS: Final = {"certificate has expired": EXPIRED, "certificate is not yet valid": NOT_YET_VALID}
_CANCELLED, _UNKNOWN, _INVALID, _DEADLINE, _NOT_FOUND, _EXHAUSTED = 1, 2, 3, 4, 5, 8
_FORBIDDEN, _ABORTED, _OUT_OF_RANGE, _UNIMPLEMENTED, _UNAVAILABLE, _NO_TOKEN = 7, 10, 11, 12, 14, 16
_STATUSES: Final = {
    _INVALID: 400,
    _NOT_FOUND: 500,
    _UNKNOWN: 500,
    _FORBIDDEN: 403,
    _ABORTED: 409,
    _OUT_OF_RANGE: 410,
    _NO_TOKEN: 401,
}

_encode = msgspec.json.Encoder().encode


class GrpcTarget:
    """Where a coordinator's gRPC port is."""

    __slots__ = ("authority", "tls")

    def __init__(self, server: str) -> None:
        """Take `server` apart.

        Raises:
            ConfigurationError: not a grpc or grpcs address.

        >>> GrpcTarget("grpc://localhost").authority
        'localhost:36790'
        """
        scheme, _, rest = server.partition("://")
        authority = rest.removesuffix("/")
        try:
            if any(sign in authority for sign in "/?#"):
                raise ConfigurationError(
                    f"server {shown_address(server)!r} has a path, which gRPC does not have.", remedy=_REMEDY
                )
            address = parse_address(f"http://{authority}")
        except HttpError as error:
            what = str(error).partition(": ")[2]
            raise ConfigurationError(
                f"server {shown_address(server)!r} is no address: {what}.", remedy=_REMEDY
            ) from error
        named = authority.rpartition(":")[2].isdecimal() and not authority.endswith("]")
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.tls = scheme == "grpcs"
        self.authority = f"{host}:{address.port if named else DEFAULT_PORT}"


def encode_request(message: Message, operation: Operation) -> bytes:
    """The body of a request; payloads go as the bytes they are.

    Raises:
        InvalidRequest: text that cannot be UTF-8.
        LimitExceeded: larger than a coordinator takes.

    >>> encode_request(Message("g", ()), Operation.ABORT)
    b'\\n\\x01g\\x12\\x03msg'
    """
    if operation is Operation.ABORT:
        return encode_protobuf(Request(gid=message.gid, trans_type="msg"))
    try:
        body = encode_protobuf(
            Request(
                gid=message.gid,
                trans_type="msg",
                steps=_encode([{"action": branch.url} for branch in message.branches]).decode(),
                payloads=[branch.payload for branch in message.branches],
                query_prepared=message.check_url,
                **option_fields(message.options),
            )
        )
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"the message cannot be written as protobuf: {error}.", gid=message.gid) from error
    require(BODY_BYTES_MAX, len(body), gid=message.gid)
    return body


def answer_of(code: int, details: str, metadata: Mapping[str, str]) -> HttpAnswer:
    """A gRPC status and its trailing metadata as the HTTP answer that says the same.

    Raises:
        TransportFailure: no coordinator answered.

    >>> answer_of(0, "", {"twophase-prepared-at": "17"}).reply.prepared_at
    17
    >>> answer_of(10, "current status 'failed', cannot sumbmit. FAILURE", {"twophase-state": "failed"}).status
    409
    """
    if code == 0:
        prepared_at = metadata.get("twophase-prepared-at", "")
        time_ms = int(prepared_at) if prepared_at.isdecimal() else 0
        return HttpAnswer(200, b"", reply=Reply("SUCCESS", prepared_at=time_ms))
    named = metadata.get("twophase-code", "")
    if code == _UNAVAILABLE and not named:
        _require_trust(details)
        hint = " (does the server speak TLS?)" if "Handshake read failed" in details else ""
        raise Disconnected(f"{details or 'gRPC status 14'}{hint}")
    if code in {_CANCELLED, _DEADLINE} or (code == _EXHAUSTED and not named):
        raise TransportFailure(details or f"gRPC status {code}")
    text = details.encode()
    if code == _UNIMPLEMENTED and not named:
        return HttpAnswer(501, text, reply=Reply())  # the server at this address is not a coordinator
    reply = Reply("FAILURE" if code == _ABORTED else "", details, named, metadata.get("twophase-state", ""))
    if code in {_UNAVAILABLE, _EXHAUSTED}:
        pushback_ms = metadata.get("grpc-retry-pushback-ms", "")
        retry_after = str(int(pushback_ms) / 1000) if pushback_ms.isdecimal() else "1"
        return HttpAnswer(503 if code == _UNAVAILABLE else 429, text, retry_after, reply)
    return HttpAnswer(_STATUSES.get(code, 400), text, reply=reply)


def _require_trust(details: str) -> None:
    """Raise NotTrusted for a certificate.

    gRPC has one status for it and for a server that is away.
    """
    if "Hostname Verification Check failed" in details:
        raise NotTrusted(*distrust(OTHER_NAME, "the host is not among its names"))
    if _VERIFY_FAILED in details:
        reason = details.partition(_VERIFY_FAILED)[2].partition(":")[0]
        raise NotTrusted(*distrust(_REASONS.get(reason, UNKNOWN_AUTHORITY), reason))
