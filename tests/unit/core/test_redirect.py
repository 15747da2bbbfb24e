"""Another address for a message's calls.

The tests show which calls it changes, what stays as it was, and what compares as before.
"""

from __future__ import annotations

import pytest

from twophase.core.errors import InvalidRequest, StateConflict
from twophase.core.message import Branch, Message, decode, encode, same_content, same_prepared
from twophase.core.redirect import Move, Redirection, begins, redirect
from twophase.core.topic import expansion_of

CHECK = "http://orders/check?tenant=1&barrier=7f"
SENT = Message("g", (Branch("http://old:80/a", b"1"), Branch("http://old:80/b"), Branch("http://other/c")), CHECK)
TOPIC = Message("g", (Branch("topic://t", b"1", ("http://old/1", "http://old/2")), Branch("topic://late")))


def calls(message: Message) -> list[tuple[str, str]]:
    """Return the ids and addresses that are called."""
    found = expansion_of(message.branches)
    if found is None:
        return [(message.branch_id(index), one.url) for index, one in enumerate(message.branches)]
    return [(id_, one.url) for id_, one in zip(found.ids, found.branches, strict=True)]


def test_one_branch_goes_elsewhere_under_its_id_with_its_payload() -> None:
    message, moves = redirect(SENT, 0, Redirection("http://new/a?x=1", branch_id="01"))

    assert moves == (Move("01", "http://old:80/a", "http://new/a?x=1"),)
    assert calls(message) == [("01", "http://new/a?x=1"), ("02", "http://old:80/b"), ("03", "http://other/c")]
    assert message.branches[0].payload == b"1"
    assert decode(encode(message)) == message


def test_what_the_producer_says_again_is_compared_with_what_it_wrote() -> None:
    message, _ = redirect(SENT, 0, Redirection("http://new", beginning="http://old:80"))
    message, _ = redirect(message, 0, Redirection("http://check/new", check=True))

    assert same_prepared(message, SENT)
    assert same_content(message, SENT, committed=True)
    assert not same_content(message, Message("g", (Branch("http://new/a", b"1"),)))


def test_a_beginning_is_replaced_in_every_open_call_up_to_the_end_of_a_part() -> None:
    message, moves = redirect(SENT, 0b10, Redirection("http://new:8080", beginning="old:80"))

    assert moves == (Move("01", "http://old:80/a", "http://new:8080/a"),), "02 has succeeded"
    assert calls(message)[1:] == [("02", "http://old:80/b"), ("03", "http://other/c")]
    assert not begins("http://old:8080/a", "http://old:80")
    assert begins("http://old:80/a", "http://old:80/")


def test_one_of_a_topics_subscribers_goes_elsewhere() -> None:
    message, moves = redirect(TOPIC, 0, Redirection("http://new/2", branch_id="01-02"))

    assert moves == (Move("01-02", "http://old/2", "http://new/2"),)
    assert calls(message) == [("01-01", "http://old/1"), ("01-02", "http://new/2"), ("02", "topic://late")]


def test_a_topic_without_a_subscriber_becomes_one_call() -> None:
    message, _ = redirect(TOPIC, 0, Redirection("http://new/in", branch_id="02"))

    assert calls(message)[2] == ("02", "http://new/in")


def test_back_to_where_it_was_sent_is_as_it_was() -> None:
    there, _ = redirect(SENT, 0, Redirection("http://new", branch_id="01"))
    back, moves = redirect(there, 0, Redirection("http://old:80/a", branch_id="01"))
    asked, _ = redirect(SENT, 0, Redirection("http://new/check", check=True))
    asked_back, _ = redirect(asked, 0, Redirection(CHECK, check=True))

    assert (back, len(moves)) == (SENT, 1)
    assert asked_back == SENT


def test_where_it_goes_already_nothing_changes() -> None:
    assert redirect(SENT, 0, Redirection("http://old:80/a", branch_id="01")) == (SENT, ())
    assert redirect(SENT, 0, Redirection(CHECK, check=True)) == (SENT, ())


def test_the_only_open_call_needs_no_name() -> None:
    _, moves = redirect(SENT, 0b101, Redirection("http://new"))

    assert moves == (Move("02", "http://old:80/b", "http://new"),)


@pytest.mark.parametrize(
    ("wanted", "done", "told"),
    [
        (Redirection("http://new"), 0, "3 calls are open, name one: 01 http://old:80/a, 02 "),
        (Redirection("http://new", branch_id="09"), 0, "there is no '09'; there are 01, 02, 03"),
        (Redirection("http://new", beginning="http://nowhere"), 0, "no open call goes to http://nowhere"),
        (Redirection("http://new", branch_id="01", beginning="http://other"), 0, "no open call goes to http://other"),
        (Redirection("http://new"), 0b111, "no open call is left"),
        (Redirection("http://new", beginning="http://b", check=True), 0, "asked at http://orders/check"),
    ],
)
def test_what_means_no_call_or_several_is_refused(wanted: Redirection, done: int, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        redirect(SENT, done, wanted)


def test_a_branch_that_has_succeeded_is_refused_by_name() -> None:
    with pytest.raises(StateConflict, match="branch 01 has succeeded"):
        redirect(SENT, 1, Redirection("http://new", branch_id="01"))


def test_a_branch_that_was_called_at_another_coordinator_has_succeeded() -> None:
    taken = Message("g", (Branch("http://old/a", b"", ("",)), Branch("http://old/b")))

    _, moves = redirect(taken, 0, Redirection("http://new"))

    assert moves == (Move("02", "http://old/b", "http://new"),)
    with pytest.raises(StateConflict, match="branch 01 has succeeded"):
        redirect(taken, 0, Redirection("http://new", branch_id="01"))


@pytest.mark.parametrize(
    ("to", "asked"),
    [
        ("http://new/check", "http://new/check?barrier=7f"),
        ("http://new/check?a=1#part", "http://new/check?a=1&barrier=7f#part"),
        ("http://new/check?barrier=8a", "http://new/check?barrier=8a"),
    ],
)
def test_another_check_address_asks_the_same_database_unless_it_names_one(to: str, asked: str) -> None:
    message, moves = redirect(SENT, 0, Redirection(to, check=True))

    assert (message.check_url, message.prepared_check_url) == (asked, CHECK)
    assert moves == (Move("00", CHECK, asked),)
    assert message.branches == SENT.branches


def test_the_beginning_of_a_check_address_is_replaced() -> None:
    message, _ = redirect(SENT, 0, Redirection("http://new", beginning="http://orders", check=True))

    assert message.check_url == "http://new/check?tenant=1&barrier=7f"


def test_a_message_without_a_check_address_may_be_given_one() -> None:
    message, _ = redirect(Message("g", SENT.branches), 0, Redirection("http://new/check", check=True))

    assert (message.check_url, message.prepared_check_url) == ("http://new/check", "")


@pytest.mark.parametrize(("branch", "to"), [("01", "http://new/a"), ("02", "queue://orders")])
def test_a_queue_is_redirected_nowhere_and_nothing_to_a_queue(branch: str, to: str) -> None:
    sent = Message("g", (Branch("queue://orders", b"1"), Branch("http://old/b")), CHECK)

    with pytest.raises(InvalidRequest):
        redirect(sent, 0, Redirection(to, branch_id=branch))


def test_no_queue_is_asked_for_the_outcome() -> None:
    sent = Message("g", (Branch("http://old/b"),), CHECK)
    with pytest.raises(InvalidRequest, match="to: a queue answers no check-back"):
        redirect(sent, 0, Redirection("queue://orders", check=True))
