"""A message: its branches and its options. Immutable.

A message is one value: it travels, is compared and is stored as a whole (`encode`, `decode`: one MessagePack
array, the `body` of a stored row), because the cost of durability is counted in commits, not in bytes.
Two requests carry the same content when their branches are equal: addresses as written (a topic's name, not
its subscribers, where the name is known) and payload bytes; options do not count (correctness rule 5). Two prepares
must have the same check address besides: one barrier decides about a gid, and the check address names it (rule 6).
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs, unquote_plus

import msgspec

from twophase.core.address import IDENTITY_PARAMETER, TOPIC_PREFIX
from twophase.core.limits import BRANCHES_MAX
from twophase.core.options import Durability, Options


class Branch(msgspec.Struct, frozen=True, array_like=True):
    """One call that must follow the local transaction.

    `url` is an address whose scheme picks the destination, or `topic://name`; `payload` is the body of the
    call, already serialised, empty for none. `subscribers` are the addresses that are called instead of `url`: those
    that the topic stood for when the message was inserted (see `core.topic`), or the one that an operator gave (see
    `core.redirect`). None: `url` itself.
    """

    url: str
    payload: bytes = b""
    subscribers: tuple[str, ...] | None = None


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A set of branches with options, named by its gid.

    `check_url` is where the coordinator asks for the verdict; empty for a plain message, which is submitted
    without prepare. `prepared_check_url` is what the producer prepared, where an operator gave another address since.
    """

    gid: str
    branches: tuple[Branch, ...]
    check_url: str = ""
    options: Options = Options()
    protocol: str = "http"
    prepared_check_url: str = ""

    def branch_id(self, index: int) -> str:
        """Return the wire's id of branch number `index` (from 0): `01`, `02` and so on.

        >>> Message("g", (Branch("http://b/in"),)).branch_id(0)
        '01'
        """
        return f"{index + 1:02d}"


