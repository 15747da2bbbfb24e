"""A message of a queue, and its form as a branch.

A branch with the address `queue://[namespace/]topic?id=…&tag=…` is not called: its payload is appended to the topic's
queue, and consumers fetch it. The address has all attributes, the payload is the body as the producer sent it, so that
the engine stores a message of a queue as it stores every other.
"""

from __future__ import annotations

import functools
import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote

import msgspec

from twophase.core.errors import InvalidRequest

QUEUE_PREFIX: Final = "queue://"
GID_PREFIX: Final = "queue-"
"""The gids of queues' messages begin with it."""
ANSWERS_NO_CHECK: Final = "a queue answers no check-back"
"""The reason for which a check address cannot be a queue."""
DEAD_LETTERS: Final = "%DLQ%"
"""The topic of a group's dead letters: this, then the group's name."""
NOT_TO_BOTH: Final = (
    "a message with a delay or a time goes to queues or to other addresses, not to both: make it two messages."
)
"""The reason for which a delayed message that `is_to_both` is refused.

Its queue's branch would be appended with the decision, at once.
"""
NAME_CHARACTERS_MAX: Final = 255
_NAMES_MAX: Final = 4096
"""Names that are not looked at again."""
_NAME: Final = re.compile(rf"(?:{DEAD_LETTERS})?[%|a-zA-Z0-9_-]{{1,255}}")
"""The dead letters of every group have a name, too."""
_OWN_GID: Final = re.compile(rf"{GID_PREFIX}[0-9a-f]{{32}}")
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_.~-]*", re.ASCII)
"""Text that an address has as it is; looking costs a tenth of quoting."""
PROPERTY: Final = "p."
"""Begins the name of a property in the query of a `queue://` address."""
_TIME_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, behind which no wire format has a time."""
_KINDS: Final = frozenset({"normal", "fifo", "delay", "transaction"})


class QueueMessage(msgspec.Struct, frozen=True):
    """A message of a queue, with its attributes.

    Arguments:
        topic: without the namespace.
        namespace: empty for none.
        message_id: the producer's; it names the message in its topic.
        body: as the producer sent it.
        kind: `normal`, `fifo`, `delay` or `transaction`.
        tag, keys, properties: for consumers.
        message_group: the messages of one group are delivered in order.
        deliver_at_ms: no consumer sees it before, in ms since 1970; 0: at once.
        born_ms, born_host: where and when the producer made it.
        encoding: `identity` or `gzip`; the body is not read.
        trace_context: of the producer's trace.
        only_group: the one group of consumers that gets it; empty for all. A redriven dead letter has one.
    """

    topic: str
    namespace: str
    message_id: str
    body: bytes
    kind: str = "normal"
    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    message_group: str = ""
    deliver_at_ms: int = 0
    born_ms: int = 0
    born_host: str = ""
    encoding: str = "identity"
    trace_context: str = ""
    only_group: str = ""


@functools.lru_cache(_NAMES_MAX)
def full_name(namespace: str, name: str) -> str:
    """Return the name of a topic or group as it is stored.

    Raises:
        InvalidRequest: a character that no name has, or too many of them.

    >>> full_name("", "orders"), full_name("shop", "orders")
    ('orders', 'shop/orders')
    """
    for part in (namespace, name) if namespace else (name,):
        if not _NAME.fullmatch(part):
            raise InvalidRequest(
                f"{part[:64]!r} is no name of a topic, group or namespace: letters, digits, %, |, _ and -, at most"
                f" {NAME_CHARACTERS_MAX}."
            )
    return f"{namespace}/{name}" if namespace else name


def require_full_name(name: str) -> None:
    """Refuse what cannot be the stored name of a topic or a group.

    Raises:
        InvalidRequest: as `full_name`.

    >>> require_full_name("shop/orders")
    >>> require_full_name("a/b/c")
    Traceback (most recent call last):
    twophase.core.errors.requests.InvalidRequest: TP-1000: 'a/b' is no name of a topic, group or namespace: ...
    """
    namespace, slash, own = name.rpartition("/")
    full_name(namespace or slash, own)


def letters_of(group: str) -> str:
    """Return the topic of a group's dead letters; both with their namespace.

    >>> letters_of("billing"), letters_of("shop/billing")
    ('%DLQ%billing', 'shop/%DLQ%billing')
    """
    namespace, slash, name = group.rpartition("/")
    return f"{namespace}{slash}{DEAD_LETTERS}{name}"


def group_of_letters(topic: str) -> str:
    """Return the group whose dead letters a topic has; empty for any other topic.

    >>> group_of_letters("shop/%DLQ%billing"), group_of_letters("shop/billing"), group_of_letters("a%DLQ%b")
    ('shop/billing', '', '')
    """
    namespace, slash, name = topic.rpartition("/")
    return f"{namespace}{slash}{name.removeprefix(DEAD_LETTERS)}" if name.startswith(DEAD_LETTERS) else ""


def gid_of(namespace: str, topic: str, message_id: str, origin: str = "") -> str:
    """Return the gid of a message of a queue; the same message has the same.

    `origin`: what a dead letter or a redriven one is made of, empty for every other message.

    >>> gid_of("", "orders", "01AB"), gid_of("", "orders", "01AB") == gid_of("", "order", "s01AB")
    ('queue-906d66e3fd1d1443c0aa1a9dee2f4fa8', False)
    """
    named = "".join(f"{len(part)}:{part}" for part in (namespace, topic, message_id, origin))
    return GID_PREFIX + hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()[:32]


def is_own_gid(gid: str) -> bool:
    """Return True for a gid as `gid_of` returns it, which no other message has.

    >>> is_own_gid("queue-906d66e3fd1d1443c0aa1a9dee2f4fa8"), is_own_gid("queue-17")
    (True, False)
    """
    return _OWN_GID.fullmatch(gid) is not None


def queue_of(name: str, queues: int) -> int:
    """Return the queue of a topic for a message group, or else for a gid.

    >>> queue_of("order-17", 1), queue_of("order-17", 4) == queue_of("order-17", 4)
    (0, True)
    """
    return zlib.crc32(name.encode(errors="surrogatepass")) % queues


def address_of(message: QueueMessage) -> str:
    """Return the address of a message of a queue, with its attributes.

    >>> address_of(QueueMessage("orders", "", "01AB", b"{}", tag="paid", properties=(("shop", "7"),)))
    'queue://orders?id=01AB&tag=paid&p.shop=7'
    """
    parts: list[str] = []
    if message.message_id:
        parts.append("id=" + _quoted(message.message_id))
    if message.kind != "normal":
        parts.append("kind=" + _quoted(message.kind))
    if message.tag:
        parts.append("tag=" + _quoted(message.tag))
    parts += ["key=" + _quoted(key) for key in message.keys]
    if message.message_group:
        parts.append("group=" + _quoted(message.message_group))
    if message.deliver_at_ms:
        parts.append(f"at={message.deliver_at_ms}")
    if message.born_ms:
        parts.append(f"born={message.born_ms}")
    if message.born_host:
        parts.append("host=" + _quoted(message.born_host))
    if message.encoding != "identity":
        parts.append("encoding=" + _quoted(message.encoding))
    if message.trace_context:
        parts.append("trace=" + _quoted(message.trace_context))
    if message.only_group:
        parts.append("only=" + _quoted(message.only_group))
    parts += [f"{PROPERTY}{_quoted(name)}={_quoted(value)}" for name, value in message.properties]
    query = "?" + "&".join(parts) if parts else ""
    namespace = f"{_name_in(message.namespace)}/" if message.namespace else ""
    return f"{QUEUE_PREFIX}{namespace}{_name_in(message.topic)}{query}"


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else quote_plus(text)


def _name_in(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")


def topic_address(name: str) -> str:
    """Return the address of a topic by its stored name, without attributes.

    >>> topic_address("shop/orders"), topic_address("%DLQ%billing")
    ('queue://shop/orders', 'queue://%25DLQ%25billing')
    """
    return QUEUE_PREFIX + "/".join([_name_in(part) for part in name.split("/")])


def is_to_both(urls: Iterable[str]) -> bool:
    """Return True for a message of which some branches go to queues, and some do not.

    >>> is_to_both(["queue://t", "http://b/in"]), is_to_both(["queue://t", "queue://u"]), is_to_both([])
    (True, False, False)
    """
    return len({url.startswith(QUEUE_PREFIX) for url in urls}) > 1


def topic_of(url: str) -> tuple[str, str]:
    """Return the namespace and the topic of a `queue://` address.

    Raises:
        InvalidRequest: the address names no topic.

    >>> topic_of("queue://shop/orders?tag=paid"), topic_of("queue://%25DLQ%25back")
    (('shop', 'orders'), ('', '%DLQ%back'))
    >>> topic_of("queue://%DLQ%back")
    ('', '%DLQ%back')
    """
    if not url.startswith(QUEUE_PREFIX):
        raise InvalidRequest(f"the address of a queue begins with {QUEUE_PREFIX}, in small letters.")
    return _topic_at(url.partition("?")[0])


@functools.lru_cache(_NAMES_MAX)
def _topic_at(url: str) -> tuple[str, str]:
    namespace, _, topic = url[len(QUEUE_PREFIX) :].rpartition("/")
    namespace = unquote(namespace)
    if not topic.startswith(DEAD_LETTERS):  # people write the name of dead letters as it is; no quoted text begins so
        topic = unquote(topic)
    full_name(namespace, topic)
    return namespace, topic


def message_of(url: str, body: bytes) -> QueueMessage:
    """Return the message that a `queue://` branch stands for.

    It is the inverse of `address_of`.

    Raises:
        InvalidRequest: the address names no topic, another kind, no time where there is one, or text that is not UTF-8.

    >>> message_of("queue://orders?tag=paid&key=7&key=8&p.shop=7", b"{}").keys
    ('7', '8')
    """
    namespace, topic = topic_of(url)
    one: dict[str, str] = {}
    keys: list[str] = []
    properties: list[tuple[str, str]] = []
    for name, value in _pairs(url.partition("?")[2]):
        if name == "key":
            keys.append(value)
        elif name.startswith(PROPERTY):
            properties.append((name[len(PROPERTY) :], value))
        else:
            one[name] = value
    kind = one.get("kind", "normal")
    if kind not in _KINDS:
        raise InvalidRequest(f"{kind[:64]!r} is no kind of message; there are {', '.join(sorted(_KINDS))}.")
    deliver_at_ms, born_ms = _time_ms(one.get("at", "0")), _time_ms(one.get("born", "0"))
    return QueueMessage(
        topic,
        namespace,
        one.get("id", ""),
        body,
        kind,
        one.get("tag", ""),
        tuple(keys),
        tuple(properties),
        one.get("group", ""),
        deliver_at_ms,
        born_ms,
        one.get("host", ""),
        one.get("encoding", "identity"),
        one.get("trace", ""),
        one.get("only", ""),
    )


def _pairs(query: str) -> Sequence[tuple[str, str]]:
    """Return the names and values of a query; raises InvalidRequest."""
    if "%" not in query and "+" not in query:  # as nearly always, at a third of the cost
        return [(name, value) for name, _, value in [pair.partition("=") for pair in query.split("&")]]
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest("the attributes of a queue:// address are UTF-8.") from None


def _time_ms(text: str) -> int:
    try:
        at_ms = int(text)
    except ValueError:
        at_ms = -1
    if not 0 <= at_ms <= _TIME_MS_MAX:
        raise InvalidRequest(
            "at and born of a queue:// address are whole milliseconds since 1970, up to the year 9999."
        )
    return at_ms
