"""Routes, names of the server, heartbeats, and calls that are not served."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.memory_queues import MemoryQueues
from tests.support.rocketmq_port import Serving
from tests.support.rocketmq_wire import (
    GROUP,
    METHODS,
    PATIENCE_S,
    TOPIC,
    Wire,
    message,
    resource,
    seconds,
)
from twophase.coordinator.queues import NodeAddress, Servers
from twophase.core.errors import QueuesElsewhere
from twophase.rocketmq_wire.codes import ClientType, Code, Permission, Scheme
from twophase.rocketmq_wire.descriptors import SERVICE, kind


def _endpoints(host: str = "10.0.0.7", scheme: int = Scheme.IPV4) -> Any:
    return kind("Endpoints")(scheme=scheme, addresses=[kind("Address")(host=host, port=8081)])


async def _route(wire: Wire, **fields: Any) -> Any:
    answer = await wire.ask("QueryRoute", topic=kind("Resource")(name=TOPIC, resource_namespace="shop"), **fields)
    assert answer.status.code == Code.OK
    (queue,) = answer.message_queues
    return queue


async def test_a_route_names_the_server_as_the_client_dialled_it(server: Serving, wire: Wire) -> None:
    queue = await _route(wire, endpoints=_endpoints())
    assert queue.broker.endpoints == _endpoints()
    assert (queue.topic.name, queue.topic.resource_namespace) == (TOPIC, "shop")
    assert sorted(queue.accept_message_types) == [1, 2, 3, 4]
    own = (await _route(wire)).broker.endpoints.addresses[0]
    assert f"{own.host}:{own.port}" == server.address
    asked = {"topic": resource(TOPIC), "group": resource(GROUP), "endpoints": _endpoints()}
    (assignment,) = (await wire.ask("QueryAssignment", **asked)).assignments
    assert assignment.message_queue.broker.endpoints == _endpoints()
    server.queues.makes = False
    assert await wire.code("QueryRoute", topic=resource("unknown")) == Code.TOPIC_NOT_FOUND


@pytest.mark.parametrize(
    "endpoints", [_endpoints(), *(_endpoints(name, Scheme.DOMAIN_NAME) for name in ("mq.internal", "MQ.INTERNAL"))]
)
async def test_a_python_client_without_a_stream_gets_the_address_in_another_spelling(
    server: Serving, endpoints: Any
) -> None:
    wire = Wire(server, **{"x-mq-language": "PYTHON"})
    routes = [(await _route(wire, endpoints=endpoints)).broker.endpoints.SerializeToString() for _ in range(3)]
    assert routes[0] != routes[1] == routes[1]
    assert routes[2] == routes[0]
    await wire.settle()
    for _ in range(2):
        assert (await _route(wire, endpoints=endpoints)).broker.endpoints.SerializeToString() == routes[2]
    await wire.close()


async def test_after_a_restart_a_python_client_gets_the_other_spelling_at_once(server: Serving) -> None:
    seen = []
    for _ in range(2):
        wire = Wire(server, **{"x-mq-language": "PYTHON"})
        seen.append((await _route(wire, endpoints=_endpoints())).broker.endpoints.SerializeToString())
        await wire.close()
        await server.stop()
        await server.start()
    assert seen[0] != seen[1]


async def test_on_a_shared_store_a_python_client_gets_the_spelling_of_the_announced_incarnation(
    server: Serving,
) -> None:
    """The epoch is its slot's.

    After a restart in another slot it may be one by which the spelling is the same.
    """
    schemes = []
    for incarnation in (5, 6, 7):
        await server.stop()
        server.queues.incarnation = incarnation
        await server.start()
        wire = Wire(server, **{"x-mq-language": "PYTHON"})
        schemes.append((await _route(wire, endpoints=_endpoints())).broker.endpoints.scheme)
        await wire.close()
    assert schemes == [Scheme.DOMAIN_NAME, Scheme.IPV4, Scheme.DOMAIN_NAME]


def _node(number: int, host: str, *, incarnation: int = 0, is_self: bool = False) -> NodeAddress:
    return NodeAddress(number, {"rocketmq": f"{host}:8081"}, incarnation, is_self)


async def _places(wire: Wire) -> list[tuple[str, str, int, int]]:
    """Return (broker, host, queue, permission) of a route."""
    answer = await wire.ask("QueryRoute", topic=resource(TOPIC), endpoints=_endpoints())
    return [
        (one.broker.name, one.broker.endpoints.addresses[0].host, one.id, one.permission)
        for one in answer.message_queues
    ]


async def test_a_route_names_every_node_and_only_the_owner_is_read_from(server: Serving, wire: Wire) -> None:
    server.queues.nodes = Servers(_node(2, "10.0.0.6"), (_node(1, "mq-1", is_self=True), _node(3, "10.0.0.8")))

    assert await _places(wire) == [
        ("twophase-10.0.0.6-8081", "10.0.0.6", 0, Permission.READ_WRITE),
        ("twophase-mq-1-8081", "mq-1", 0, Permission.WRITE),
        ("twophase-10.0.0.8-8081", "10.0.0.8", 0, Permission.WRITE),
    ]
    asked = {"topic": resource(TOPIC), "group": resource(GROUP), "endpoints": _endpoints()}
    (assignment,) = (await wire.ask("QueryAssignment", **asked)).assignments
    assert assignment.message_queue.broker.endpoints.addresses[0].host == "10.0.0.6"


async def test_a_node_in_another_slot_is_the_same_broker_and_another_address_in_its_slot_is_another(
    server: Serving, wire: Wire
) -> None:
    """Node.js's client goes on to ask at the address that the name had first."""
    names = []
    for slots in ((1, 2), (2, 1)):
        one, other = (_node(slot, host) for slot, host in zip(slots, ("10.0.0.6", "10.0.0.8"), strict=True))
        server.queues.nodes = Servers(one, (other,))
        asked = {"topic": resource(TOPIC), "group": resource(GROUP), "endpoints": _endpoints()}
        (assignment,) = (await wire.ask("QueryAssignment", **asked)).assignments
        names.append([name for name, *_ in await _places(wire)] + [assignment.message_queue.broker.name])
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


