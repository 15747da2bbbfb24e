"""Many messages at once to one coordinator.

It has some keep-alive connections, each with a thread and a request under way. Promise: it returns when every message
has been answered for good. Messages that the coordinator cannot take now (overload, a restart, a cut connection) are
sent again until the timeout, which is safe because every request is idempotent (I7).
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Final, Self

import msgspec

from twophase.client.transport.sync import address_of
from twophase.core.errors import CoordinatorUnreachable, PublishError, TlsFailed
from twophase.core.many import PREPARE_PATH, SUBMIT_PATH, ManyReply, OneResult, SubmitMany, is_later
from twophase.core.schedule import Schedule
from twophase.core.trust import context_of, trust_of
from twophase.http_client.blocking import BlockingClient
from twophase.http_client.outcome import HttpError, HttpErrorKind
from twophase_spark.references import looked_up
from twophase_spark.sink.options import Publishing

REQUEST_TIMEOUT_S: Final = 60.0
PATIENCE_S: Final = 120.0
BYTES_PER_REQUEST_MAX: Final = 2 * 1024 * 1024
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_AHEAD: Final = 2
"""Requests for each connection, under way or ready to be sent.

Making them may take some time.
"""
_OPTIONS_OF_TLS: Final = "The sink's options are ca, clientCertificate and clientKey."
_BACKOFF: Final = Schedule(first_ms=50, cap_ms=2_000)
_decode = msgspec.json.Decoder(ManyReply).decode
_encode = msgspec.json.Encoder().encode
Settled = Callable[[str, OneResult], None]
"""Called with a gid and its outcome, on the caller's thread."""


class BulkClient:
    """Sends messages for one thread, by threads of its own; a context manager.

    Arguments:
        coordinator: `http://host:port` or `https://…`.
        authorization: the header's value, empty for none.
        ssl_context: for https; the usual one by default.
        connections: requests under way at once.
        patience_s: for how long one request is repeated that the coordinator cannot take.
    """

    def __init__(
        self,
        coordinator: str,
        *,
        authorization: str = "",
        ssl_context: ssl.SSLContext | None = None,
        connections: int = 4,
        patience_s: float = PATIENCE_S,
    ) -> None:
        headers = (("authorization", authorization),) if authorization else ()
        self._client = BlockingClient(
            address_of(coordinator), answer_bytes_max=_ANSWER_BYTES_MAX, headers=headers, ssl_context=ssl_context
        )
        self._connections = connections
        self._patience_s = patience_s
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="twophase-bulk")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def prepare(self, messages: Iterable[tuple[str, bytes]], per_request: int, settled: Settled) -> None:
        """Prepare messages, given as gid and request.

        Raises:
            CoordinatorUnreachable: the timeout has passed. TlsFailed. PublishError: no twophase coordinator answers.
            Whatever `settled` raises, after which no further request begins.
        """
        self._all(PREPARE_PATH, _portions(messages, per_request), _prepare_body, settled)

    def submit(self, gids: Iterable[str], per_request: int, settled: Settled) -> None:
        """Submit prepared messages; arguments and errors as `prepare`."""
        self._all(SUBMIT_PATH, _portions(((gid, b"") for gid in gids), per_request), _submit_body, settled)

    def _all(
        self,
        path: str,
        portions: Iterator[dict[str, bytes]],
        body: Callable[[dict[str, bytes]], bytes],
        settled: Settled,
    ) -> None:
        under_way: set[Future[dict[str, OneResult]]] = set()
        try:
            for portion in portions:
                under_way.add(self._threads.submit(self._settle, path, portion, body))
                if len(under_way) >= _AHEAD * self._connections:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    _tell(done, settled)
            _tell(under_way, settled)
        finally:
            for one in under_way:
                one.cancel()

    def _settle(
        self, path: str, portion: dict[str, bytes], body: Callable[[dict[str, bytes]], bytes]
    ) -> dict[str, OneResult]:
        """Send one portion until each of its messages has a lasting outcome."""
        ends_s = time.monotonic() + self._patience_s
        settled: dict[str, OneResult] = {}
        attempt = 0
        while portion:
            attempt += 1
            why = ""
            try:
                response = self._client.request("POST", path, body(portion), timeout_s=REQUEST_TIMEOUT_S)
                status, answer = response.status, response.body
                if status == 200:
                    left: dict[str, bytes] = {}
                    for (gid, request), result in zip(portion.items(), _decode(answer).results, strict=True):
                        if is_later(result.code):
                            left[gid] = request
                            why = result.message
                        else:
                            settled[gid] = result
                    portion = left
                elif status in {502, 503, 504}:
                    why = f"it answered with status {status}"
                else:
                    raise PublishError(f"The coordinator answered {path} with status {status}: {_excerpt(answer)}")
            except HttpError as error:
                if error.kind is HttpErrorKind.TLS:
                    raise TlsFailed(f"{error.text}.", remedy=f"{error.remedy} {_OPTIONS_OF_TLS}") from error
                why = str(error)
            except (msgspec.MsgspecError, ValueError) as error:
                raise PublishError(f"What answers {path} is not a coordinator of twophase.") from error
            pause_s = _BACKOFF.pause_ms(attempt, random.random()) / 1000  # noqa: S311 -- jitter
            if portion and time.monotonic() + pause_s >= ends_s:
                raise CoordinatorUnreachable(
                    f"{self._client.server.host_header} gave no usable answer to {attempt} requests: {why}."
                )
            if portion:
                time.sleep(pause_s)
        return settled


def bulk_client(publishing: Publishing) -> BulkClient:
    """Return the client of a sink's options; each file is read on this machine.

    Raises:
        ConfigurationError: a reference or a file that cannot be used.
    """
    trust = trust_of(publishing.ca, publishing.client_certificate, publishing.client_key)
    return BulkClient(
        publishing.coordinator,
        authorization=looked_up("authorization", publishing.authorization) if publishing.authorization else "",
        ssl_context=context_of(publishing.coordinator, trust),
        connections=publishing.connections,
    )


def _tell(done: set[Future[dict[str, OneResult]]], settled: Settled) -> None:
    for one in done:
        for gid, result in one.result().items():
            settled(gid, result)


def _portions(messages: Iterable[tuple[str, bytes]], per_request: int) -> Iterator[dict[str, bytes]]:
    portion: dict[str, bytes] = {}
    size_bytes = 0
    for gid, request in messages:
        if portion and (len(portion) >= per_request or size_bytes + len(request) > BYTES_PER_REQUEST_MAX):
            yield portion
            portion, size_bytes = {}, 0
        portion[gid] = request
        size_bytes += len(request)
    if portion:
        yield portion


def _prepare_body(portion: dict[str, bytes]) -> bytes:
    return b'{"messages":[' + b",".join(portion.values()) + b"]}"


def _submit_body(portion: dict[str, bytes]) -> bytes:
    return _encode(SubmitMany(tuple(portion)))


def _excerpt(answer: bytes) -> str:
    return answer[:200].decode("utf-8", "replace")
