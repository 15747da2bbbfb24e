"""Dead letters of groups: shown, and sent to their group again.

A redriven letter is a new message of the topic from which it came, for its group alone. Its gid comes from the
letter's, so a repeated redrive sends nothing twice, and the letter stays until cleaning removes it. Promise: each
message that is sent so is one commit with the act's row in the audit log, which names what was edited and never shows
a body.

Letters go to one queue. An earlier version let an operator give their topic several; a letter in another one than the
first has a number of its own, too.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from twophase.coordinator.operator import Act
from twophase.coordinator.queues.definitions import QUEUES_MAX
from twophase.coordinator.queues.lags import Allowed
from twophase.coordinator.queues.repeats import REASON
from twophase.coordinator.queues.subscription import held_of
from twophase.coordinator.state.active_message import Audited, OnReply, Trigger
from twophase.coordinator.state.acts import Acts
from twophase.core.audit_log import AuditEntry
from twophase.core.errors import ContentConflict, InvalidRequest, StateConflict
from twophase.core.queue_message import QueueMessage, full_name, gid_of, letters_of, require_full_name
from twophase.core.queue_operating import (
    RedriveLetters,
    RedrivenLetter,
    RedrivenLetters,
    ShownLetter,
)
from twophase.stores.base import Store
from twophase.stores.queue_rows import Entry

ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
ORIGIN_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
LETTERS_MAX: Final = 100
"""The most letters of one page, and of one redrive."""
_DIGEST_CHARACTERS: Final = 16
_NUMBERS_END: Final = 2**62
_OF_QUEUE: Final = 2**40
"""The numbers of letters in one queue."""
_PROPERTIES_MAX: Final = 128
_ATTRIBUTES_MAX: Final = 16 * 1024


class Edit(msgspec.Struct, frozen=True):
    """The changes that an operator wants in a letter.

    Arguments:
        topic: where it goes, with its namespace; empty for where it comes from.
        body, tag: None leaves them as they are.
        set_properties, remove_properties: by name.
    """

    topic: str = ""
    body: bytes | None = None
    tag: str | None = None
    set_properties: dict[str, str] = {}
    remove_properties: frozenset[str] = frozenset()

    def require_possible(self) -> None:
        """Refuse an edit that no message could have.

        Raises:
            InvalidRequest: the topic's name, too many properties, or too long ones.
        """
        if self.topic:
            require_full_name(self.topic)
        texts = [self.tag or "", *self.set_properties, *self.set_properties.values()]
        if len(self.set_properties) > _PROPERTIES_MAX or sum(len(text) for text in texts) > _ATTRIBUTES_MAX:
            raise InvalidRequest(
                f"set_properties: at most {_PROPERTIES_MAX}, with the tag at most {_ATTRIBUTES_MAX} characters."
            )


class Append(Protocol):
    """Submits a message of a queue, as `Queues.append` does."""

    def __call__(
        self, message: QueueMessage, gid: str, on_reply: OnReply, caller: None, audited: Audited, /
    ) -> Trigger: ...


class Letters:
    """See the module.

    Arguments:
        store: of the node.
        append: submits a message.
        acts: performs an act with its row in the audit log.
    """

    def __init__(self, store: Store, append: Append, acts: Acts) -> None:
        self._store = store
        self._append = append
        self._acts = acts

    async def page(
        self, group: str, position: int, limit: int, allowed: Allowed, *, with_bodies: bool
    ) -> tuple[list[ShownLetter], int]:
        """Return a group's dead letters from a number on, and the next page's number.

        That number is 0 at the end. `allowed`: returns True for the topics whose messages the caller may see.
        """
        topic = letters_of(group)
        begin = await self._next(topic, position)
        if begin is None:
            return [], 0
        queue, least = divmod(begin, _OF_QUEUE)
        entries = await self._store.queue_page(topic, queue, least, min(limit, LETTERS_MAX))
        letters = [
            await self._shown(entry, queue * _OF_QUEUE + entry.number, with_bodies=with_bodies)
            for entry in entries
            if _is_shown(entry, group, allowed)
        ]
        following = await self._next(topic, queue * _OF_QUEUE + entries[-1].number + 1) if entries else None
        return letters, following or 0

    async def _next(self, topic: str, position: int) -> int | None:
        """Return the number of the first letter from a position on."""
        begin, least = divmod(position, _OF_QUEUE)
        for queue in sorted(await self._store.queue_ends(topic)):
            if queue >= begin:
                found = await self._store.queue_first(topic, queue, least if queue == begin else 0)
                if found is not None:
                    return queue * _OF_QUEUE + found[0]
        return None

    async def _shown(self, entry: Entry, number: int, *, with_bodies: bool) -> ShownLetter:
        message, topic = held_of(entry).message, _origin(held_of(entry).message)
        letter = ShownLetter(
            number,
            entry.gid,
            topic,
            message.message_id,
            entry.stored_ms,
            len(message.body),
            message.tag,
            list(message.keys),
            {name: value for name, value in message.properties if name not in {ORIGIN_TOPIC, ORIGIN_ID}},
            bool(topic) and await self._store.get(_gid(message, topic, entry)) is not None,
        )
        if not with_bodies:
            return letter
        try:
            return msgspec.structs.replace(letter, body=message.body.decode())
        except UnicodeDecodeError:
            return msgspec.structs.replace(letter, body_base64=b64encode(message.body).decode())

    async def redrive(
        self, group: str, asked: RedriveLetters, edit: Edit, act: Act, allowed: Allowed
    ) -> RedrivenLetters:
        """Send letters to their group again.

        Arguments:
            group: their group.
            asked: the letters; `edit` has what is to be changed in them.
            edit: the changes.
            act: who asks, and why.
            allowed: returns True for the topics that the caller may see, and to which it may send. A letter from
                another one is answered as an unknown one.

        Raises:
            InvalidRequest: no letter, too many, or a body for several.
        """
        numbers = list(dict.fromkeys(asked.numbers))
        if not 0 < len(numbers) <= LETTERS_MAX or min(numbers) < 0 or max(numbers) >= _NUMBERS_END:
            raise InvalidRequest(f"numbers: those of 1 to {LETTERS_MAX} letters are needed.")
        if edit.body is not None and len(numbers) > 1:
            raise InvalidRequest("body: one letter can have another body, and not several the same one.")
        edit.require_possible()
        results = []
        for number in numbers:
            for one in await self._found(group, number):
                if _is_shown(one, group, allowed):
                    sent = await self._redrive_one(group, number, one, edit, act, allowed, dry_run=asked.dry_run)
                    results.append(sent)
                    break
            else:
                results.append(RedrivenLetter(number, "", "", "refused", "there is no such letter"))
        return RedrivenLetters(group, results)

    async def _found(self, group: str, number: int) -> Sequence[Entry]:
        """Return the letter of a number, if there is one.

        A hundred of them, read together, could be gigabytes.
        """
        queue, at = divmod(number, _OF_QUEUE)
        return await self._store.queue_entries(letters_of(group), queue, [at]) if queue < QUEUES_MAX else ()

    async def _redrive_one(
        self, group: str, number: int, entry: Entry, edit: Edit, act: Act, allowed: Allowed, *, dry_run: bool
    ) -> RedrivenLetter:
        letter = held_of(entry).message
        topic = edit.topic or _origin(letter)
        if not topic:
            return RedrivenLetter(number, "", "", "refused", f"it has no property {ORIGIN_TOPIC}: name the topic")
        if not allowed(topic):
            return RedrivenLetter(number, "", topic, "refused", "the token's messages may not go to this topic")
        message, gid = _edited(letter, group, topic, edit), _gid(letter, topic, entry)
        if await self._store.get(gid) is not None:
            return RedrivenLetter(number, gid, topic, "sent before")
        if dry_run:
            return RedrivenLetter(number, gid, topic, "would be sent")
        reply = await self._acts.perform(
            _entry(act, group, number, entry, letter, message, gid),
            lambda on_reply, audited: _begin(self._append, message, gid, on_reply, audited),
        )
        if reply.error is None:
            return RedrivenLetter(number, gid, topic, "sent")
        if isinstance(reply.error, (StateConflict, ContentConflict)):
            return RedrivenLetter(number, gid, topic, "sent before")
        raise reply.error


def letter_of(message: QueueMessage, namespace: str, group: str, reason: str = "") -> QueueMessage:
    """Return the dead letter of a message that a group gives up.

    Every group may read it, also when the message was for one alone. A letter that its own group read and gives up
    keeps the origin that it has.

    Arguments:
        message: as it was given out.
        namespace, group: of the group.
        reason: why its consumer gives it up; empty for a message that was given out too often.

    >>> letter = letter_of(QueueMessage("orders", "", "7", b"{}", only_group="billing"), "", "billing", "no article")
    >>> letter.topic, letter.only_group, dict(letter.properties)["DLQ_ORIGIN_TOPIC"]
    ('%DLQ%billing', '', 'orders')
    >>> dict(letter_of(letter, "", "billing").properties)
    {'DLQ_ORIGIN_TOPIC': 'orders', 'DLQ_ORIGIN_MESSAGE_ID': '7'}
    """
    topic = letters_of(group)
    known = dict(message.properties)
    origin = {ORIGIN_TOPIC: message.topic, ORIGIN_ID: message.message_id}
    if message.topic == topic and ORIGIN_TOPIC in known:
        origin = {name: known[name] for name in origin if name in known}
    if reason:
        origin[REASON] = reason
    own = tuple(one for one in message.properties if one[0] not in {ORIGIN_TOPIC, ORIGIN_ID, REASON})
    return msgspec.structs.replace(
        message,
        topic=topic,
        namespace=namespace,
        kind="normal",
        message_group="",
        deliver_at_ms=0,
        properties=own + tuple(origin.items()),
        only_group="",
    )


def _begin(append: Append, message: QueueMessage, gid: str, on_reply: OnReply, audited: Audited) -> None:
    append(message, gid, on_reply, None, audited)


def _is_shown(entry: Entry, group: str, allowed: Allowed) -> bool:
    return allowed(_origin(held_of(entry).message) or letters_of(group))


def _origin(letter: QueueMessage) -> str:
    """Return the topic from which a letter comes, with its namespace.

    It is empty for a message that was sent here directly.
    """
    topic = dict(letter.properties).get(ORIGIN_TOPIC, "")
    return full_name(letter.namespace, topic) if topic else ""


def _gid(letter: QueueMessage, topic: str, entry: Entry) -> str:
    """Return the gid of a letter that is sent again.

    A message that was sent to the letters directly may have several entries there.
    """
    origin = f"{entry.gid}\0{entry.branch}" if entry.branch else entry.gid  # no gid has such a character
    return _gid_from(letter, topic, origin)


def _gid_from(letter: QueueMessage, topic: str, origin: str) -> str:
    namespace, _, name = topic.rpartition("/")
    return gid_of(namespace, name, letter.message_id, origin)


def sent_again_as(letter: QueueMessage, gid: str) -> str:
    """Return the gid that a letter has when it is sent again to where it comes from.

    `gid`: of the letter.
    """
    return _gid_from(letter, _origin(letter), gid)


def _edited(letter: QueueMessage, group: str, topic: str, edit: Edit) -> QueueMessage:
    namespace, _, name = topic.rpartition("/")
    full_name(namespace, name)
    gone = {ORIGIN_TOPIC, ORIGIN_ID, *edit.remove_properties, *edit.set_properties}
    properties = tuple(one for one in letter.properties if one[0] not in gone)
    return msgspec.structs.replace(
        letter,
        topic=name,
        namespace=namespace,
        body=letter.body if edit.body is None else edit.body,
        encoding=letter.encoding if edit.body is None else "identity",
        tag=letter.tag if edit.tag is None else edit.tag,
        properties=properties + tuple(edit.set_properties.items()),
        only_group=group,
    )


def _entry(
    act: Act, group: str, number: int, entry: Entry, letter: QueueMessage, message: QueueMessage, gid: str
) -> AuditEntry:
    """Return the act for the audit log: what was edited, by digests and names."""
    entered = act.entry("redrive-letter", entry.gid)
    edits = [f"letter {number} of {group} goes to {message.topic} as {gid}"]
    if message.body != letter.body:
        edits.append(f"body {_digest(letter.body)} replaced by {_digest(message.body)}")
    if message.tag != letter.tag:
        edits.append(f"tag {letter.tag!r} replaced by {message.tag!r}")
    before, after = dict(letter.properties), dict(message.properties)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changed = [name for name in changed if name not in {ORIGIN_TOPIC, ORIGIN_ID}]
    if changed:
        edits.append(f"properties changed: {', '.join(changed)}")
    reason = "; ".join([text for text in (entered.reason, *edits) if text])
    return msgspec.structs.replace(entered, reason=reason)


def _digest(body: bytes) -> str:
    """Return a body's size and the beginning of its SHA-256.

    >>> _digest(b"{}")
    '2 bytes, 44136fa355b3678a'
    """
    return f"{len(body)} bytes, {hashlib.sha256(body).hexdigest()[:_DIGEST_CHARACTERS]}"
