"""Reasons that keep a group from one message of a queue.

The condition is read from the group's cursor where this node serves the group, and from the store otherwise.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twophase.coordinator.queues.cursor import Cursor, done_of
from twophase.coordinator.queues.definitions import Definitions
from twophase.coordinator.queues.letters import letter_of, sent_again_as
from twophase.coordinator.queues.repeats import gids_of_letter
from twophase.coordinator.queues.serving import Serving
from twophase.coordinator.queues.subscriptions import ASKED_MS
from twophase.coordinator.state.appends import appends_of
from twophase.coordinator.view import MessageView
from twophase.core.hooks import Clock
from twophase.core.queue_message import letters_of, message_of
from twophase.core.queue_operating import SENT_AGAIN, ShownPlace, ShownWait
from twophase.stores.base import Store
from twophase.stores.queue_rows import Place, Progress

_GROUPS_MAX: Final = 100
"""The most groups of one answer."""
_MESSAGE_GROUP: Final = "waits behind its message group"


class Waits:
    """See the module.

    Arguments:
        store, clock, definitions, serving: of the node.
    """

    def __init__(self, store: Store, clock: Clock, definitions: Definitions, serving: Serving) -> None:
        self._store = store
        self._clock = clock
        self._definitions = definitions
        self._serving = serving

    async def places(self, view: MessageView) -> list[ShownPlace]:
        """Return where the branches of a message are that go to queues."""
        places: list[ShownPlace] = []
        for one in appends_of(view.message, {}):
            place = await self._store.queue_place(view.message.gid, one.branch)
            if place is not None:
                id_ = view.message.branch_id(one.branch)
                groups = [await self._buried(group, place, view, one.branch) for group in await self._groups(place)]
                places.append(ShownPlace(id_, place.topic, place.queue, place.number, groups))
        return places

    async def _buried(self, shown: ShownWait, place: Place, view: MessageView, branch: int) -> ShownWait:
        """Return the dead letter's situation for a message that was given up.

        One that was sent again stays done; the words name the message that it has become.
        """
        if shown.situation != "done":
            return shown
        sent, gid = view.message.branches[branch], view.message.gid
        message = message_of(sent.url, sent.payload)
        if not message.message_id:
            message = msgspec.structs.replace(message, message_id=gid)
        namespace, _, group = shown.group.rpartition("/")
        letter = letter_of(message, namespace, group)
        sent_again = ""
        for one in gids_of_letter(letter, gid, place.topic, place.queue, place.number):
            found = await self._store.queue_place(one, 0)
            if found is None:
                break  # a later one follows only a letter that is there
            if found.topic == letters_of(shown.group):
                sent_again = sent_again_as(letter, one)
                if not await self._store.get(sent_again):
                    return ShownWait(shown.group, "dead letter", "it is among the group's dead letters")
        return ShownWait(shown.group, "done", f"{SENT_AGAIN}twophase explain {sent_again}") if sent_again else shown

    async def _groups(self, place: Place) -> list[ShownWait]:
        groups = {one.group for one in await self._store.queue_readers(place.topic)}
        groups |= {group for group, _ in self._serving.served(topic=place.topic)}
        return [await self._wait(group, place) for group in sorted(groups)[:_GROUPS_MAX]]

    async def _wait(self, group: str, place: Place) -> ShownWait:
        subscription = self._serving.served(group, place.topic).get((group, place.topic))
        cursor = None if subscription is None else subscription.cursors.get(place.queue)
        if subscription is None or cursor is None:
            stored = [one for one in await self._store.queue_progress(group, place.topic) if one.queue == place.queue]
            done = done_of(stored[0] if stored else Progress(group, place.topic, place.queue, 0, b""))
            if place.number in done:
                return ShownWait(group, "done", "it is done")
            behind = await self._behind(place, done.missing(done.start, place.number))
            return ShownWait(group, "not asked for", f"no consumer of the group asks this node for messages; {behind}")
        if place.number in cursor.done:
            return ShownWait(group, "done", "it is done")
        silent_ms = self._clock.now_ms() - self._serving.asked_ms(group, place.topic)
        situation, why = self._known(group, cursor, place.number)
        if situation == "waits" and silent_ms >= ASKED_MS:
            return ShownWait(group, "not asked for", f"no consumer has asked for {silent_ms // 1000} s; {why}")
        return ShownWait(group, situation, why)

    async def _behind(self, place: Place, missing: int) -> str:
        first = await self._store.queue_first(place.topic, place.queue, 0)
        before = min(missing, place.number - (place.number if first is None else first[0]))
        return f"{max(0, before)} messages before it are not done" if before > 0 else "it is the next one"

    def _known(self, group: str, cursor: Cursor, number: int) -> tuple[str, str]:
        one = cursor.undone.get(number)
        if one is None:
            before = cursor.done.missing(cursor.done.start, number)
            return "waits", f"the group is behind: {before} messages before it are not done"
        attempts_max = self._definitions.group_settings(group).attempts_max
        limit = f" of {attempts_max}" if attempts_max else ""
        given = f"it was given out {one.attempts}{limit} times"
        left_s = max(0, one.until_ms - self._clock.now_ms()) // 1000
        if one.until_ms and one.client_id:
            has = f"the consumer {one.client_id!r} has it as long as it is connected, for {left_s} s at most"
            return "in progress", f"{has}; {given}"
        if one.until_ms:
            return "in progress", f"a consumer has it, or it rests before its next delivery, for {left_s} s; {given}"
        first = cursor.first_of(one.group)
        if first not in {None, number}:
            return _MESSAGE_GROUP, f"number {first} of its message group {one.group!r} is not done; {given}"
        return "waits", f"it waits for a consumer; {given}"
