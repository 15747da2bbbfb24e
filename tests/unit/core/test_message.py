"""A message is one value.

It survives its stored form, and the same content is recognised when it comes again.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.core.message import (
    Branch,
    Message,
    decode,
    decode_answered,
    decode_branches,
    encode,
    encode_branches,
    may_be_called_early,
    method_of,
    same_content,
    same_prepared,
    scheme_of,
)
from twophase.core.options import Durability, Options

ONE, TWO, THREE = Branch("http://b/1", b"1"), Branch("http://b/2", b"2"), Branch("http://b/3")
OPEN = Options(open=True)

_TEXTS = st.text(max_size=20)
_MS = st.integers(0, 2**40)
_BRANCHES = st.lists(st.builds(Branch, _TEXTS, st.binary(max_size=20)), max_size=4).map(tuple)
_OPTIONS = st.builds(
    Options,
    concurrent=st.booleans(),
    wait_result=st.booleans(),
    delay_ms=_MS,
    timeout_to_fail_ms=_MS,
    request_timeout_ms=_MS,
    retry_interval_ms=_MS,
    headers=st.lists(st.tuples(_TEXTS, _TEXTS), max_size=3).map(tuple),
    explicit_verdict=st.booleans(),
    open=st.booleans(),
    durability=st.sampled_from(Durability),
    not_before_ms=_MS,
    attempts_max=st.integers(0, 2**20),
    trace=st.lists(st.tuples(_TEXTS, _TEXTS), max_size=3).map(tuple),
)
_MESSAGES = st.builds(Message, _TEXTS, _BRANCHES, _TEXTS, _OPTIONS, st.just("http"))


@given(_MESSAGES)
def test_the_stored_form_gives_the_message_back(message: Message) -> None:
    assert decode(encode(message)) == message


@given(_BRANCHES)
def test_added_branches_survive_the_barrier_row(branches: tuple[Branch, ...]) -> None:
    assert decode_branches(encode_branches(branches)) == branches


@pytest.mark.parametrize("body", [b"", b"\x00", b"not a message", encode(Message("g", (ONE,)))[:-1]])
def test_a_damaged_body_is_an_error_and_no_message(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(body)


@pytest.mark.parametrize("body", [b"", b"\x01", encode(Message("g", (ONE,)))])
def test_a_damaged_barrier_body_is_an_error_and_no_branches(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_branches(body)


@given(st.lists(st.builds(Branch, st.text(), st.binary()), max_size=63).map(tuple))
def test_an_answer_carries_the_branches_of_a_barrier_row(branches: tuple[Branch, ...]) -> None:
    assert decode_answered(encode_branches(branches)) == branches


def test_an_answer_of_more_than_a_message_could_have_is_refused_before_it_is_made() -> None:
    count = 500_000
    many = b"\xdd" + count.to_bytes(4, "big")
    tracemalloc.start()
    try:
        with pytest.raises(msgspec.ValidationError):
            decode_answered(many + b"\x91\xa0" * count)
        (branch,) = decode_answered(b"\x91\x93\xa1a\xc4\x00" + many + b"\xa3abc" * count)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert branch == Branch("a")
    assert most < 8_000_000


def test_a_row_written_before_an_option_existed_is_still_read() -> None:
    old = msgspec.msgpack.encode(["g", [["http://b/1"]], "http://a/check"])

    assert decode(old) == Message("g", (Branch("http://b/1"),), "http://a/check")


@pytest.mark.parametrize(
    ("options", "first_call_ms"),
    [
        (Options(), 0),
        (Options(delay_ms=5), 105),
        (Options(not_before_ms=90), 90),
        (Options(delay_ms=5, not_before_ms=104), 105),
        (Options(delay_ms=5, not_before_ms=106), 106),
    ],
)
def test_the_first_call_is_after_the_delay_and_not_before_the_time(options: Options, first_call_ms: int) -> None:
    assert options.first_call_ms(created_ms=100) == first_call_ms


def test_branch_ids_are_those_of_the_wire() -> None:
    message = Message("g", (ONE,) * 128)

    assert [message.branch_id(index) for index in (0, 1, 98, 99, 127)] == ["01", "02", "99", "100", "128"]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Message("g", (ONE, TWO)), Message("g", (ONE, TWO))),
        (Message("g", (ONE,)), Message("g", ())),
        (Message("g", (ONE,)), Message("g", (ONE,), options=Options(delay_ms=5))),
        (Message("g", (ONE,), options=OPEN), Message("g", (ONE, TWO, THREE))),
        (Message("g", (), options=OPEN), Message("g", (ONE,))),
    ],
    ids=["equal", "nothing said", "other options", "added behind those fixed", "all added"],
)
def test_a_submit_of_the_same_content_is_recognised(known: Message, said: Message) -> None:
    assert same_content(known, said)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Message("g", (ONE,)), Message("g", (TWO,))),
        (Message("g", (ONE,)), Message("g", (Branch(ONE.url, b"other"),))),
        (Message("g", (ONE, TWO)), Message("g", (TWO, ONE))),
        (Message("g", (ONE,)), Message("g", (ONE, TWO))),
        (Message("g", (ONE, TWO)), Message("g", (ONE,))),
        (Message("g", (ONE,), options=OPEN), Message("g", (TWO, ONE))),
        (Message("g", (ONE, TWO), options=OPEN), Message("g", (ONE,))),
    ],
    ids=["other address", "other payload", "other order", "more", "fewer", "added in front", "open, fewer"],
)
def test_a_submit_of_other_content_is_recognised(known: Message, said: Message) -> None:
    assert not same_content(known, said)


def test_a_prepare_that_comes_again_is_the_same() -> None:
    assert same_prepared(Message("g", (ONE,)), Message("g", (ONE,), options=Options(delay_ms=5)))


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Message("g", (ONE,)), Message("g", ())),
        (Message("g", (ONE,)), Message("g", (TWO,))),
        (Message("g", (ONE,), options=OPEN), Message("g", (ONE, TWO), options=OPEN)),
        (Message("g", (ONE,)), Message("g", (ONE,), options=OPEN)),
    ],
    ids=["none", "other", "open, more", "open now"],
)
def test_a_prepare_must_fix_exactly_the_same_branches(known: Message, said: Message) -> None:
    assert not same_prepared(known, said)


@pytest.mark.parametrize(
    ("url", "protocol", "scheme"),
    [
        ("http://b/in", "http", "http"),
        ("HTTPS://b/in", "grpc", "https"),
        ("grpc://b:1/p.S/M", "http", "grpc"),
        ("b:1/p.S/M", "grpc", "grpc"),
        ("b:1/p.S/M", "http", ""),
        ("b:1/rpc?method=in", "json-rpc", ""),
        ("http://b/rpc?method=in", "json-rpc", "json-rpc"),
        ("https://b/rpc?x=1&method=in", "json-rpc", "json-rpc"),
        ("http://b/rpc?method=in", "http", "http"),
        ("http://b/rpc?method=", "json-rpc", "http"),
        ("http://b/method=in", "json-rpc", "http"),
        ("http://b/rpc?paymethod=in", "json-rpc", "http"),
        ("http://b/payment-method", "json-rpc", "http"),
        ("http://b/rpc#?method=in", "json-rpc", "http"),
        ("grpc://b:1/p.S/M?method=in", "json-rpc", "grpc"),
        ("", "grpc", "grpc"),
        ("", "http", ""),
    ],
)
def test_scheme_and_protocol_pick_the_destination(url: str, protocol: str, scheme: str) -> None:
    assert scheme_of(url, protocol) == scheme


def test_a_method_is_read_as_a_form_writes_it() -> None:
    assert method_of("http://b/rpc?method=transfer%20in&method=other") == "transfer in"


EARLY: dict[str, Any] = {"durability": Durability.CHECK_BACK}


@pytest.mark.parametrize(
    ("check_url", "options", "early"),
    [
        ("http://a/check", EARLY, True),
        ("http://a/check", {}, False),
        ("", EARLY, False),
        ("http://a/check", EARLY | {"wait_result": True}, False),
        ("http://a/check", EARLY | {"delay_ms": 1}, False),
        ("http://a/check", EARLY | {"not_before_ms": 1}, False),
    ],
)
def test_what_may_be_called_before_its_decision_is_stored(check_url: str, options: dict[str, Any], early: bool) -> None:
    assert may_be_called_early(Message("g", (), check_url, Options(**options))) is early


@pytest.mark.parametrize(
    "taken_over", [Branch("http://b/1", b"1", ("http://b/1",)), Branch("topic://", b"1", ("", "x"))]
)
def test_a_topic_whose_name_was_lost_with_another_store_is_whichever_its_producer_says(taken_over: Branch) -> None:
    known = Message("g", (taken_over,))

    assert same_content(known, Message("g", (Branch("topic://paid", b"1"),)))
    assert same_prepared(known, Message("g", (Branch("topic://paid", b"1"),)))
    assert not same_content(known, Message("g", (Branch("topic://paid", b"2"),)))
    assert not same_content(known, Message("g", (Branch("http://b/2", b"1"),)))


@pytest.mark.parametrize("named", [ONE, Branch("topic://paid", b"1", ("http://b/1",))])
def test_what_its_producer_wrote_is_no_other_topic(named: Branch) -> None:
    assert not same_content(Message("g", (named,)), Message("g", (Branch("topic://sold", b"1"),)))


_PLACES = st.sampled_from(["http://pod-1/check", "https://pod-2:8080/a/check?tenant=7", "bank:58080/bank.Bank/Check"])
_IDENTITIES = st.text("0123456789abcdef", min_size=1, max_size=3)


@given(_PLACES, _PLACES, _IDENTITIES, _IDENTITIES)
def test_two_prepares_mean_the_same_message_only_with_the_same_check_address_and_database(
    known: str, said: str, first: str, second: str
) -> None:
    def prepared(place: str, identity: str) -> Message:
        joint = "&" if "?" in place else "?"
        return Message("g", (ONE,), f"{place}{joint}barrier={identity}")

    assert same_prepared(prepared(known, first), prepared(said, second)) == (first == second and known == said)
    assert not same_prepared(prepared(known, first), Message("g", (ONE,), said))
    assert same_prepared(Message("g", (ONE,), known), Message("g", (ONE,), said)) == (known == said)


def test_other_parameters_of_a_check_address_may_differ_where_both_name_the_database() -> None:
    def prepared(query: str) -> Message:
        return Message("g", (ONE,), f"http://a/check?{query}")

    assert same_prepared(prepared("pod=1&barrier=7f"), prepared("pod=2&barrier=7f"))
    assert not same_prepared(prepared("pod=1"), prepared("pod=2"))
