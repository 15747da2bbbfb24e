"""Topics in a message: the subscribers of `topic://name`, and a message's calls.

A branch to a topic is as many calls as the topic had subscribers when the message was inserted; these are in the
branch (`Branch.subscribers`), so a subscription of tomorrow changes no message of today. One bit of `done` is one call.
Ids are dtm's: the only subscriber of branch 1 is `01`, several are `01-01`, `01-02` (dtm-wire §4.6).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from twophase.core.address import TOPIC_PREFIX
from twophase.core.errors import InvalidRequest
from twophase.core.limits import TOPIC_BYTES_MAX, require
from twophase.core.message import Branch

_PREFIX_CHARACTERS: Final = len(TOPIC_PREFIX)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class Expansion(msgspec.Struct, frozen=True):
    """The calls of a message that names a topic.

    Call `i` goes to `branches[i].url`, as branch `ids[i]`. A branch whose topic was unknown is one call, to
    `topic://name` still.
    """

    branches: tuple[Branch, ...]
    ids: tuple[str, ...]


def fans_out(branches: Sequence[Branch]) -> bool:
    """Return True when a branch is called at another address than its own.

    That is a topic's, or one in `subscribers`.

    >>> fans_out((Branch("http://b/in"), Branch("topic://rates"))), fans_out((Branch("http://b/topic://x"),))
    (True, False)
    """
    return any(branch.url.startswith(TOPIC_PREFIX) or branch.subscribers is not None for branch in branches)


def topic_in(url: str) -> str:
    """Return the topic that an address names; empty when it names none.

    >>> topic_in("topic://rates"), topic_in("http://b/in")
    ('rates', '')
    """
    return url[_PREFIX_CHARACTERS:] if url.startswith(TOPIC_PREFIX) else ""


def expansion_of(branches: Sequence[Branch]) -> Expansion | None:
    """Return the calls of branches; None when each is one call to its own address.

    >>> calls = expansion_of((Branch("topic://t", b"{}", ("http://b/1", "http://b/2")), Branch("http://b/3")))
    >>> [(id_, branch.url) for id_, branch in zip(calls.ids, calls.branches)]
    [('01-01', 'http://b/1'), ('01-02', 'http://b/2'), ('02', 'http://b/3')]
    """
    if not fans_out(branches):
        return None
    calls: list[Branch] = []
    ids: list[str] = []
    for number, branch in enumerate(branches, 1):
        subscribers = branch.subscribers
        if subscribers is None:
            calls.append(branch)
            ids.append(f"{number:02d}")
            continue
        calls += [Branch(url, branch.payload) for url in subscribers]
        ids += [f"{number:02d}"] if len(subscribers) == 1 else subscriber_ids(number, len(subscribers))
    return Expansion(tuple(calls), tuple(ids))


def subscriber_ids(number: int, count: int) -> list[str]:
    """Return the ids of several calls that branch `number` (from 1) is made of.

    >>> subscriber_ids(2, 2)
    ['02-01', '02-02']
    """
    return [f"{number:02d}-{member:02d}" for member in range(1, count + 1)]


def late_id(branch_id: str, url: str) -> str:
    """Return the id of a late subscriber's call.

    The topic had no subscriber when its message was decided. The id comes from the address, not from its position: it
    stays when others come and go before all have succeeded. The receiver's barrier knows the call by it: two calls
    with one id at one receiver would take effect once, so the id has 64 bits.

    >>> late_id("02", "http://b/in")
    '02-522f5e52ac6cb823'
    """
    return f"{branch_id}-{blake2b(url.encode(), digest_size=8).hexdigest()}"


def validate_topic(name: str, field: str = "topic") -> str:
    """Return `name` if a topic may have it; a refusal names `field`.

    Raises:
        InvalidRequest: it is empty, or has control characters. LimitExceeded: it is too long.

    >>> validate_topic("rates/eur")
    'rates/eur'
    """
    if not name:
        raise InvalidRequest(f"{field}: the topic's name is empty.")
    if _UNPRINTABLE.search(name):
        raise InvalidRequest(f"{field}: the topic's name {name[:45]!r} has control characters.")
    require(TOPIC_BYTES_MAX, len(name.encode()))
    return name
