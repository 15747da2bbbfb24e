"""Routes: where the queues of a topic are; the heartbeat and the end of clients.

There is one broker, this server, at the address that the client dialled: it works through every proxy and port mapping.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from twophase.coordinator.queues import QueueApi, TopicInfo
from twophase.rocketmq_wire.answers import encode_assignment, encode_route, encode_status
from twophase.rocketmq_wire.codes import ClientType, Code, Scheme
from twophase.rocketmq_wire.requests import parse_assignment, parse_heartbeat, parse_route, parse_termination
from twophase.rocketmq_wire.values import Endpoints, Queue, Resource
from twophase.server.rocketmq.caller import Client
from twophase.server.rocketmq.checking import TYPES, group_in, topic_in
from twophase.server.rocketmq.refusals import OK, Refused

_ADDRESSES_MAX: Final = 16
_HOST_CHARACTERS_MAX: Final = 255
_PYTHON: Final = b"PYTHON"
ANY_QUEUE: Final = -1
"""The number of the queue that stands for all of a topic."""

Handler = Callable[[Client, bytes], Awaitable[bytes]]


class Routing:
    """The requests about routes and clients."""

    def __init__(self, queues: QueueApi) -> None:
        self._queues = queues

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by the names of their methods."""
        return {
            "QueryRoute": self._route,
            "QueryAssignment": self._assignment,
            "Heartbeat": self._heartbeat,
            "NotifyClientTermination": self._termination,
        }

    async def _route(self, client: Client, raw: bytes) -> bytes:
        request = parse_route(raw)
        topic = topic_in(request.topic)
        client.require_topic(topic)
        info = await self._queues.topic(topic.namespace, topic.name)
        session = client.session
        is_other = client.language == _PYTHON and client.peculiar.facade.next(topic, is_live=session.is_live)
        endpoints = _spelt(_dialled(request.endpoints, client), is_other=is_other)
        return encode_route(OK, _queues(topic, info, endpoints, range(info.queues)))

    async def _assignment(self, client: Client, raw: bytes) -> bytes:
        request = parse_assignment(raw)
        topic = topic_in(request.topic)
        client.require_topic(topic)
        if request.group is not None:
            group_in(request.group)
        info = await self._queues.topic(topic.namespace, topic.name)
        return encode_assignment(OK, _queues(topic, info, _dialled(request.endpoints, client), [ANY_QUEUE]))

    async def _heartbeat(self, _client: Client, raw: bytes) -> bytes:
        request = parse_heartbeat(raw)
        require_client_type(request.client_type)
        if request.group is not None and request.client_type != ClientType.PRODUCER:
            group_in(request.group)
        return encode_status("HeartbeatResponse", OK)

    async def _termination(self, client: Client, raw: bytes) -> bytes:
        parse_termination(raw)
        client.session.end_polls()
        return encode_status("NotifyClientTerminationResponse", OK)


def require_client_type(number: int) -> None:
    """Refuse a client of another type than those that are served; raises Refused."""
    if number not in {one.value for one in ClientType}:
        raise Refused(
            Code.UNRECOGNIZED_CLIENT_TYPE,
            f"client_type: {number} is not served; producers, push consumers and simple consumers are.",
        )


def _queues(topic: Resource, info: TopicInfo, endpoints: Endpoints, numbers: range | list[int]) -> list[Queue]:
    kinds = tuple(sorted(TYPES[kind] for kind in info.kinds))
    return [Queue(topic, number, endpoints, kinds) for number in numbers]


def _dialled(endpoints: Endpoints, client: Client) -> Endpoints:
    """Return the address that the client dialled.

    It is the one of its call, when it names none.
    """
    addresses = endpoints.addresses
    if not addresses or not endpoints.scheme:
        return Endpoints(Scheme.DOMAIN_NAME, (_host_and_port(client.authority),))
    if len(addresses) > _ADDRESSES_MAX or any(len(host) > _HOST_CHARACTERS_MAX for host, _ in addresses):
        raise Refused(Code.BAD_REQUEST, "endpoints: there are too many of them, or a host is too long.")
    return endpoints


def _host_and_port(authority: str) -> tuple[str, int]:
    """Return the host and the port of a call.

    >>> _host_and_port("[::1]:8081"), _host_and_port("mq.internal")
    (('::1', 8081), ('mq.internal', 80))
    """
    host, _, port = authority.rpartition(":")
    if not port.isdigit():
        host, port = authority.removesuffix(":"), "80"
    return host.strip("[]"), int(port)


def _spelt(endpoints: Endpoints, *, is_other: bool) -> Endpoints:
    """Return the same addresses in one of two spellings.

    >>> _spelt(Endpoints(Scheme.IPV4, (("10.0.0.7", 8081),)), is_other=True).scheme.name
    'DOMAIN_NAME'
    >>> _spelt(Endpoints(Scheme.DOMAIN_NAME, (("mq.internal", 8081),)), is_other=True).addresses
    (('MQ.INTERNAL', 8081),)
    """
    if not is_other:
        return endpoints
    if endpoints.scheme == Scheme.IPV4 and len(endpoints.addresses) == 1:
        return Endpoints(Scheme.DOMAIN_NAME, endpoints.addresses)
    upper = tuple((host.upper(), port) for host, port in endpoints.addresses)
    return Endpoints(endpoints.scheme, upper)
