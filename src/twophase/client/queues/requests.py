"""The requests of queues' clients to one coordinator, on one event loop.

A request is repeated within the bounds of the client's `RetryPolicy`: each of them may be sent twice. A long poll is
sent once, because its caller polls again anyway.

Where several nodes share a store, one serves the consumers of a topic, and the others name it. Requests about the topic
go to it from then on. A receipt counts at the node alone that gave it, also while that node hands the topic over; so
acts about a message go there first. When a node cannot be reached, or refuses, the client's own URL is asked again.
Token, certificates and bounds are the same everywhere.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from os import getpid
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from twophase.client.channel import speaks_grpc
from twophase.client.queues.following import HOPS_MAX, Nodes, Topic, topic_in
from twophase.client.sync import FLOW_RUNTIME
from twophase.client.transport.exchange import GONE, LATER
from twophase.client.transport.sync import address_of, failure_of
from twophase.client.transport.wire import (
    Disconnected,
    HttpAnswer,
    NotTrusted,
    TransportFailure,
    answer_of,
    pause_asked_ms,
    refusal_of,
)
from twophase.core.errors import (
    ConfigurationError,
    CoordinatorUnreachable,
    QueuesElsewhere,
    TlsFailed,
    TwophaseError,
)
from twophase.core.queue_api import PREFIX
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError

if TYPE_CHECKING:
    from twophase.client.channel import Channel

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""More than the base64 of 4 MiB and the addresses of 32 messages."""
_TOPICS_OWN: Final = frozenset({200, 400, 409, 429})
"""Answers that say nothing against the node which gave them."""
_HOST_CHARACTERS_MAX: Final = 128
_encode = msgspec.json.Encoder().encode


def fresh_client_id() -> str:
    """Return a name for a client that no other has: host, process and chance."""
    host = "".join(character for character in socket.gethostname() if "!" <= character <= "~")
    return f"{host[:_HOST_CHARACTERS_MAX]}@{getpid()}@{secrets.token_hex(6)}"


class QueueRequests:
    """See the module.

    Arguments:
        channel: of the client: its address, bounds, token and certificates.

    Raises:
        ConfigurationError: the client has a gRPC address.
    """

    def __init__(self, channel: Channel) -> None:
        if speaks_grpc(channel.url):
            raise ConfigurationError(
                "consumers and transactional producers speak HTTP.",
                remedy="Give the client the coordinator's http:// address.",
            )
        self.client_id = fresh_client_id()
        target = address_of(channel.url)
        self.nodes = Nodes(channel.url)
        self._headers = (("content-type", "application/json"), *channel.headers)
        self._bounds = channel.bounds
        context = channel.ssl_context or (ssl.create_default_context() if target.tls else None)
        self._http = HttpClient(response_bytes_max=ANSWER_BYTES_MAX, ssl_context=context)

    async def close(self) -> None:
        """Close the connections; what is under way fails."""
        await self._http.close()

    async def poll(self, path: str, request: Any, answer: type[T], wait_ms: int, at: str | None = None) -> T:
        """Send a long poll once.

        `at`: the URL of a node; by default the owner of the request's topic, or the client's own URL.

        Raises:
            CoordinatorUnreachable, TlsFailed, and what the coordinator refuses with.
        """
        return await self._ask(path, request, answer, wait_ms, attempts=1, total_ms=0, at=at)

    async def ask(self, path: str, request: Any, answer: type[T], at: str | None = None) -> T:
        """Send a request until it is answered, within the client's bounds.

        `at`: the URL of the node that is asked first; by default as `poll`. Raises as `poll`.
        """
        return await self._ask(path, request, answer, 0, self._bounds.attempts, self._bounds.total_ms, at)

    async def _ask(
        self,
        path: str,
        request: Any,
        answer: type[T],
        wait_ms: int,
        attempts: int,
        total_ms: int,
        at: str | None = None,
    ) -> T:
        what, body, topic = path.removeprefix(PREFIX), _encode(request), topic_in(request)
        deadline_s = FLOW_RUNTIME.monotonic_s() + total_ms / 1000
        tries = counted = 0
        while True:
            tries += 1
            asked_ms: int | None = None
            cause: BaseException | None = None
            failure: TwophaseError
            try:
                first = at if tries == 1 or topic is None else None
                answered = await self._follow(what, first, topic, path, body, self._bounds.timeout_ms + wait_ms)
                if answered.status == 200:
                    return _read(what, answered, answer)
                failure = refusal_of(what, answered)
                if answered.status not in LATER:
                    raise failure
                asked_ms = pause_asked_ms(answered)
                gone = isinstance(failure, GONE)
            except NotTrusted as error:
                raise TlsFailed(f"{what} was not sent: {error}.", remedy=error.remedy or None) from error.__cause__
            except TransportFailure as error:
                failure = CoordinatorUnreachable(f"{what} got no answer in {tries} attempts: {error}.")
                gone = isinstance(error, Disconnected)
                cause = (error.__cause__ or error).with_traceback(None)
            counted += not gone
            pause_ms = asked_ms or self._bounds.backoff.pause_ms(tries, FLOW_RUNTIME.chance())
            if counted >= attempts or FLOW_RUNTIME.monotonic_s() + pause_ms / 1000 >= deadline_s:
                raise failure from cause
            await asyncio.sleep(pause_ms / 1000)

    async def _follow(
        self, what: str, at: str | None, topic: Topic | None, path: str, body: bytes, timeout_ms: int
    ) -> HttpAnswer:
        """Send a request to the owner of its topic, or `at` a node first.

        The nodes name the owner; the number of hops is bounded.
        """
        hops = 0
        while True:
            try:
                answered = await self._send(at or self.nodes.url(topic), path, body, timeout_ms)
            except (TransportFailure, NotTrusted):
                self.nodes.forget(topic)
                raise
            if answered.status in _TOPICS_OWN:
                return answered
            self.nodes.forget(topic)
            refused = refusal_of(what, answered)
            if topic is None or not isinstance(refused, QueuesElsewhere) or hops == HOPS_MAX:
                return answered
            if not self.nodes.follow(topic, refused.url):
                return answered
            at, hops = None, hops + 1

    async def _send(self, base: str, path: str, body: bytes, timeout_ms: int) -> HttpAnswer:
        try:
            return answer_of(await self._http.fetch("POST", base + path, self._headers, body, timeout_ms=timeout_ms))
        except HttpError as error:
            scheme, _, rest = base.partition("://")
            raise failure_of(error, f"{rest.partition('/')[0]}: {error}", tls=scheme == "https") from error


def _read(what: str, answered: HttpAnswer, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(answered.body, type=answer)
    except msgspec.MsgspecError as error:
        raise CoordinatorUnreachable(f"the answer to {what} is not one of a coordinator.") from error
