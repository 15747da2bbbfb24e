"""Topics in a message: what is compared, what is stored, and the resulting calls."""

from __future__ import annotations

import msgspec
import pytest

from twophase.core.errors import InvalidRequest, LimitExceeded
from twophase.core.message import Branch, Message, decode, encode, same_content, same_prepared
from twophase.core.options import Options
from twophase.core.topic import expansion_of, fans_out, late_id, topic_in, validate_topic

TWO = ("http://b/1", "http://b/2")


def test_the_only_subscriber_has_the_branches_id_and_several_have_their_own() -> None:
    expansion = expansion_of(
        (
            Branch("http://a/1", b"1"),
            Branch("topic://one", b"2", ("http://b/1",)),
            Branch("topic://two", b"3", TWO),
            Branch("topic://late", b"4"),
        )
    )

    assert expansion is not None
    assert expansion.ids == ("01", "02", "03-01", "03-02", "04")
    assert [(branch.url, branch.payload) for branch in expansion.branches] == [
        ("http://a/1", b"1"),
        ("http://b/1", b"2"),
        ("http://b/1", b"3"),
        ("http://b/2", b"3"),
        ("topic://late", b"4"),
    ]


def test_without_topics_there_is_nothing_to_expand() -> None:
    branches = (Branch("http://b/topic://x"), Branch(""), Branch("grpc://b:1/topic.T/M"))

    assert not fans_out(branches)
    assert expansion_of(branches) is None


def test_what_is_called_elsewhere_than_its_address_says_is_called_there() -> None:
    """A message taken over from another coordinator may have branches that are done."""
    expansion = expansion_of((Branch("http://b/1", b"x", ("",)),))

    assert expansion is not None
    assert (expansion.ids, expansion.branches[0].url) == (("01",), "")


@pytest.mark.parametrize("known", [None, (), ("http://b/1",), TWO])
def test_who_is_subscribed_does_not_make_another_message(known: tuple[str, ...] | None) -> None:
    stored = Message("g", (Branch("topic://t", b"{}", known),), options=Options(open=True))
    said = Message("g", (Branch("topic://t", b"{}"),), options=Options(open=True))
    more = Message("g", (*said.branches, Branch("http://b/3")))

    assert same_prepared(stored, said)
    assert same_content(stored, said)
    assert same_content(stored, more)
    assert not same_prepared(stored, more)


@pytest.mark.parametrize("other", [Branch("topic://u", b"{}"), Branch("topic://t", b"[]"), Branch("http://b/1", b"{}")])
def test_another_topic_or_payload_makes_another_message(other: Branch) -> None:
    stored = Message("g", (Branch("topic://t", b"{}", TWO),), options=Options(open=True))

    assert not same_prepared(stored, Message("g", (other,), options=Options(open=True)))
    assert not same_content(stored, Message("g", (other, Branch("http://b/3"))))


def test_subscribers_are_stored_with_the_message() -> None:
    message = Message("g", (Branch("topic://t", b"{}", TWO), Branch("http://b/3")))

    assert decode(encode(message)) == message


def test_messages_of_before_there_were_topics_are_read() -> None:
    body = msgspec.msgpack.encode(["g", [["http://b/in", b"{}"]], "http://a/check"])

    assert decode(body) == Message("g", (Branch("http://b/in", b"{}"),), "http://a/check")


def test_a_late_id_names_the_address_and_not_the_position() -> None:
    assert late_id("02", "http://b/1") == late_id("02", "http://b/1") != late_id("02", "http://b/2")


@pytest.mark.parametrize("name", ["rates", "a/b", "x" * 128, "été", "a b"])
def test_a_topic_may_have_any_printable_name(name: str) -> None:
    assert validate_topic(topic_in(f"topic://{name}")) == name


@pytest.mark.parametrize(("name", "error"), [("", InvalidRequest), ("a\nb", InvalidRequest), ("é" * 65, LimitExceeded)])
def test_other_names_are_refused(name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="topic"):
        validate_topic(name)
