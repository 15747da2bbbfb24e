"""Every change of topics: subscribe, unsubscribe, delete.

Promise: a change is durable before its reply, compared and set against all others on every node, never lost to another
one, and known here at once. A refusal has dtm's text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from twophase.coordinator.observer import Observer
from twophase.coordinator.topics import Topics
from twophase.core.address import refused_address, why_no_scheme, why_reserved
from twophase.core.audit_log import NOBODY, Actor, AuditEntry
from twophase.core.errors import InvalidRequest, Overloaded, StoreUnavailable, TopicRefused
from twophase.core.hooks import Chance
from twophase.core.limits import REMARK_BYTES_MAX, SUBSCRIBERS_MAX, TOPICS_MAX, URL_BYTES_MAX, require
from twophase.core.topic import validate_topic
from twophase.stores.base import Store
from twophase.stores.rows import Subscriber, Topic

_TRIES_MAX: Final = 30
"""Attempts at one change; each that fails lost to a change of another node."""
_SLASHES_OF_A_METHOD: Final = 2
_PAUSE_S: Final = 0.002
_PAUSE_DOUBLED_MAX: Final = 5

NewSubscribers = Callable[[Topic | None], Sequence[Subscriber] | None]
"""Maps a topic, or None, to its new subscribers; None removes it."""


class ChangeableTopics(Topics):
    """A coordinator's topics, with their changes.

    Arguments:
        store, interval_ms, observer: as for `Topics`.
        chance: spreads nodes that change topics at the same moment.
        check_address: the reason why an address cannot be called; None when it can.
    """

    def __init__(
        self,
        store: Store,
        interval_ms: int,
        chance: Chance,
        observer: Observer,
        check_address: Callable[[str], str | None],
    ) -> None:
        super().__init__(store, interval_ms, observer)
        self._chance = chance
        self._check_address = check_address
        self._changing: asyncio.Task[None] | None = None

    async def subscribe(self, name: str, url: str, remark: str = "", actor: Actor = NOBODY) -> None:
        """Call `url` for every message to the topic from now on.

        A topic is made by its first subscriber. `actor`: the client, for the audit log.

        Raises:
            TopicRefused: a name or address is missing, or it is subscribed already.
            InvalidRequest, LimitExceeded: an address that cannot be called, or too many.
            Overloaded: other nodes were faster, again and again. StoreError: as it is.
        """
        _require_both(name, url)
        validate_topic(name)
        require(URL_BYTES_MAX, len(url.encode()))
        require(REMARK_BYTES_MAX, len(remark.encode()))
        if not remark.isprintable():
            raise InvalidRequest("remark: it has a character that is not printable, which a terminal might obey.")
        why_not = self._check_address(url if "://" in url else f"grpc://{url}")
        if why_not and "://" not in url and url.count("/") < _SLASHES_OF_A_METHOD:
            why_not = f"{why_no_scheme(url)}, or host:port/package.Service/Method for gRPC."
        why_not = why_not or why_reserved(url)
        if why_not:
            raise refused_address("url: ", why_not)
        subscriber = Subscriber(url, remark)

        def added(known: Topic | None) -> Sequence[Subscriber]:
            if known is None:
                require(TOPICS_MAX, len(self._now.by_name) + 1)
                return (subscriber,)
            if any(one.url == url for one in known.subscribers):
                raise TopicRefused("this url exists")
            require(SUBSCRIBERS_MAX, len(known.subscribers) + 1)
            return (*known.subscribers, subscriber)

        await self._change(name, added, "subscribe", actor)

    async def unsubscribe(self, name: str, url: str, actor: Actor = NOBODY) -> None:
        """Call `url` no more for new messages to the topic.

        The topic stays, also without subscribers. `actor`: as `subscribe`.

        Raises:
            TopicRefused: there is no such topic, or `url` is not subscribed. Overloaded, StoreError: as `subscribe`.
        """
        _require_both(name, url)

        def without(known: Topic | None) -> Sequence[Subscriber]:
            if known is None:
                raise TopicRefused("no such a topic")
            if not known.subscribers:
                raise TopicRefused("this topic is empty")
            left = tuple([subscriber for subscriber in known.subscribers if subscriber.url != url])
            if len(left) == len(known.subscribers):
                raise TopicRefused("no such an url ")  # dtm's text, with its blank
            return left

        await self._change(name, without, "unsubscribe", actor)

    async def delete(self, name: str, actor: Actor = NOBODY) -> None:
        """Remove a topic with its subscribers. `actor`: as `subscribe`.

        Raises:
            TopicRefused: there is no such topic. Overloaded, StoreError: as `subscribe`.
        """

        def without_subscribers(known: Topic | None) -> None:
            if known is None:
                raise TopicRefused("storage: NotFound")

        await self._change(name, without_subscribers, "delete-topic", actor)

    async def _change(self, name: str, change: NewSubscribers, act: str, actor: Actor) -> None:
        """Change the present topic when its turn has come.

        A caller that goes before that has changed nothing. A change that has begun is finished without its caller: what
        is stored is known here.
        """
        await self._store_is_asked.acquire()
        self._changing = asyncio.create_task(self._change_now(name, change, act, actor))
        self._changing.add_done_callback(self._changed)
        await asyncio.shield(self._changing)

    def _changed(self, changing: asyncio.Task[None]) -> None:
        """Let the next change begin.

        A refusal is taken note of here, because its caller may have gone.
        """
        self._store_is_asked.release()
        if not changing.cancelled():
            changing.exception()

    async def _change_now(self, name: str, change: NewSubscribers, act: str, actor: Actor) -> None:
        """Change the present topic; again when another change came in between.

        Each try starts from the topic as it is then.
        """
        lost: StoreUnavailable | None = None
        for tries in range(_TRIES_MAX):
            known = (await self._read()).by_name.get(name)
            try:
                changed = change(known)
            except TopicRefused:
                if lost is not None:
                    return  # the topic has changed as wanted: an answer was lost, the change was not
                raise
            before = None if known is None else known.subscribers
            entry = AuditEntry(actor.who, actor.peer, act, name, before=_listed(before), after=_listed(changed))
            try:
                done = await self._store.change_topic(self._now.revision, name, changed, entry)
            except StoreUnavailable as error:
                done, lost = False, error
            if done:
                await self._read()
                return
            await asyncio.sleep(self._chance() * _PAUSE_S * 2 ** min(tries, _PAUSE_DOUBLED_MAX))
        raise lost or Overloaded("other nodes change topics at this moment; nothing was changed.")


def _require_both(name: str, url: str) -> None:
    if not name:
        raise TopicRefused("empty topic")
    if not url:
        raise TopicRefused("empty url")


def _listed(subscribers: Sequence[Subscriber] | None) -> str:
    """Return the addresses of a topic for the audit log; empty for no topic."""
    return "" if subscribers is None else f"[{', '.join([one.url for one in subscribers])}]"