async def test_a_route_leaves_out_a_node_without_a_port_and_names_none_while_one_has_no_name(
    server: Serving, wire: Wire
) -> None:
    own = _node(1, "10.0.0.5", is_self=True)
    server.queues.nodes = Servers(own, (NodeAddress(2, {"other": "b:1"}, 0, is_self=False),))
    assert await _places(wire) == [("twophase-10.0.0.5-8081", "10.0.0.5", 0, Permission.READ_WRITE)]

    server.queues.nodes = Servers(own, (_node(2, ""),))
    assert await _places(wire) == [("twophase", "10.0.0.7", 0, Permission.READ_WRITE)]
    server.queues.nodes = Servers(own)
    assert await _places(wire) == [("twophase", "10.0.0.7", 0, Permission.READ_WRITE)], "alone, as it was dialled"


async def test_a_python_client_gets_a_restarted_node_in_another_spelling(server: Serving) -> None:
    wire = Wire(server, **{"x-mq-language": "PYTHON"})
    own = _node(1, "mq-1", is_self=True)
    spelt = []
    for incarnation in (0, 1, 2):
        server.queues.nodes = Servers(own, (_node(2, "mq-2", incarnation=incarnation),))
        spelt.append((await _places(wire))[1][1])
    await wire.close()

    assert spelt == ["mq-2", "MQ-2", "mq-2"]


async def test_a_node_with_an_address_is_named_also_while_it_is_alone() -> None:
    queues = MemoryQueues()
    server = Serving(queues)
    await server.start(rocketmq_address="mq-1:9000")
    wire = Wire(server)
    assert await _places(wire) == [("twophase-mq-1-9000", "mq-1", 0, Permission.READ_WRITE)]
    assert queues.announced == {"rocketmq": "mq-1:9000"}
    await wire.close()
    await server.stop()
    await queues.stop()