def scheme_of(url: str, protocol: str) -> str:
    """Return the destination that calls `url` for a message of `protocol`.

    Empty for an address that no destination calls.

    An address that names its scheme is called by it, whatever the protocol; `host:port/package.Service/Method`, as dtm
    writes it, belongs to a message of protocol `grpc`; an HTTP address with a `method` parameter is a JSON-RPC branch
    in one of protocol `json-rpc` (dtm-wire §3.1).

    >>> scheme_of("HTTP://b/in", "grpc"), scheme_of("b:58080/bank.Bank/TransferIn", "grpc"), scheme_of("b/in", "http")
    ('http', 'grpc', '')
    >>> scheme_of("http://b/rpc?method=transfer_in", "json-rpc"), scheme_of("http://b/in", "json-rpc")
    ('json-rpc', 'http')
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "grpc" if protocol == "grpc" else ""
    scheme = scheme.lower()
    if protocol == "json-rpc" and scheme in {"http", "https"} and method_of(rest):
        return "json-rpc"
    return scheme


def method_of(url: str) -> str:
    """Return the method in a JSON-RPC branch's address, empty when there is no method.

    >>> method_of("http://b/rpc?tenant=7&method=transfer_in#top"), method_of("http://b/payment-method?x=1")
    ('transfer_in', '')
    """
    if "method=" not in url:
        return ""
    query = url.partition("#")[0].partition("?")[2]
    return next((unquote_plus(pair[7:]) for pair in query.split("&") if pair.startswith("method=")), "")


def databases_asked(check_url: str) -> list[str]:
    """Return the databases that a check address names.

    twophase's SDK writes one; another producer's address names none.

    >>> databases_asked("http://a/check?tenant=7&barrier=7f#top"), databases_asked("a:58080/bank.Bank/Check")
    (['7f'], [])
    """
    return parse_qs(check_url.partition("#")[0].partition("?")[2]).get(IDENTITY_PARAMETER, [])


def may_be_called_early(message: Message) -> bool:
    """Return True when a submit may count before it is stored (correctness rule 25).

    The prepared message chose so, and has a check address; a first call that must wait, or a reply that does, leaves
    time to store it.

    >>> early = Options(durability=Durability.CHECK_BACK)
    >>> may_be_called_early(Message("g", (), "http://a/check", early)), may_be_called_early(Message("g", (), "", early))
    (True, False)
    """
    options = message.options
    return (
        options.durability is Durability.CHECK_BACK
        and bool(message.check_url)
        and not options.wait_result
        and not options.delay_ms
        and not options.not_before_ms
    )


def same_prepared(known: Message, sent: Message) -> bool:
    """Return True when a *prepare* that repeats `known`'s gid means the same message.

    Stricter than `same_content`: here nothing came late yet. A second process that prepared more branches, or fewer,
    and then committed would find them neither in the stored message nor among those added in its barrier row. Nor would
    one that committed in another database than `known`'s check address asks be found there. And the first to prepare a
    gid must not choose who answers for another's: host and path must be equal. Other parameters may differ where both
    addresses name the database.

    >>> one, two = Branch("http://b/1"), Branch("http://b/2")
    >>> same_prepared(Message("g", (one,), options=Options(open=True)), Message("g", (one, two)))
    False
    >>> asked = Message("g", (one,), "http://a/check?barrier=7f")
    >>> others = ("http://a/check?barrier=7f&pod=2", "http://a/check?barrier=8a", "http://b/check?barrier=7f")
    >>> [same_prepared(asked, Message("g", (one,), other)) for other in others]
    [True, False, False]
    """
    check_url = known.prepared_check_url or known.check_url
    return (
        _same(known.branches, sent.branches)
        and known.options.open == sent.options.open
        and (check_url == sent.check_url or _same_address_asked(check_url, sent.check_url))
    )


def _same_address_asked(known: str, sent: str) -> bool:
    """Return True when two check addresses ask the same service and database.

    Host and path are equal, and both name one database.
    """
    databases = databases_asked(known)
    return bool(databases) and databases == databases_asked(sent) and known.partition("?")[0] == sent.partition("?")[0]


def same_content(known: Message, sent: Message, *, committed: bool = False) -> bool:
    """Return True when a *submit* that repeats a gid means the same message.

    A submit without branches means those that were prepared, and is no submit of a message prepared `open`: only its
    producer knows all of them. Such a message may be repeated with more branches behind those fixed at prepare.

    Arguments:
        known: the message as it is stored.
        sent: the message of the submit.
        committed: `known` was submitted, so it is complete: branches that it has not would never be called, and the
            caller that names them must learn it.

    >>> one, two = Branch("http://b/1"), Branch("http://b/2")
    >>> same_content(Message("g", (one,)), Message("g", (one,)))
    True
    >>> same_content(Message("g", (one,)), Message("g", (one, two)))
    False
    >>> open_one = Message("g", (one,), options=Options(open=True))
    >>> more = Message("g", (one, two))
    >>> same_content(open_one, more), same_content(open_one, more, committed=True)
    (True, False)
    >>> same_content(open_one, Message("g", ())), same_content(open_one, Message("g", ()), committed=True)
    (False, True)
    """
    if _same(known.branches, sent.branches):
        return True
    if not sent.branches:
        return committed or not known.options.open
    return not committed and known.options.open and _same(known.branches, sent.branches[: len(known.branches)])


def _same(known: tuple[Branch, ...], sent: tuple[Branch, ...]) -> bool:
    """Return True when branches were written the same; subscribers do not count."""
    if known == sent:
        return True  # nearly always, and twenty times as fast
    if len(known) != len(sent):
        return False
    return all(_alike(one, other) for one, other in zip(known, sent, strict=True))


def _alike(known: Branch, sent: Branch) -> bool:
    """Return True when a branch was written as `sent` is.

    Taken over from a store that keeps no topics' names, it has subscribers and names no topic (ADR 0016). Then any
    topic may be the one that its producer wrote.
    """
    if known.payload != sent.payload:
        return False
    if known.url == sent.url:
        return True
    names_a_topic = known.url.startswith(TOPIC_PREFIX) and known.url != TOPIC_PREFIX
    return known.subscribers is not None and not names_a_topic and sent.url.startswith(TOPIC_PREFIX)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)
_branches_decoder = msgspec.msgpack.Decoder(tuple[Branch, ...])


class _Answered(msgspec.Struct, frozen=True, array_like=True):
    """A branch in an answer; the producer does not choose the subscribers of a topic."""

    url: str
    payload: bytes = b""


_answer_decoder = msgspec.msgpack.Decoder(Annotated[tuple[_Answered, ...], msgspec.Meta(max_length=BRANCHES_MAX.value)])


def encode(message: Message) -> bytes:
    """Return the stored form of a message.

    >>> decode(encode(Message("g", (Branch("http://b/in", b"{}"),)))).branches[0].url
    'http://b/in'
    """
    return _encoder.encode(message)


def decode(body: bytes) -> Message:
    """Return the message whose stored form is `body`.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError: `body` was not written by `encode`.
    """
    return _decoder.decode(body)


def encode_branches(branches: tuple[Branch, ...]) -> bytes:
    """Return branches added inside the local transaction as the barrier row's `body`.

    >>> decode_branches(encode_branches((Branch("http://b/in"),)))
    (Branch(url='http://b/in', payload=b'', subscribers=None),)
    """
    return _encoder.encode(branches)


def decode_branches(body: bytes) -> tuple[Branch, ...]:
    """Return the inverse of `encode_branches`.

    Raises msgspec.DecodeError or ValidationError for anything else.
    """
    return _branches_decoder.decode(body)


def decode_answered(body: bytes) -> tuple[Branch, ...]:
    """Return what `encode_branches` wrote, as a check-back's answer carries it.

    Nothing is made that a message could not have. Raises as `decode_branches`.
    """
    return tuple([Branch(one.url, one.payload) for one in _answer_decoder.decode(body)])
