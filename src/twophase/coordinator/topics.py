"""Topics in this node's memory: the subscribers of `topic://name`.

`topic_changes` changes them. Promise: a message goes to the subscribers its topic had at one moment, at most
`topics_interval_ms` before it came (at once on the node that changed them). Memory holds one revision as a whole, never
a mixture; it is read again when the store has another one. A node that could not read them for `AGE_MS_MAX` more
accepts no new message to a topic until it has.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from twophase.coordinator.background import Background, rest
from twophase.coordinator.observer import Observer
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core.address import TOPIC_PREFIX
from twophase.core.errors import InvalidRequest, StoreUnavailable, TopicNotFound
from twophase.core.headers import why_no_metadata
from twophase.core.limits import CALLS_MAX, require
from twophase.core.message import Branch, Message, scheme_of
from twophase.core.topic import topic_in
from twophase.stores.base import Store
from twophase.stores.rows import Topics as AllTopics

AGE_MS_MAX: Final = 5_000
"""Age beyond the interval after which topics are too old.

A look takes its time, and after an outage the next one comes an interval later.
"""


class Topics:
    """A coordinator's topics.

    Arguments:
        store: keeps them.
        interval_ms: age bound of the topics in memory, where other nodes may change them too.
        observer: notified when the store cannot be asked.
    """

    def __init__(self, store: Store, interval_ms: int, observer: Observer) -> None:
        self._store = store
        self._interval_s = interval_ms / 1000
        self._observer = observer
        self._now = AllTopics(-1, {})
        self._urls: dict[str, tuple[str, ...]] = {}
        self._as_of_s = -math.inf
        self._store_is_asked = asyncio.Lock()
        self._woken = asyncio.Event()
        self._background = Background("twophase topics")

    async def start(self) -> None:
        """Read all topics; then follow the store, where others may change them.

        Raises:
            StoreError: they cannot be read.
        """
        await self.refresh()
        if self._store.shared:
            self._background.start(self._loop())

    async def stop(self) -> None:
        """Follow the store no more. Safe to call twice."""
        await self._background.stop()

    def wake(self) -> None:
        """Look at the store now."""
        self._woken.set()

    async def _loop(self) -> None:
        while True:
            await rest(self._interval_s, self._woken)
            self._woken.clear()
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 -- whatever it is, the next round asks again
                self._observer.topics_failed(as_store_error(error).code, log_text(error))

    async def refresh(self) -> AllTopics:
        """Return all topics as the store has them now, and keep them in memory.

        Raises:
            StoreError: they cannot be read.
        """
        async with self._store_is_asked:
            return await self._read()

    async def _read(self) -> AllTopics:
        asked_s = time.monotonic()
        found = await self._store.topics(self._now.revision)
        if found is not None:
            self._now = found
            self._urls = {
                topic.name: tuple([subscriber.url for subscriber in topic.subscribers])
                for topic in found.by_name.values()
            }
        self._as_of_s = asked_s
        return self._now

    def expand(self, message: Message) -> Message:
        """Return a new message with the subscribers of its topics in its branches.

        Raises:
            TopicNotFound: a topic has no subscriber. LimitExceeded: they are too many together.
            InvalidRequest: a subscriber is called by gRPC, which cannot carry its gid or a header.
            StoreUnavailable: who has subscribed elsewhere since is not known.
        """
        branches = tuple([self._expanded(branch, message.protocol) for branch in message.branches])
        for branch, sent in zip(branches, message.branches, strict=True):
            if sent.subscribers is None and branch.url.startswith(TOPIC_PREFIX):
                self._require_fresh(message.gid)
                if branch.subscribers is None:
                    remedy = f"Subscribe an address to {branch.url[:200]} first; nothing was stored."
                    raise TopicNotFound(gid=message.gid, remedy=remedy)
        require(CALLS_MAX, _calls(branches), gid=message.gid)
        if message.options.headers or not message.gid.isascii():
            _require_metadata(message, branches)
        return msgspec.structs.replace(message, branches=branches)

    def can_expand(self, message: Message) -> bool:
        """Return True when `expand` would accept it."""
        try:
            self.expand(message)
        except (InvalidRequest, StoreUnavailable):
            return False
        return True

    def _require_fresh(self, gid: str) -> None:
        age_s = time.monotonic() - self._as_of_s
        if self._background.runs and age_s > self._interval_s + AGE_MS_MAX / 1000:
            raise StoreUnavailable(f"topics were last read {age_s:.0f} s ago; nothing was stored.", gid=gid)

    def expand_late(self, message: Message) -> Message:
        """Return a decided message with the subscribers of its late branches' topics.

        They are included as far as possible. Its local transaction is committed, so nothing is refused any more: a
        topic without subscribers, or with more than there is room for, stays one call, to those that have subscribed by
        then (`subscribers`).
        """
        room = CALLS_MAX.value - _calls(message.branches)
        branches: list[Branch] = []
        for branch in message.branches:
            expanded = self._expanded(branch, message.protocol)
            more = _calls((expanded,)) - 1
            if expanded is not branch and more <= room:
                room -= more
                branches.append(expanded)
            else:
                branches.append(branch)
        return msgspec.structs.replace(message, branches=tuple(branches))

    def subscribers(self, url: str, protocol: str) -> tuple[str, ...]:
        """Return the addresses behind `topic://name` for a message of `protocol`.

        It is empty when the topic has no subscriber.
        """
        urls = self._urls.get(topic_in(url), ())
        if protocol == "grpc":
            return urls
        # dtm's gRPC clients subscribe host:port/package.Service/Method, which only a message of theirs understands.
        return tuple([url if scheme_of(url, protocol) else f"grpc://{url}" for url in urls])

    def _expanded(self, branch: Branch, protocol: str) -> Branch:
        if branch.subscribers is not None or not branch.url.startswith(TOPIC_PREFIX):
            return branch  # a branch that was expanded elsewhere stays unchanged
        urls = self.subscribers(branch.url, protocol)
        return Branch(branch.url, branch.payload, urls) if urls else branch


def _require_metadata(message: Message, branches: Sequence[Branch]) -> None:
    """Refuse a subscriber called by gRPC when gid or headers cannot be metadata.

    The server's decoder saw only the topic's name, and could not check that.
    """
    for branch in branches:
        schemes = {scheme_of(url, message.protocol) for url in branch.subscribers or ()}
        why_not = why_no_metadata(message.gid, message.options.headers) if schemes & {"grpc", "grpcs"} else ""
        if why_not:
            raise InvalidRequest(f"{why_not} A subscriber of {branch.url[:200]} is called so.", gid=message.gid)


def _calls(branches: Sequence[Branch]) -> int:
    return sum([1 if branch.subscribers is None else len(branch.subscribers) for branch in branches])