async def test_a_node_that_is_dialled_by_several_addresses_is_named_by_its_own(server: Serving, wire: Wire) -> None:
    """One address has two spellings, several have one.

    By the other spelling Python's client opens another stream, when its stream broke.
    """
    (host, port), address = server.address.split(":"), kind("Address")
    dialled = kind("Endpoints")(
        scheme=Scheme.IPV4, addresses=[address(host="127.0.0.9", port=1), address(host=host, port=int(port))]
    )
    spelt = []
    for _ in range(2):
        (queue,) = (await wire.ask("QueryRoute", topic=resource(TOPIC), endpoints=dialled)).message_queues
        (named,) = queue.broker.endpoints.addresses
        spelt.append((queue.broker.endpoints.scheme, f"{named.host}:{named.port}"))
    assert spelt == [(Scheme.IPV4, server.address), (Scheme.IPV4, server.address)]

    python = Wire(server, **{"x-mq-language": "PYTHON"})
    schemes = set()
    for _ in range(2):
        (queue,) = (await python.ask("QueryRoute", topic=resource(TOPIC), endpoints=dialled)).message_queues
        schemes.add(queue.broker.endpoints.scheme)
    assert schemes == {Scheme.IPV4, Scheme.DOMAIN_NAME}
    await python.close()


async def test_a_consumer_at_another_node_than_the_owner_is_told_to_go(server: Serving, wire: Wire) -> None:
    async def elsewhere(*_: Any, **__: Any) -> Any:
        raise QueuesElsewhere

    server.queues.receive = elsewhere  # type: ignore[method-assign]
    status, *_ = await wire.receive(long_polling_timeout=seconds(0))

    assert status.status.code == Code.HA_NOT_AVAILABLE


async def _named(server: Serving, name: str) -> Wire:
    """Return a connection that calls the server by a name."""
    wire = Wire(server)
    await wire.close()
    wire._channel = grpc.aio.insecure_channel(server.address, options=[("grpc.default_authority", name)])
    return wire


async def test_a_call_to_another_servers_name_is_refused(server: Serving) -> None:
    wire = await _named(server, "evil.example")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wire.code("SendMessage", messages=[message()])
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await wire.close()


async def test_the_name_that_javas_client_has_for_an_ip_address_is_served(server: Serving) -> None:
    wire = await _named(server, "IPAuthority")
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    await wire.close()


@pytest.mark.parametrize("between", [",", ";"])
async def test_a_client_that_names_the_addresses_of_several_nodes_is_served(server: Serving, between: str) -> None:
    """Python's client and Go's do, when they are given several.

    A name among them is refused, because another server may have it.
    """
    wire = await _named(server, f"127.0.0.9:8081{between}{server.address}")
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
    (queue,) = (await wire.ask("QueryRoute", topic=resource(TOPIC))).message_queues
    assert queue.broker.endpoints.addresses[0].host == "127.0.0.9"
    await wire.close()

    wire = await _named(server, f"evil.example:8081{between}{server.address}")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wire.code("SendMessage", messages=[message()])
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await wire.close()


async def test_a_call_without_a_client_id_is_refused(server: Serving) -> None:
    wire = Wire(server, **{"x-mq-client-id": ""})
    for method in METHODS:
        assert await wire.first_code(method) == Code.CLIENT_ID_REQUIRED
    await wire.close()


async def test_heartbeats_of_clients_that_are_served(wire: Wire) -> None:
    for client_type in ClientType:
        assert await wire.code("Heartbeat", client_type=client_type, group=resource(GROUP)) == Code.OK
    assert await wire.code("Heartbeat", client_type=5) == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize("method", ["PullMessage", "QueryOffset", "UpdateOffset", "GetOffset", "SyncLiteSubscription"])
async def test_other_methods_are_unimplemented(wire: Wire, method: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wire._channel.unary_unary(f"/{SERVICE}/{method}")(b"", metadata=wire.metadata, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK


async def test_a_message_beyond_the_port_is_refused_and_the_connection_lives(wire: Wire) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wire.raw("AckMessage", bytes(64 * 1024 + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await wire.code("SendMessage", messages=[message()]) == Code.OK
