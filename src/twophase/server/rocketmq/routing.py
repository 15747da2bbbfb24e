"""Routes: where the queues of a topic are; the heartbeat and the end of clients.

Where one node lives there is one broker, this server, at the address that the client dialled: it works through every
proxy and port mapping. Several nodes are brokers at the addresses that they announce. The owner of a topic has its
queues, to write and to read; each other node has one to write. So consumers ask the owner, and producers send to every
node and keep a stream to it, over which each can ask them about the half messages that it has.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable
from typing import Final

from twophase.coordinator.queues import QueueApi, Servers, TopicInfo
from twophase.rocketmq_wire.answers import encode_assignment, encode_route, encode_status
from twophase.rocketmq_wire.codes import ClientType, Code, Permission, Scheme
from twophase.rocketmq_wire.requests import parse_assignment, parse_heartbeat, parse_route, parse_termination
from twophase.rocketmq_wire.values import Endpoints, Queue, Resource
from twophase.server.advertised import parts_of
from twophase.server.rocketmq.caller import Client
from twophase.server.rocketmq.checking import TYPES, group_in, topic_in
from twophase.server.rocketmq.refusals import OK, Refused

_HOST_CHARACTERS_MAX: Final = 255
_PYTHON: Final = b"PYTHON"
WIRE: Final = "rocketmq"
"""The name of RocketMQ's interface among the addresses of a node."""
_IPV6: Final = 6
_BROKER: Final = "twophase"
_NOT_IN_A_NAME: Final = re.compile(r"[^0-9A-Za-z.-]")
ANY_QUEUE: Final = -1
"""The number of the queue that stands for all of a topic."""

Handler = Callable[[Client, bytes], Awaitable[bytes]]


class Routing:
    """The requests about routes and clients.

    Arguments:
        queues: the engine.
    """

    def __init__(self, queues: QueueApi) -> None:
        self._queues = queues
        self.address = ""
        """The address that routes name while this node is alone.

        Empty for the one that the client dialled.
        """
        self.announced = ""
        """The address by which other nodes name this one; empty for none."""

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
        info = await self._queues.topic(topic.namespace, topic.name, client.caller.owner, client.peer)
        session = client.session
        is_other = client.language == _PYTHON and client.peculiar.facade.next(topic, is_live=session.is_live)
        own = self._own(request.endpoints, client)
        servers = await self._servers(topic)
        if servers.owner is None:
            spelt = _spelt(own, is_other=is_other)
            return encode_route(OK, _queues(topic, info, self._name(own), spelt, range(info.queues)))
        queues: list[Queue] = []
        for node in (servers.owner, *servers.others):
            is_odd = is_other if node.is_self else client.language == _PYTHON and node.incarnation % 2 == 1
            endpoints = _spelt(endpoints_of(node.addresses[WIRE]), is_other=is_odd)
            has_queues = node is servers.owner
            numbers = range(info.queues) if has_queues else [0]
            permission = Permission.READ_WRITE if has_queues else Permission.WRITE
            queues += _queues(topic, info, _broker(node.addresses[WIRE]), endpoints, numbers, permission)
        return encode_route(OK, queues)

    def _own(self, dialled: Endpoints, client: Client) -> Endpoints:
        if self.address:
            return endpoints_of(self.address)
        if self.announced and len(dialled.addresses) > 1:
            # Several addresses have no other spelling, by which Python's client would open a new stream.
            own = endpoints_of(self.announced)
            if own.addresses[0] in dialled.addresses:
                return own
        return _dialled(dialled, client)

    def _name(self, own: Endpoints) -> str:
        """Return the broker's name for this server, which is alone.

        There is one for all addresses that clients dial.
        """
        address = self.address or self.announced
        return _broker(address) if address and own == endpoints_of(address) else _BROKER

    async def _servers(self, topic: Resource) -> Servers:
        """Return the nodes that a route names.

        None where it names the server as the client dialled it.
        """
        servers = await self._queues.servers(topic.namespace, topic.name)
        if servers.owner is None or (servers.owner.is_self and not servers.others):
            return Servers(None)
        nodes = [node for node in (servers.owner, *servers.others) if WIRE in node.addresses]
        if servers.owner not in nodes or not all(node.is_named for node in nodes):
            return Servers(None)  # it still takes messages; consumers are told what is missing
        return Servers(servers.owner, tuple(nodes[1:]))

    async def _assignment(self, client: Client, raw: bytes) -> bytes:
        request = parse_assignment(raw)
        topic = topic_in(request.topic)
        client.require_topic(topic)
        if request.group is not None:
            group_in(request.group)
        info = await self._queues.topic(topic.namespace, topic.name, client.caller.owner, client.peer)
        owner = (await self._servers(topic)).owner
        if owner is None:
            own = self._own(request.endpoints, client)
            queues = _queues(topic, info, self._name(own), own, [ANY_QUEUE])
        else:
            address = owner.addresses[WIRE]
            queues = _queues(topic, info, _broker(address), endpoints_of(address), [ANY_QUEUE])
        return encode_assignment(OK, queues)

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


def endpoints_of(address: str) -> Endpoints:
    """Return an address as routes have it.

    >>> endpoints_of("10.0.0.5:8081").scheme.name, endpoints_of("mq:80").scheme.name
    ('IPV4', 'DOMAIN_NAME')
    >>> endpoints_of("[::1]:8081").addresses
    (('::1', 8081),)
    """
    host, port = parts_of(address)
    host = host.strip("[]")
    try:
        scheme = Scheme.IPV6 if ipaddress.ip_address(host).version == _IPV6 else Scheme.IPV4
    except ValueError:
        scheme = Scheme.DOMAIN_NAME
    return Endpoints(scheme, ((host, int(port)),))


def _broker(address: str) -> str:
    """Return the name of the broker at an address.

    Node.js's client goes on to ask at the address that a broker's name had first, so another address has another name.

    >>> _broker("mq-1.internal:8081")
    'twophase-mq-1.internal-8081'
    """
    return f"{_BROKER}-{_NOT_IN_A_NAME.sub('-', address)}"


def _queues(
    topic: Resource,
    info: TopicInfo,
    broker: str,
    endpoints: Endpoints,
    numbers: range | list[int],
    permission: Permission = Permission.READ_WRITE,
) -> list[Queue]:
    kinds = tuple(sorted(TYPES[kind] for kind in info.kinds))
    return [Queue(topic, number, endpoints, kinds, broker, permission) for number in numbers]


def _dialled(endpoints: Endpoints, client: Client) -> Endpoints:
    """Return the address that the client dialled.

    It is the one of its call, when it names none.
    """
    addresses = endpoints.addresses
    if not addresses or not endpoints.scheme:
        return Endpoints(Scheme.DOMAIN_NAME, (_host_and_port(client.authority.replace(";", ",").partition(",")[0]),))
    if any(len(host) > _HOST_CHARACTERS_MAX for host, _ in addresses):
        raise Refused(Code.BAD_REQUEST, "endpoints: a host is too long.")
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
    other = tuple((host.swapcase(), port) for host, port in endpoints.addresses)
    return Endpoints(endpoints.scheme, other)
