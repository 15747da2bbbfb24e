"""The contract of queues in memory: what a wire needs, and nothing is kept.

For tests of a wire alone; the engine has its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from twophase.coordinator.queues import (
    Client,
    Decision,
    Delivered,
    GroupInfo,
    Question,
    QueueMessage,
    Sent,
    Servers,
    TopicInfo,
)
from twophase.coordinator.state.active_message import Owner
from twophase.core.errors import (
    ContraryDecision,
    QueueNotFound,
    ReceiptInvalid,
    ReceiptStale,
    StateConflict,
    TwophaseError,
    UnknownMessage,
    WrongMessageKind,
)
from twophase.core.queue_message import DEAD_LETTERS, full_name, gid_of

KINDS = frozenset({"normal", "fifo", "delay", "transaction"})


@dataclass
class _Half:
    message: QueueMessage
    producers: str
    client_id: str
    due_s: float
    decision: Decision | None = None
    asked: int = 0


@dataclass
class _Place:
    """A message in a queue, and what a group does with it."""

    message: QueueMessage
    offset: int
    attempts: dict[str, int] = field(default_factory=dict)
    visible_s: dict[str, float] = field(default_factory=dict)
    handles: dict[str, str] = field(default_factory=dict)
    renewed: dict[str, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)


class MemoryQueues:
    """Implements `QueueApi`; its time is the event loop's.

    Arguments:
        check_s: pause before the first question about a half message, and after an answer.
        answer_s: time for an answer.
        attempts_max: deliveries to a group, before a message is a dead letter.
    """

    def __init__(self, *, check_s: float = 0.1, answer_s: float = 1.0, attempts_max: int = 17) -> None:
        self.kinds: dict[str, frozenset[str]] = {}
        self.makes = True
        self.nodes = Servers(None)
        self.announced: dict[str, str] = {}
        self.incarnation: int | None = None
        self.attempts_max = attempts_max
        self.clients: list[Client] = []
        self.halves: dict[str, _Half] = {}
        self.owners: list[Owner | None] = []
        self._check_s = check_s
        self._answer_s = answer_s
        self._queues: dict[str, list[_Place]] = {}
        self._sent: dict[str, Sent] = {}
        self._delayed: dict[str, asyncio.TimerHandle] = {}
        self._grown = asyncio.Condition()
        self._numbers = itertools.count(1)
        self._checking = asyncio.ensure_future(self._check())

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def stop(self) -> None:
        """Ask no more."""
        self._checking.cancel()
        await asyncio.wait([self._checking])
        for timer in self._delayed.values():
            timer.cancel()

    def places(self, topic: str) -> list[str]:
        """Return the bodies in a topic's queue."""
        return [place.message.body.decode() for place in self._queues.get(topic, [])]

    async def topic(self, namespace: str, name: str, caller: Owner | None = None, peer: str = "") -> TopicInfo:
        full = full_name(namespace, name)
        if full not in self.kinds:
            if not self.makes:
                raise QueueNotFound
            self.kinds[full] = KINDS
        return TopicInfo(name, namespace, 1, self.kinds[full])

    async def group(self, namespace: str, name: str, caller: Owner | None = None, peer: str = "") -> GroupInfo:
        if not self.makes:
            raise QueueNotFound
        return GroupInfo(name, namespace, self.attempts_max, (1_000, 5_000))

    async def servers(self, namespace: str, topic: str) -> Servers:
        assert isinstance(namespace, str), topic
        return self.nodes

    async def announce(self, addresses: Mapping[str, str]) -> int | None:
        self.announced.update(addresses)
        return self.incarnation

    async def http_urls(self) -> list[str]:
        return []

    async def send(
        self, messages: Sequence[QueueMessage], caller: Owner | None, peer: str = ""
    ) -> list[Sent | TwophaseError]:
        return [await self._send(message, caller) for message in messages]

    async def _send(self, message: QueueMessage, caller: Owner | None) -> Sent | TwophaseError:
        self.owners.append(caller)
        if message.kind not in (await self.topic(message.namespace, message.topic)).kinds:
            return WrongMessageKind()
        gid = gid_of(message.namespace, message.topic, message.message_id)
        if gid not in self._sent:
            late_ms = message.deliver_at_ms
            if late_ms:
                self._sent[gid] = Sent(0, -1, gid)
                wait_s = max(0.0, late_ms / 1000 - time.time())
                self._delayed[gid] = asyncio.get_running_loop().call_later(wait_s, self._append, gid, message)
            else:
                self._append(gid, message)
        return self._sent[gid]

    def _append(self, gid: str, message: QueueMessage) -> None:
        self._delayed.pop(gid, None)
        queue = self._queues.setdefault(full_name(message.namespace, message.topic), [])
        queue.append(_Place(message, len(queue)))
        self._sent[gid] = Sent(0, len(queue) - 1, gid)
        self._notify()

    def _notify(self) -> None:
        async def notify() -> None:
            async with self._grown:
                self._grown.notify_all()

        task = asyncio.ensure_future(notify())
        task.add_done_callback(lambda _: None)

    async def half(
        self,
        message: QueueMessage,
        *,
        producers: str,
        client_id: str,
        check_after_ms: int | None,
        caller: Owner | None,
        peer: str = "",
    ) -> str:
        self.owners.append(caller)
        if message.kind not in (await self.topic(message.namespace, message.topic)).kinds:
            raise WrongMessageKind
        gid = gid_of(message.namespace, message.topic, message.message_id)
        after_s = self._check_s if check_after_ms is None else check_after_ms / 1000
        self.halves.setdefault(gid, _Half(message, producers, client_id, self._now_s() + after_s))
        return gid

    async def end(
        self,
        transaction_id: str,
        decision: Decision,
        *,
        checked: bool,
        client_id: str,
        caller: Owner | None,
        topic: tuple[str, str] | None = None,
    ) -> None:
        half = self.halves.get(transaction_id)
        if half is None or topic not in {None, (half.message.namespace, half.message.topic)}:
            raise UnknownMessage
        if decision is Decision.UNKNOWN:
            if checked:
                half.asked += 1
                half.due_s = self._now_s() + self._check_s
            return
        if half.decision is None:
            half.decision = decision
            if decision is Decision.COMMIT:
                self._append(transaction_id, half.message)
        elif half.decision is not decision:
            raise ContraryDecision

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self._check_s / 4)
            for gid, half in self.halves.items():
                if half.decision is None and half.due_s <= self._now_s() and self._ask(gid, half):
                    half.due_s = self._now_s() + self._answer_s

    def _ask(self, gid: str, half: _Half) -> bool:
        able = [client for client in self.clients if half.producers in client.producers]
        able.sort(key=lambda client: client.client_id != half.client_id)
        question = Question(half.message, gid, half.asked)
        return any(client.ask(question) for client in able)

    async def receive(
        self,
        namespace: str,
        group: str,
        topic: str,
        *,
        expression: str,
        limit: int,
        invisible_ms: int,
        wait_ms: int,
        client_id: str,
        auto_renew: bool,
        bytes_max: int | None = None,
        caller: Owner | None = None,
        peer: str = "",
    ) -> list[Delivered]:
        tags = {tag.strip() for tag in expression.split("||")}
        ends_s = self._now_s() + wait_ms / 1000
        while True:
            found: list[Delivered] = []
            for place in self._queues.get(full_name(namespace, topic), []):
                if len(found) < limit and group not in place.done and place.visible_s.get(group, 0.0) <= self._now_s():
                    if "*" not in tags and place.message.tag not in tags:
                        place.done.add(group)
                    elif not self._is_blocked(place, namespace, topic, group):
                        found.append(self._take(place, group, invisible_ms, client_id, auto_renew=auto_renew))
            left_s = ends_s - self._now_s()
            if found or left_s <= 0:
                return [one for one in found if one.handle]
            async with self._grown:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, 0.05)):
                        await self._grown.wait()

    def _is_blocked(self, place: _Place, namespace: str, topic: str, group: str) -> bool:
        before = self._queues[full_name(namespace, topic)][: place.offset]
        name = place.message.message_group
        return bool(name) and any(one.message.message_group == name and group not in one.done for one in before)

    def _take(self, place: _Place, group: str, invisible_ms: int, client_id: str, *, auto_renew: bool) -> Delivered:
        place.attempts[group] = place.attempts.get(group, 0) + 1
        message = place.message
        handle = f"{place.offset}-{next(self._numbers)}"
        place.handles[group] = handle
        place.visible_s[group] = float("inf") if auto_renew else self._now_s() + invisible_ms / 1000
        if auto_renew:
            place.renewed[group] = client_id
        if place.attempts[group] > self.attempts_max:
            self._bury(place, group)
            handle = ""
        gid = gid_of(message.namespace, message.topic, message.message_id)
        return Delivered(message, 0, place.offset, handle, place.attempts[group], 1, invisible_ms, gid)

    def _bury(self, place: _Place, group: str) -> None:
        place.done.add(group)
        message = place.message
        full = full_name(message.namespace, f"{DEAD_LETTERS}{group}")
        self.kinds[full] = KINDS
        queue = self._queues.setdefault(full, [])
        queue.append(_Place(message, len(queue)))
        self._notify()

    def _held(self, namespace: str, group: str, topic: str, handle: str) -> _Place:
        offset, _, number = handle.partition("-")
        queue = self._queues.get(full_name(namespace, topic), [])
        if not offset.isdigit() or not number.isdigit() or int(offset) >= len(queue):
            raise ReceiptInvalid
        place = queue[int(offset)]
        if place.handles.get(group) != handle or group in place.done:
            raise ReceiptStale
        return place

    async def ack(self, namespace: str, group: str, topic: str, handle: str) -> None:
        self._held(namespace, group, topic, handle).done.add(group)
        self._notify()

    async def extend(
        self, namespace: str, group: str, topic: str, handle: str, invisible_ms: int, *, rests: bool = False
    ) -> str:
        place = self._held(namespace, group, topic, handle)
        place.visible_s[group] = self._now_s() + invisible_ms / 1000
        place.handles[group] = f"{place.offset}-{next(self._numbers)}"
        place.renewed.pop(group, None)
        return place.handles[group]

    async def give_back(self, namespace: str, group: str, topic: str, handle: str) -> None:
        place = self._held(namespace, group, topic, handle)
        place.attempts[group] -= 1
        place.visible_s[group] = 0.0
        place.handles.pop(group)
        self._notify()

    async def dead_letter(self, namespace: str, group: str, topic: str, handle: str, reason: str = "") -> None:
        self._bury(self._held(namespace, group, topic, handle), group)

    async def recall(self, namespace: str, topic: str, transaction_id: str, caller: Owner | None) -> None:
        timer = self._delayed.pop(transaction_id, None)
        if timer is None:
            raise StateConflict if transaction_id in self._sent else UnknownMessage
        timer.cancel()

    def attach(self, client: Client) -> Callable[[], None]:
        if client not in self.clients:
            self.clients.append(client)

        def detach() -> None:
            if client in self.clients:
                self.clients.remove(client)
            for queue in self._queues.values():
                for place in queue:
                    for group, client_id in list(place.renewed.items()):
                        if client_id == client.client_id:
                            del place.renewed[group]
                            place.visible_s[group] = 0.0
            self._notify()

        return detach
