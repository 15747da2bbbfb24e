"""Telemetry: the stream of a client's settings, and of questions to a producer.

A client sends its settings first, and again every five minutes; each time it is answered with the same settings and the
server's part. A question needs no answer here: the producer answers it by EndTransaction.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from twophase.coordinator.background import end
from twophase.coordinator.queues import QueueApi
from twophase.core.errors import Overloaded, QueueNotFound, TwophaseError
from twophase.grpc_server.status import Ended
from twophase.grpc_server.streaming import StreamingCall
from twophase.rocketmq_wire.answers import encode_settings, encode_telemetry_status
from twophase.rocketmq_wire.codes import ClientType, Code
from twophase.rocketmq_wire.requests import BrokenMessage, parse_settings
from twophase.rocketmq_wire.values import ClientSettings, ServerSettings
from twophase.server.identity.scopes import scopes_of
from twophase.server.rocketmq.caller import Client
from twophase.server.rocketmq.checking import BODY_MAX, group_in, topic_in
from twophase.server.rocketmq.consuming import BATCH_MAX, WAIT_MS
from twophase.server.rocketmq.outbox import Outbox
from twophase.server.rocketmq.refusals import Refused, status_of
from twophase.server.rocketmq.routing import require_client_type
from twophase.server.sessions import producers_of

SEND_ATTEMPTS: Final = 3
BACKOFF_FIRST_MS: Final = 10
BACKOFF_CAP_MS: Final = 1_000
_NO_LIMIT: Final = 2**31 - 1
"""The largest number of deliveries on the wire: the clients take 0 as none at all."""
_NAME_BYTES: Final = 640
"""About the memory of a name for which a producer answers."""
PRODUCER_GROUP: Final = "producer.group"
"""The property of a client's settings that names its group of producers."""


class Telemetry:
    """The streams of clients."""

    def __init__(self, queues: QueueApi) -> None:
        self._queues = queues

    async def serve(self, client: Client, call: StreamingCall, path: str) -> None:
        """Serve one stream until the client ends it.

        Each of its messages after the first is a request of its own, which the token must still allow: the stream may
        outlive it.

        Arguments:
            client: it may send the first one.
            call: the stream.
            path: of the method.
        """
        outbox = Outbox(call.keep)
        is_first = True
        session = client.session
        writing = asyncio.ensure_future(_write(call, outbox))
        try:
            async for raw in call:
                try:
                    if not is_first:
                        client.caller.require(scopes_of(path), path, client.peer)
                    is_first = False
                    settings = parse_settings(raw)
                    if settings is None:
                        call.odd()  # nothing that is sent here is answered by one
                    else:
                        answer = await self._answer(client, settings, outbox)
                        if not outbox.has_room(len(answer)):
                            raise Overloaded("too many bytes of answers wait for clients that do not read them.")
                        outbox.put(answer)
                        session.opened(outbox)
                except (TwophaseError, BrokenMessage) as error:
                    await client.caller.noted()
                    outbox.put(encode_telemetry_status(status_of(error)))
                await outbox.empty()  # a client that takes no answers sends no more
        finally:
            session.closed(outbox)
            await end(writing)

    async def _answer(self, client: Client, settings: ClientSettings, outbox: Outbox) -> bytes:
        require_client_type(settings.client_type)
        if settings.publishes is settings.subscribes or settings.publishes != (
            settings.client_type == ClientType.PRODUCER
        ):
            raise Refused(Code.BAD_REQUEST, "settings: a producer has publishing in them, a consumer subscription.")
        topics = [topic_in(topic) for topic in settings.topics]
        for topic in topics:
            client.require_topic(topic)
        if settings.group is None:
            session = client.session
            names = {producers_of(client.caller, topic.namespace, topic.name) for topic in topics}
            if not outbox.hold(_NAME_BYTES * len(session.producers | names)):
                raise Overloaded("too many bytes of topics of producers are kept.")
            session.answers_for(names)
            client.peculiar.name_group(session, dict(settings.properties).get(PRODUCER_GROUP, ""))
            return encode_settings(settings, _server_settings(17, (1_000,), fifo=False))
        group, owner = group_in(settings.group), client.caller.owner
        try:
            info = await self._queues.group(group.namespace, group.name, owner, client.peer)
        except QueueNotFound as error:
            raise Refused(Code.CONSUMER_GROUP_NOT_FOUND, error.message) from error
        taken = [await self._queues.topic(topic.namespace, topic.name, owner, client.peer) for topic in topics]
        fifo = any(one.kinds == {"fifo"} for one in taken)
        return encode_settings(settings, _server_settings(info.attempts_max or _NO_LIMIT, info.backoff_ms, fifo=fifo))


def _server_settings(attempts_max: int, backoff_ms: tuple[int, ...], *, fifo: bool) -> ServerSettings:
    return ServerSettings(
        BODY_MAX, SEND_ATTEMPTS, BACKOFF_FIRST_MS, BACKOFF_CAP_MS, attempts_max, backoff_ms, BATCH_MAX, WAIT_MS, fifo
    )


async def _write(call: StreamingCall, outbox: Outbox) -> None:
    """Send what waits, until the stream ends."""
    with contextlib.suppress(Ended):  # the client has gone, which the reader sees, too
        await outbox.send_by(call.send)
