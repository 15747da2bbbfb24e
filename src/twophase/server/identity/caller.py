"""The sender of a request: its name, its scopes, and the messages that it sees.

Promise: every API asks the same object, so a refusal does not depend on the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from twophase.coordinator.view import MessageView
from twophase.core.address import TOPIC_PREFIX
from twophase.core.errors import ConfigurationError, Forbidden, InvalidRequest, Unauthenticated, UnknownMessage
from twophase.core.message import Message, scheme_of
from twophase.core.queue_message import QUEUE_PREFIX, full_name, topic_address, topic_of
from twophase.destinations.allow_list import AllowList, Listed
from twophase.http_client.address import parse_address
from twophase.http_client.outcome import HttpError
from twophase.server.codecs.sight import EVERYTHING, Sight
from twophase.server.identity.quotas import Meter
from twophase.server.identity.refusals import Refusals
from twophase.server.identity.scopes import CROSSING, EVERY_SCOPE, Scope, Scopes
from twophase.stores.search import Search

_ALLOWED_MAX: Final = 4096
_NAMED: Final = (TOPIC_PREFIX, QUEUE_PREFIX)
"""Addresses of topics; one is listed by its whole name, a queue's in any spelling."""


class Caller:
    """A client.

    `limited`: False for a caller who may do everything; no API checks its requests. `crosses`: True for a caller who
    sees and changes messages of every owner. `sends_freely`: True for a caller whose every prepare and submit would
    pass `require` and `require_message`, so that neither needs to be called.

    Arguments:
        name: the owner of its messages; empty for no name.
        scopes: the requests that it may make.
        sight: what it is shown of a message.
        gid_prefix: the beginning of every gid that it may name.
        destinations: prefixes of the addresses that its messages may call; none: every address.
        meter: counts its use against its quota.
        refusals: notes its refusals by scope.

    Raises:
        ConfigurationError: one of the destinations cannot be a prefix.
    """

    def __init__(
        self,
        name: str = "",
        scopes: Scopes = EVERY_SCOPE,
        sight: Sight = EVERYTHING,
        *,
        gid_prefix: str = "",
        destinations: tuple[str, ...] = (),
        meter: Meter | None = None,
        refusals: Refusals | None = None,
        limited: bool = True,
    ) -> None:
        self.name = name
        self.scopes = scopes
        self.sight = sight
        self.gid_prefix = gid_prefix
        self.limited = limited
        self.crosses = not limited or bool(scopes & CROSSING)
        self.sends_freely = Scope.PRODUCE in scopes and meter is None and not (gid_prefix or destinations)
        self._meter = meter
        self._refusals = refusals
        self._topics = {one for one in destinations if one.startswith(TOPIC_PREFIX)}
        self._bound = bool(destinations)
        self._allowed: set[str] = set()
        urls = [one for one in destinations if not one.startswith(_NAMED)]
        try:
            self._queues = {_queue_listed(one) for one in destinations if one.startswith(QUEUE_PREFIX)}
            self._urls = AllowList(map(Listed, urls))
        except ValueError as error:
            raise ConfigurationError(f"tokens: destinations of {name}: {error}.") from error
        self._has_urls = bool(urls)

    def require(self, scopes: Scopes, route: str = "", peer: str = "") -> None:
        """Refuse a request that needs one of these scopes; count it otherwise.

        `route` and `peer`, the client's address, are for the audit log.

        Raises:
            Unauthenticated: the caller has no name. Forbidden: it has none of the scopes. QuotaExceeded.
        """
        if not self.limited or not scopes:
            return
        if scopes.isdisjoint(self.scopes):
            self.require_scope(scopes, route, peer)
        if self._meter is not None:
            self._meter.count(1)

    def require_scope(self, scopes: Scopes, route: str, peer: str) -> None:
        """Refuse what needs one of these scopes, as `require`, and count nothing.

        Raises:
            Unauthenticated, Forbidden: as `require`.
        """
        if scopes & self.scopes:
            return
        if self._refusals is not None:
            self._refusals.note(self.name, scopes, route, peer)
        if not self.scopes:
            raise Unauthenticated
        needed = " or ".join(sorted(scopes))
        raise Forbidden(f"the token {self.name!r} does not have the scope {needed}.")

    def when_noted(self, answer: Callable[[], None]) -> None:
        """Call `answer` when the rows of refusals are written: at once, if none waits."""
        waits = None if self._refusals is None else self._refusals.waits
        if waits is None:
            answer()
        else:
            waits.add_done_callback(lambda _: answer())

    async def noted(self) -> None:
        """Wait until the rows of refusals are written."""
        if self._refusals is not None and self._refusals.waits is not None:
            await asyncio.wait([self._refusals.waits])

    def count(self, requests: int = 1, counted: int = 0) -> None:
        """Count requests against the quota; a request of many messages counts for each.

        `counted`: of the same request, how many were counted before.

        Raises:
            QuotaExceeded: a second's requests are used up.
        """
        if self._meter is not None:
            self._meter.count(requests, counted)

    def take_room(self, size: int) -> bool:
        """Count a new message, by its bytes of memory; False beyond the quota."""
        return self._meter is None or self._meter.take_room(size)

    def why_no_room(self, size: int) -> str:
        """Return the reason for which the quota allows no new message of this size."""
        return "" if self._meter is None else self._meter.why_no_room(size)

    def require_gid(self, gid: str) -> None:
        """Refuse to name a gid that does not begin as the token's must.

        Raises:
            Forbidden: it begins otherwise.
        """
        if not gid.startswith(self.gid_prefix):
            raise Forbidden(f"gids of the token {self.name!r} begin with {self.gid_prefix!r}.", gid=gid)

    def require_message(self, message: Message) -> None:
        """Refuse a message that the token may not send.

        Raises:
            Forbidden: its gid or an address.
        """
        if self.gid_prefix:
            self.require_gid(message.gid)
        if self._bound:
            for branch in message.branches:
                for url in (branch.url, *(branch.subscribers or ())):
                    if url:
                        self.require_address(url, message.protocol)
            if message.check_url:
                self.require_address(message.check_url, message.protocol)

    def require_address(self, url: str, protocol: str = "http") -> None:
        """Refuse an address that the token's messages may not call.

        Raises:
            Forbidden: none of its destinations allows it.
        """
        if not self.allows(url, protocol):
            raise Forbidden(f"none of the destinations of the token {self.name!r} begins {url[:200]!r}.")

    def require_queue(self, name: str) -> None:
        """Refuse a topic of queues, by its stored name, that the token may not use.

        Raises:
            Forbidden: none of its destinations is this topic.
        """
        if not self.allows_queue(name):
            raise Forbidden(f"none of the destinations of the token {self.name!r} is {topic_address(name)[:200]!r}.")

    def allows_queue(self, name: str) -> bool:
        """Return True for a topic of queues, by its stored name, that the token may use."""
        return not self._bound or name in self._queues

    def allows(self, url: str, protocol: str = "http") -> bool:
        """Return True for an address that the token's messages may call."""
        if self._bound and url not in self._allowed:
            if not self._is_listed(url, protocol):
                return False
            if len(self._allowed) >= _ALLOWED_MAX:
                self._allowed.clear()
            self._allowed.add(url)
        return True

    def become(self, other: Caller) -> None:
        """Be what another caller is, also for requests under way.

        The entry of the token has changed.
        """
        self.__dict__.update(other.__dict__)

    def revoke(self) -> None:
        """Refuse every request from now on, those under way among them."""
        self.scopes = frozenset()
        self.crosses = self.sends_freely = False

    def require_reach(self, gid: str) -> None:
        """Refuse an act on a message that the caller is not shown, as if there were none.

        Raises:
            UnknownMessage: the gid begins otherwise than the token's must.
        """
        if not gid.startswith(self.gid_prefix):
            raise UnknownMessage(f"no message {gid!r} found.", gid=gid)

    def require_every_gid(self) -> None:
        """Refuse what names all gids, to a caller whose token has a gid prefix.

        Raises:
            Forbidden: the token has one.
        """
        if self.gid_prefix:
            raise Forbidden(f"the token {self.name!r} is for gids that begin with {self.gid_prefix!r}; this is of all.")

    def seen(self, view: MessageView | None) -> MessageView | None:
        """Return a message that the caller is shown; None for any other.

        So another owner's gid is answered like an unknown one.
        """
        if view is None or not view.message.gid.startswith(self.gid_prefix):
            return None
        return view if self.crosses or view.owner == self.name else None

    def narrowed(self, search: Search) -> Search | None:
        """Return a search among the messages that the caller is shown.

        None when it cannot find any.
        """
        if self.crosses and not self.gid_prefix:
            return search
        wanted, own = search.gid_prefix, self.gid_prefix
        if not wanted.startswith(own) and not own.startswith(wanted):
            return None
        longer = max(wanted, own, key=len)
        return msgspec.structs.replace(search, gid_prefix=longer, owner=self.owners_seen)

    @property
    def owner(self) -> Caller | None:
        """The owner of the messages that it sends; None where clients have no tokens."""
        return self if self.limited else None

    @property
    def reads_answers(self) -> bool:
        """True for a caller who may read the texts of branches' answers."""
        return self.sight.payloads

    @property
    def owners_seen(self) -> str | None:
        """The owner whose messages alone the caller is shown; None for every owner's."""
        return None if self.crosses else self.name

    def _is_listed(self, url: str, protocol: str) -> bool:
        if url.startswith(TOPIC_PREFIX):
            return url.partition("?")[0] in self._topics
        if url.startswith(QUEUE_PREFIX):
            try:
                return self.allows_queue(full_name(*topic_of(url)))
            except InvalidRequest:
                return False
        if not self._has_urls:
            return False
        scheme, separator, rest = url.partition("://")
        if not separator:
            scheme, rest = scheme_of(url, protocol), url
        try:
            address = parse_address(f"{'https' if scheme.lower() == 'https' else 'http'}://{rest}")
        except HttpError:
            return False
        return not self._urls.why_not(f"{scheme.lower()}://{address.key.partition('://')[2]}", address.path)


def _queue_listed(address: str) -> str:
    """Return the stored name of the topic that a destination names.

    Raises:
        ValueError: it names none, or only a part of its messages.
    """
    if "?" in address:
        raise ValueError(f"{address[:200]!r} has attributes, and names more than a topic")
    try:
        return full_name(*topic_of(address))
    except InvalidRequest as error:
        raise ValueError(f"{address[:200]!r} names no topic: {error.message.rstrip('.')}") from error


UNLIMITED: Final = Caller(limited=False)
"""A client of a server that has no tokens."""


def unknown(refusals: Refusals | None = None) -> Caller:
    """Return a client without a token, where tokens are needed."""
    return Caller(scopes=frozenset(), sight=Sight(payloads=False), refusals=refusals)


UNKNOWN: Final = unknown()
