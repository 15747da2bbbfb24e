"""The server that takes over, by its public HTTP API.

It alone decides what is new to it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

import msgspec

from twophase.core.address import shown_address
from twophase.core.errors import ConfigurationError, CoordinatorUnreachable, LimitExceeded
from twophase.core.limits import BODY_BYTES_MAX
from twophase.core.takeover import (
    MESSAGES_MAX,
    PATH,
    Outcome,
    TakenMessage,
    TakenResult,
    TakeoverReply,
    TakeoverRequest,
)
from twophase.core.trust import context_of
from twophase.dtm_import.found import Subscriber, Topic
from twophase.http_client.address import parse_address
from twophase.http_client.blocking import BlockingClient
from twophase.http_client.outcome import HttpError

TIMEOUT_S: Final = 60.0
PATIENCE_S: Final = 60.0
"""The time for which messages are sent again that the server cannot take yet."""
_PAUSES_S: Final = (0.1, 0.3, 1.0, 2.0)
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_ENVELOPE_BYTES: Final = 256
_THIS_URL_EXISTS: Final = "this url exists"
_OLD_SERVER: Final = "Is it a twophase server of this version?"
_encode = msgspec.json.Encoder().encode
_reply = msgspec.json.Decoder(TakeoverReply)


class _Kv(msgspec.Struct):
    v: str = ""


class _KvReply(msgspec.Struct):
    kv: list[_Kv] | None = None


class _Answer(msgspec.Struct):
    message: str = ""
    remedy: str = ""


_subscribers = msgspec.json.Decoder(list[Subscriber] | None)


class Target:
    """One server; of several nodes on one store, any.

    Arguments:
        server: its address, such as `http://localhost:36789`.
        never_taken: nothing was handed over to it before, so what it does not know is new, however old.
        authorization: sent as the `Authorization` header.
    """

    def __init__(self, server: str, *, never_taken: bool = False, authorization: str | None = None) -> None:
        if not server.startswith(("http://", "https://")):
            raise ConfigurationError(f"--server: {shown_address(server)!r} is not an http:// or https:// address.")
        self._server = server.rstrip("/")
        self._never_taken = never_taken
        self._patience_s = PATIENCE_S
        self.shown = shown_address(self._server)
        try:
            headers = () if authorization is None else (("authorization", authorization),)
            self._client = BlockingClient(
                parse_address(self._server),
                answer_bytes_max=_ANSWER_BYTES_MAX,
                headers=headers,
                ssl_context=context_of(self._server),
            )
        except HttpError as error:
            raise ConfigurationError(f"--server: {self.shown!r} is no address: {error}.") from error

    def check(self) -> None:
        """Find out whether it is one that takes over.

        Raises:
            CoordinatorUnreachable: it is not, or does not answer.
        """
        self.take([], dry_run=True)

    def finish(self) -> None:
        """Have the server note that a move was made, of whatever was copied.

        Raises:
            CoordinatorUnreachable: no usable answer; run the move again.
        """
        self._take([], dry_run=False)

    def take(self, messages: Sequence[TakenMessage], *, dry_run: bool) -> list[TakenResult]:
        """Hand messages over; an outcome for each, in their order.

        Raises:
            CoordinatorUnreachable: no usable answer; what was handed over before that is there, and stays.
        """
        outcomes: dict[str, TakenResult] = {}
        waiting = []
        for message in messages:
            if len(_encode(message)) + _ENVELOPE_BYTES > BODY_BYTES_MAX.value:
                reason = f"it is larger than {BODY_BYTES_MAX.value} bytes, the most that one request may have."
                outcomes[message.gid] = TakenResult(
                    message.gid, Outcome.REFUSED, code=LimitExceeded.code, message=reason
                )
            else:
                waiting.append(message)
        ends_s = time.monotonic() + self._patience_s
        for attempt in range(1_000_000):
            for some in _requests(waiting):
                outcomes |= {one.gid: one for one in self._take(some, dry_run=dry_run)}
            waiting = [one for one in waiting if outcomes[one.gid].outcome is Outcome.LATER]
            if not waiting:
                break
            if time.monotonic() > ends_s:
                self._patience_s = (
                    0.0  # the rest is tried once: a server that is down need not be awaited a page at a time
                )
                break
            time.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
        return [outcomes[message.gid] for message in messages]

    def missing(self, topic: Topic) -> list[Subscriber]:
        """Those of a topic's addresses that are not subscribed here.

        Raises:
            CoordinatorUnreachable: no usable answer.
        """
        status, body = self._ask("/api/dtmsvr/queryKV", {"cat": "topics", "key": topic.name})
        try:
            if status != HTTPStatus.OK:
                raise self._refusal(status, body, "when asked for topics")
            found = msgspec.json.decode(body, type=_KvReply).kv or []
            here = {one.url for kv in found for one in _subscribers.decode(kv.v or "null") or ()}
        except msgspec.MsgspecError as error:
            raise CoordinatorUnreachable(f"{self.shown} gave no usable list of topics.") from error
        return [subscriber for subscriber in topic.subscribers or () if subscriber.url not in here]

    def subscribe(self, name: str, subscriber: Subscriber) -> str:
        """Subscribe one address; why not, empty when it is subscribed now.

        Raises:
            CoordinatorUnreachable: no usable answer.
        """
        asked = {"topic": name, "url": subscriber.url, "remark": subscriber.remark}
        status, body = self._ask("/api/dtmsvr/subscribe", asked)
        if status == HTTPStatus.OK:
            return ""
        try:
            text = msgspec.json.decode(body, type=_Answer).message
        except msgspec.MsgspecError:
            text = f"status {status}"
        return "" if _THIS_URL_EXISTS in text else text

    def _take(self, messages: Sequence[TakenMessage], *, dry_run: bool) -> Sequence[TakenResult]:
        request = _encode(TakeoverRequest(tuple(messages), dry_run, self._never_taken))
        status, body = self._send("POST", PATH, request)
        if status != HTTPStatus.OK:
            raise self._refusal(status, body, f"to {PATH}")
        try:
            results = _reply.decode(body).results
        except msgspec.MsgspecError as error:
            raise CoordinatorUnreachable(
                f"{self.shown} gave no usable answer to {PATH}.", remedy=_OLD_SERVER
            ) from error
        if [result.gid for result in results] != [message.gid for message in messages]:
            raise CoordinatorUnreachable(f"{self.shown} answered for other messages than it was asked for.")
        return results

    def _refusal(self, status: int, body: bytes, to: str) -> CoordinatorUnreachable:
        """Return the error about a refusal, with the remedy that the server names."""
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.MsgspecError:
            answer = _Answer()
        text = f" ({answer.message})" if answer.message else ""
        return CoordinatorUnreachable(
            f"{self.shown} answered {status}{text} {to}.", remedy=answer.remedy or _OLD_SERVER
        )

    def _ask(self, path: str, parameters: dict[str, str]) -> tuple[int, bytes]:
        return self._send("GET", f"{path}?{urlencode(parameters)}", b"")

    def _send(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        try:
            response = self._client.request(method, path, body, timeout_s=TIMEOUT_S)
        except HttpError as error:
            why = error.text if error.remedy else getattr(error.__cause__, "strerror", None) or error.__cause__ or error
            raise CoordinatorUnreachable(
                f"{self.shown} cannot be reached: {why}.",
                remedy=error.remedy or "Start it (twophase server), or name it with --server; then run this again.",
            ) from error
        return response.status, response.body


def _requests(messages: Sequence[TakenMessage]) -> list[list[TakenMessage]]:
    """Divide messages among as few requests as their limits allow."""
    requests: list[list[TakenMessage]] = [[]]
    size = _ENVELOPE_BYTES
    for message in messages:
        bytes_ = len(_encode(message)) + 1
        if len(requests[-1]) == MESSAGES_MAX or (requests[-1] and size + bytes_ > BODY_BYTES_MAX.value):
            requests.append([])
            size = _ENVELOPE_BYTES
        requests[-1].append(message)
        size += bytes_
    return requests
