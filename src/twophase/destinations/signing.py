"""The signature of one call, and the signed verdict that must answer it."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable

import msgspec

from twophase.core.headers import OLDEST_HEADER
from twophase.core.signature import (
    SIGNATURE_HEADER,
    Signature,
    SigningKey,
    grpc_text,
    http_text,
    is_verdict_signed,
    signed,
)
from twophase.destinations.base import Answer, Call

_VERDICT_STATUSES = frozenset({200, 409, 425})
"""Statuses that could be a verdict.

Every other one is unknown anyway, and shows its own reason.
"""
_NOT_SIGNED = "unsigned: the verdict is not signed by the destination's key, and does not count"


class CallSigner(msgspec.Struct, eq=False):
    """Signs one call, with the time of its sending."""

    _key: SigningKey
    _call: Call
    _signed_ms: int = 0

    def http(self, method: str, target: str, body: bytes) -> bytes:
        """Return the header line of a request, as it is sent."""
        now_ms = self._signed_ms = time.time_ns() // 1_000_000
        key, text = self._key, http_text(now_ms, method, target, _oldest(self._call.headers), body)
        # As `signed`, without its call.
        return f"{SIGNATURE_HEADER}: v1,kid={key.id},t={now_ms},s={key.sign(text)}\r\n".encode()

    def grpc(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> tuple[str, str]:
        """Return the metadata of a call, beside what it is sent with."""
        now_ms = self._signed_ms = time.time_ns() // 1_000_000
        return SIGNATURE_HEADER, signed(self._key, now_ms, grpc_text(now_ms, method, metadata, self._call.payload))

    def judged(self, answer: Answer, value: str | None) -> Answer:
        """Return the answer to a check-back; in place of an unsigned verdict, none.

        Arguments:
            answer: to this call.
            value: of its header or metadata `x-twophase-verdict-signature`.
        """
        query = dict(self._call.query or self._call.in_body)
        if query.get("branch_id") != "00" or answer.status not in _VERDICT_STATUSES:
            return answer
        question = Signature(self._key, self._signed_ms)
        if is_verdict_signed(value, question, query.get("gid", ""), answer.verdict_header or "", answer.body):
            return answer
        return Answer(0, latency_ms=answer.latency_ms, error=_NOT_SIGNED)


@functools.lru_cache(256)  # most calls carry the same headers
def _oldest(headers: tuple[tuple[str, str], ...]) -> str:
    return next((value for name, value in headers if name == OLDEST_HEADER), "")
