"""Another address for the calls or the check-back of a message that is not final.

An operator gives it.

Promise: a redirect changes the addresses of a message, and nothing else. Branches keep their ids and payloads, what has
succeeded stays so, and a repeated prepare or submit is compared with what the producer wrote: a redirected branch
keeps its `url` and is called at its one subscriber, which gives it the id it had. A check-back goes on asking the same
database, unless the new address itself names another.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twophase.core.address import TOPIC_PREFIX, with_identity
from twophase.core.errors import InvalidRequest, StateConflict
from twophase.core.message import Branch, Message, databases_asked
from twophase.core.queue_message import ANSWERS_NO_CHECK, QUEUE_PREFIX
from twophase.core.topic import subscriber_ids

CHECK_BACK_ID: Final = "00"
"""The branch id of a check-back, on the wire and on record."""
_SHOWN_MAX: Final = 200


class Redirection(msgspec.Struct, frozen=True):
    """An operator's request for another address.

    `to` replaces the whole address, or its beginning where one is given. `branch_id` names one call; `beginning` means
    every open call whose address begins so, with or without its scheme; neither means the only open call.
    `check` means the check address instead.
    """

    to: str
    branch_id: str = ""
    beginning: str = ""
    check: bool = False


class Move(msgspec.Struct, frozen=True):
    """One address replaced."""

    branch_id: str
    before: str
    after: str


def redirect(message: Message, done: int, redirection: Redirection) -> tuple[Message, tuple[Move, ...]]:
    """Return the message as an operator wants it called, and the changes.

    There are no changes when it is called there already.

    Arguments:
        message: as it stands.
        done: its calls that have succeeded, a bit each.
        redirection: the request.

    Raises:
        InvalidRequest: no open call is meant, or several where one address was given.
        StateConflict: the call that is named has succeeded.

    >>> sent = Message("g", (Branch("http://old/a"), Branch("http://old/b")))
    >>> [move.after for move in redirect(sent, 1, Redirection("http://new", beginning="http://old"))[1]]
    ['http://new/b']
    """
    if redirection.check:
        return _redirect_check(message, redirection)
    calls = _calls(message)
    chosen = _chosen(calls, done, redirection, message.gid)
    moves: list[Move] = []
    branches = list(message.branches)
    for number, index, call_id, before in chosen:
        after = _replaced(before, redirection)
        if before.startswith(QUEUE_PREFIX) or after.startswith(QUEUE_PREFIX):
            # Only the decision appends: elsewhere a queue is not called, and nothing would come of it.
            raise InvalidRequest("a branch of a queue is not redirected, and no branch to a queue.", gid=message.gid)
        if after != before:
            moves.append(Move(call_id, before, after))
            branches[number] = _called_at(branches[number], index, after)
    return msgspec.structs.replace(message, branches=tuple(branches)), tuple(moves)


def begins(url: str, beginning: str) -> bool:
    """Return True when an address begins so, up to the end of a part.

    The scheme may be left out.

    >>> begins("http://b:80/in", "b:80"), begins("http://b:8080/in", "http://b:80")
    (True, False)
    """
    return _rest(url, beginning) is not None


_Call = tuple[int, int, str, str]
"""The branch's number from 0, the call's place in it, its id, its address."""


def _calls(message: Message) -> list[_Call]:
    """Return the calls of a message in the order of the bits of `done`."""
    calls: list[_Call] = []
    for number, branch in enumerate(message.branches):
        urls = (branch.url,) if branch.subscribers is None else branch.subscribers
        ids = [message.branch_id(number)] if len(urls) == 1 else subscriber_ids(number + 1, len(urls))
        calls += [(number, index, id_, url) for index, (id_, url) in enumerate(zip(ids, urls, strict=True))]
    return calls


def _chosen(calls: list[_Call], done: int, redirection: Redirection, gid: str) -> list[_Call]:
    # What another coordinator has called has no address here, from the beginning.
    is_open = [bool(call[3]) and not done >> index & 1 for index, call in enumerate(calls)]
    left = [call for call, open_ in zip(calls, is_open, strict=True) if open_]
    if redirection.branch_id:
        named = [call for call in calls if call[2] == redirection.branch_id]
        if not named:
            ids = ", ".join(call[2] for call in calls)
            raise InvalidRequest(f"branch: there is no {redirection.branch_id[:45]!r}; there are {ids}.", gid=gid)
        if named[0] not in left:
            text = f"branch {redirection.branch_id} has succeeded, and is not called again."
            raise StateConflict(text, gid=gid, remedy="Redirect a branch that is open.")
        left = named
    if redirection.beginning:
        left = [call for call in left if begins(call[3], redirection.beginning)]
    if not left:
        where = f" goes to {redirection.beginning[:_SHOWN_MAX]}" if redirection.beginning else " is left"
        raise InvalidRequest(f"no open call{where}; nothing was changed.", gid=gid)
    if len(left) > 1 and not redirection.beginning:
        found = ", ".join(f"{call[2]} {call[3][:_SHOWN_MAX]}" for call in left[:5])
        raise InvalidRequest(f"branch: {len(left)} calls are open, name one: {found}.", gid=gid)
    return left


def _called_at(branch: Branch, index: int, url: str) -> Branch:
    if branch.subscribers is None:
        return Branch(branch.url, branch.payload, (url,))
    urls = (*branch.subscribers[:index], url, *branch.subscribers[index + 1 :])
    is_as_sent = urls == (branch.url,) and not branch.url.startswith(TOPIC_PREFIX)
    return Branch(branch.url, branch.payload, None if is_as_sent else urls)


def _redirect_check(message: Message, redirection: Redirection) -> tuple[Message, tuple[Move, ...]]:
    before = message.check_url
    if redirection.beginning and not begins(before, redirection.beginning):
        text = f"its producer is asked at {before[:_SHOWN_MAX] or 'no address'}; nothing was changed."
        raise InvalidRequest(text, gid=message.gid)
    after = _asking_as(before, _replaced(before, redirection))
    if after.startswith(QUEUE_PREFIX):
        raise InvalidRequest(f"to: {ANSWERS_NO_CHECK}.", gid=message.gid)
    if after == before:
        return message, ()
    prepared = message.prepared_check_url or before
    moved = msgspec.structs.replace(message, check_url=after, prepared_check_url="" if prepared == after else prepared)
    return moved, (Move(CHECK_BACK_ID, before, after),)


def _asking_as(before: str, after: str) -> str:
    """Return `after` with the database that `before` names, unless it names one."""
    named = databases_asked(before)
    if not named or databases_asked(after):
        return after
    return with_identity(after, named[0])


def _replaced(url: str, redirection: Redirection) -> str:
    rest = _rest(url, redirection.beginning) if redirection.beginning else ""
    assert rest is not None, "it was chosen because it begins so"
    return redirection.to + rest


def _rest(url: str, beginning: str) -> str | None:
    """Return the rest of an address behind its beginning.

    None when it begins otherwise or ends within a part.
    """
    for text in (url, url.partition("://")[2]):
        if text.startswith(beginning):
            rest = text[len(beginning) :]
            if not rest or rest[0] in "/?#" or beginning[-1:] in {"/", "?", "&", "="}:
                return rest
    return None
