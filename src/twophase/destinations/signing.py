"""The signature of one call, and the signed verdict that must answer it."""

from __future__ import annotations

import time
from collections.abc import Iterable

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
_NOT_SIGNED = "unsigned: the verdict is not signed by the destination's key, and counts as none"


class CallSigner:
    """Signs one call, with the time of its sending."""

    __slots__ = ("_call", "_key", "_signed_ms")

    def __init__(self, key: SigningKey, call: Call) -> None:
        self._key = key
        self._call = call
        self._signed_ms = 0

    def http(self, method: str, target: str, body: bytes) -> str:
        """Return the header line of a request, as it is sent."""
        now_ms = self._signed_ms = time.time_ns() // 1_000_000
        key, oldest = self._key, ""
        for name, value in self._call.headers:
            if name == OLDEST_HEADER:
                oldest = value
                break
        # As `signed`, without its call.
        signature = key.sign(http_text(now_ms, method, target, oldest, body))
        return f"{SIGNATURE_HEADER}: v1,kid={key.id},t={now_ms},s={signature}\r\n"

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
        query = dict(self._call.query)
        if query.get("branch_id") != "00" or answer.status not in _VERDICT_STATUSES:
            return answer
        question = Signature(self._key, self._signed_ms)
        if is_verdict_signed(value, question, query.get("gid", ""), answer.verdict_header or "", answer.body):
            return answer
        return Answer(0, latency_ms=answer.latency_ms, error=_NOT_SIGNED)
