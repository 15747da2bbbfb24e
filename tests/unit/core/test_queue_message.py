"""A message of a queue as an address, from which every attribute comes back."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.core.errors import InvalidRequest
from twophase.core.queue_message import (
    GID_PREFIX,
    QueueMessage,
    address_of,
    full_name,
    gid_of,
    group_of_letters,
    is_own_gid,
    is_to_both,
    letters_of,
    message_of,
    queue_of,
    require_full_name,
    topic_address,
    topic_of,
)

names = st.text("abcXYZ019_-%|", min_size=1, max_size=20)
texts = st.text(max_size=20)
times = st.integers(0, 253_402_300_799_999)
messages = st.builds(
    QueueMessage,
    topic=names,
    namespace=st.just("") | names,
    message_id=texts,
    body=st.binary(max_size=20),
    kind=st.sampled_from(["normal", "fifo", "delay", "transaction"]),
    tag=texts,
    keys=st.lists(texts, max_size=3).map(tuple),
    properties=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    message_group=texts,
    deliver_at_ms=times,
    born_ms=times,
    born_host=texts,
    encoding=st.sampled_from(["identity", "gzip"]),
    trace_context=texts,
    only_group=texts,
)


@given(messages)
def test_every_attribute_comes_back_from_the_address(message: QueueMessage) -> None:
    address = address_of(message)

    assert message_of(address, message.body) == message
    assert topic_of(address) == (message.namespace, message.topic)
    assert address.isascii()
    assert address.isprintable()


@given(messages)
def test_an_address_is_in_the_usual_form_of_a_query(message: QueueMessage) -> None:
    """Its spelling is stored and compared, so it may not change either."""
    query = address_of(message).partition("?")[2]

    assert urlencode(parse_qsl(query, keep_blank_values=True)) == query


@given(st.lists(st.tuples(st.sampled_from(["id", "tag", "key", "p.a", "host", ""]), st.text("ab.=~", max_size=5))))
def test_text_without_escapes_is_read_as_text_with_them(pairs: list[tuple[str, str]]) -> None:
    plain = "&".join(f"{name}={value}" for name, value in pairs)
    escaped = "&".join([*(f"{name}={value.replace('a', '%61')}" for name, value in pairs), "%00"])

    assert message_of(f"queue://t?{plain}", b"") == message_of(f"queue://t?{escaped}", b"")


@given(st.tuples(names, names, texts, texts), st.tuples(names, names, texts, texts))
def test_a_gid_names_one_message(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> None:
    assert gid_of(*one).startswith(GID_PREFIX)
    assert (gid_of(*one) == gid_of(*other)) == (one == other)


@given(texts, st.integers(1, 64))
def test_a_message_group_has_one_queue_of_its_topic(group: str, queues: int) -> None:
    assert 0 <= queue_of(group, queues) < queues
    assert queue_of(group, queues) == queue_of(group, queues)


def test_parts_of_a_name_do_not_run_together() -> None:
    assert gid_of("", "t", "a\0b", "") != gid_of("", "t", "a", "b\0")
    assert gid_of("", "t", "1:a", "") != gid_of("", "t", "", "1:a")


def test_names_of_different_namespaces_are_different() -> None:
    assert full_name("a", "b") != full_name("", "a-b")
    assert full_name("", "x" * 255) == "x" * 255


@pytest.mark.parametrize(
    "address",
    [
        "queue://",
        "queue://?tag=a",
        "queue://a/b/c",
        "queue://a%20b",
        "queue:///orders/",
        "QUEUE://orders",
        "http://orders",
        "queue://orders?kind=strange",
        "queue://orders?at=soon",
        "queue://orders?born=1.5",
        "queue://orders?born=-1",
        "queue://orders?at=253402300800000",
        "queue://orders?p.a=%ED%A0%80",
        "queue://orders?id=%FF",
        f"queue://{'x' * 256}",
    ],
)
def test_what_is_no_address_of_a_queue_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest):
        message_of(address, b"")


def test_a_message_for_one_group_alone_names_it() -> None:
    message = QueueMessage("orders", "shop", "1", b"", only_group="shop/billing")
    assert message_of(address_of(message), b"") == message
    assert address_of(message).startswith(topic_address("shop/orders") + "?")


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "/orders", "x" * 256])
def test_a_stored_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        require_full_name(name)


@pytest.mark.parametrize("name", ["orders", "shop/orders", "%DLQ%billing"])
def test_a_stored_name_may_have_a_namespace(name: str) -> None:
    require_full_name(name)


@pytest.mark.parametrize("queues", range(3))
@pytest.mark.parametrize("others", range(3))
def test_a_message_is_to_both_when_it_has_both(queues: int, others: int) -> None:
    urls = ["queue://orders"] * queues + ["http://b/in"] * others

    assert is_to_both(urls) is (queues > 0 and others > 0)


@pytest.mark.parametrize("gid", ["", "queue-17", f"queue-{'0' * 31}", f"queue-{'0' * 33}", f"queue-{'G' * 32}"])
def test_only_gids_of_queues_are_their_own(gid: str) -> None:
    assert is_own_gid(gid_of("", "orders", "1"))
    assert not is_own_gid(gid)


@pytest.mark.parametrize("group", ["billing", "shop/billing", "%DLQ%billing"])
def test_a_group_has_one_topic_of_dead_letters(group: str) -> None:
    assert group_of_letters(letters_of(group)) == group


@pytest.mark.parametrize("topic", ["orders", "shop/orders", "a%DLQ%b", "%DLQ%shop/orders"])
def test_other_topics_have_no_dead_letters(topic: str) -> None:
    assert group_of_letters(topic) == ""


def test_a_topic_of_dead_letters_is_named_with_escapes_or_as_it_is() -> None:
    assert topic_of("queue://%DLQ%back") == topic_of("queue://%25DLQ%25back") == ("", "%DLQ%back")
    assert topic_of("queue://%61") == ("", "a")
