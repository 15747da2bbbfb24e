"""Requests about a topic go to its owner, within bounds; never from https to http."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.client.queues.stub import delivery
from tests.unit.client.queues.test_consuming import consuming
from twophase import AsyncClient, RetryPolicy
from twophase.client.base_client import achannel_of
from twophase.client.queues.following import HOPS_MAX, Nodes
from twophase.client.queues.requests import QueueRequests
from twophase.client.transport.wire import Disconnected, HttpAnswer
from twophase.core.errors import CoordinatorUnreachable, QueuesElsewhere, ReceiptStale
from twophase.core.queue_api import ACK_PATH, RECEIVE_PATH, Deliveries, OneReceipt, ReceiptResults, Receipts, Receive

OWN, OWNER, OTHER = "http://lb:36789", "http://mq-1:36789", "http://mq-2:36789"
TOPIC = ("", "orders")
POLL = Receive(group="billing", topic="orders", client="me")
ACK = Receipts(group="billing", topic="orders", receipts=("r",))
DONE = HttpAnswer(200, msgspec.json.encode(ReceiptResults((OneReceipt(),))))


def elsewhere(url: str) -> HttpAnswer:
    return HttpAnswer(503, msgspec.json.encode({"message": "not here", "code": QueuesElsewhere.code, "url": url}))


class Network(QueueRequests):
    """Answers instead of nodes, by their URLs."""

    def __init__(self, answers: dict[str, Any], own: str = OWN) -> None:
        client = AsyncClient(own, retry=RetryPolicy(attempts=3, total=30))
        super().__init__(achannel_of(client))
        self.answers = answers
        self.asked: list[str] = []

    async def _send(self, base: str, path: str, body: bytes, timeout_ms: int) -> HttpAnswer:
        assert all([path, body, timeout_ms])
        self.asked.append(base)
        answer = self.answers[base]
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, HttpAnswer)
        return answer


async def test_polls_and_acts_go_to_the_owner_from_then_on() -> None:
    network = Network({OWN: elsewhere(OWNER), OWNER: HttpAnswer(200, b'{"messages":[]}')})

    await network.poll(RECEIVE_PATH, POLL, Deliveries, 0)
    network.answers[OWNER] = DONE
    await network.ask(ACK_PATH, ACK, ReceiptResults)

    assert network.asked == [OWN, OWNER, OWNER]


async def test_acts_go_to_the_node_that_gave_the_message_while_it_hands_the_topic_over() -> None:
    found = Deliveries((delivery(1),))
    network = Network({OWN: elsewhere(OWNER), OWNER: HttpAnswer(200, msgspec.json.encode(found))})
    work = consuming(network)
    (one,) = await work.receive("orders", tags="*", limit=1, lease_ms=60_000, wait_ms=0)
    network.answers |= {OWNER: elsewhere(OTHER), OTHER: HttpAnswer(200, b'{"messages":[]}')}
    assert await work.receive("orders", tags="*", limit=1, lease_ms=60_000, wait_ms=0) == []
    stale = HttpAnswer(200, msgspec.json.encode(ReceiptResults((OneReceipt(ReceiptStale.code),))))
    network.answers |= {OWNER: DONE, OTHER: stale}

    assert await work.holding.ack(one)

    assert network.asked == [OWN, OWNER, OWNER, OTHER, OWNER]


async def test_acts_go_to_the_owner_when_the_node_that_gave_the_message_is_gone() -> None:
    network = Network({OWN: elsewhere(OTHER), OWNER: Disconnected("gone"), OTHER: DONE})

    await network.ask(ACK_PATH, ACK, ReceiptResults, OWNER)

    assert network.asked == [OWNER, OWN, OTHER]


async def test_other_topics_and_namespaces_are_asked_at_the_own_url() -> None:
    network = Network({OWN: elsewhere(OWNER), OWNER: DONE})
    await network.ask(ACK_PATH, ACK, ReceiptResults)

    assert network.nodes.url(("", "bills")) == network.nodes.url(("shop", "orders")) == network.nodes.url(None) == OWN


async def test_an_owner_that_cannot_be_reached_is_forgotten() -> None:
    network = Network({OWN: elsewhere(OWNER), OWNER: Disconnected("gone"), OTHER: DONE})

    with pytest.raises(CoordinatorUnreachable):
        await network.poll(RECEIVE_PATH, POLL, Deliveries, 0)
    network.answers[OWN] = elsewhere(OTHER)
    await network.ask(ACK_PATH, ACK, ReceiptResults)

    assert network.asked == [OWN, OWNER, OWN, OTHER]


async def test_a_repeated_request_goes_back_to_the_own_url_when_the_owner_refuses() -> None:
    network = Network({OWN: elsewhere(OWNER), OWNER: HttpAnswer(503, b'{"message":"ends","code":"TP-3002"}')})
    network.nodes.follow(TOPIC, OWNER)
    network.answers[OWN] = DONE

    await network.ask(ACK_PATH, ACK, ReceiptResults)

    assert network.asked == [OWNER, OWN]


async def test_nodes_that_name_each_other_are_followed_a_bounded_number_of_times() -> None:
    network = Network({OWN: elsewhere(OWNER), OWNER: elsewhere(OTHER), OTHER: elsewhere(OWNER)})

    with pytest.raises(QueuesElsewhere):
        await network.poll(RECEIVE_PATH, POLL, Deliveries, 0)

    assert len(network.asked) == 1 + HOPS_MAX
    assert network.nodes.url(TOPIC) == OWN


@pytest.mark.parametrize("url", ["", "http://mq-1:36789", "https://user@mq-1", "https://mq-1/path", "file:///etc", "["])
async def test_what_is_no_node_for_an_https_client_is_not_followed_to(url: str) -> None:
    own = "https://lb:36789"
    network = Network({own: elsewhere(url)}, own)

    with pytest.raises(QueuesElsewhere):
        await network.poll(RECEIVE_PATH, POLL, Deliveries, 0)

    assert network.asked == [own]


def test_only_scheme_host_and_port_change() -> None:
    assert Nodes("https://lb/behind").named("https://mq-1:8443") == "https://mq-1:8443/behind"


def test_a_client_without_tls_may_be_sent_to_one_with_it() -> None:
    assert Nodes(OWN).named("https://mq-1:8443") == "https://mq-1:8443"


def test_the_topics_that_are_remembered_are_bounded() -> None:
    nodes = Nodes(OWN)
    for number in range(1_001):
        nodes.follow(("", f"topic-{number}"), OWNER)

    assert nodes.url(("", "topic-0")) == OWN
    assert nodes.url(("", "topic-1000")) == OWNER
