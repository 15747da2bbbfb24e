"""The caller of RocketMQ's clients: a token is the access key and the secret key.

A client signs the time of its request with its secret key (HMAC-SHA1) and sends the access key beside it. The server
keeps no token, only its digest, so the access key must be the token: it says who calls, as `Authorization: Bearer` does
elsewhere, and the signature is then checked with it. The time is not compared with the clock: the official Python
client writes its local time and calls it UTC. A client without keys sends both empty; it is one without a token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from twophase.grpc_server.http2.headers import Fields
from twophase.server.identity.caller import Caller
from twophase.server.identity.gate import Gate

_SIGNED: Final = re.compile(
    rb"MQv2-HMAC-SHA1 +Credential=(?P<key>[^,/ ]*)(?:[/ ][^,]*)?, *SignedHeaders=x-mq-date-time, *"
    rb"Signature=(?P<signature>[0-9A-Fa-f]*)"
)
_SCHEME: Final = b"mqv2-hmac-sha1"
_SIGNED_BYTES_MAX: Final = 1024
"""A longer authorization is refused unread."""


def caller_of(fields: Fields, gate: Gate) -> Caller:
    """Return the caller that the metadata of a call names."""
    if gate.is_open:
        return gate.anonymous
    given = [value for name, value in fields if name == b"authorization"]
    if len(given) != 1 or not given[0].lower().startswith(_SCHEME):
        return gate.among(fields)
    found = _SIGNED.fullmatch(given[0]) if len(given[0]) <= _SIGNED_BYTES_MAX else None
    if found is None:
        return gate.mistaken
    key = found["key"]
    if not key:
        return gate.unknown
    times = [value for name, value in fields if name == b"x-mq-date-time"]
    expected = hmac.new(key, times[0] if times else b"", hashlib.sha1).hexdigest().encode()
    caller = gate.with_token(key)
    return caller if hmac.compare_digest(expected, found["signature"].lower()) else gate.mistaken
