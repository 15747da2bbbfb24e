"""The nodes that the coordinator names to a client.

They are the owner of each topic, and those that ask producers.

Only scheme, host and port of the client's own URL are replaced. A client whose own URL is `https` follows to no `http`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final
from urllib.parse import urlsplit

from twophase.client.transport.sync import address_of
from twophase.core.errors import ConfigurationError
from twophase.http_client.address import Address

HOPS_MAX: Final = 3
"""Nodes that one attempt of a request follows to."""
_TOPICS_MAX: Final = 1_000

Topic = tuple[str, str]


class Nodes:
    """See the module.

    Arguments:
        own: the client's own URL.

    >>> nodes = Nodes("http://lb:80/behind")
    >>> nodes.follow(("", "orders"), "http://mq-1:36789"), nodes.url(("", "orders")), nodes.url(None)
    (True, 'http://mq-1:36789/behind', 'http://lb/behind')
    """

    def __init__(self, own: str) -> None:
        self._own = address_of(own)
        self._owners: OrderedDict[Topic, str] = OrderedDict()

    @property
    def own(self) -> str:
        """The client's own URL."""
        return _spelt(self._own, self._own.path)

    def url(self, topic: Topic | None) -> str:
        """Return the URL to which requests about a topic go."""
        found = self._owners.get(topic) if topic is not None else None
        return self.own if found is None else found

    def named(self, url: str) -> str | None:
        """Return the URL of a node that a coordinator names.

        None for one that is not followed to.
        """
        try:
            parts = urlsplit(url)
            if parts.username is not None or parts.path.strip("/"):
                return None
            address = address_of(url)
        except (ConfigurationError, ValueError):
            return None
        if self._own.tls and not address.tls:
            return None
        return _spelt(address, self._own.path)

    def follow(self, topic: Topic, url: str) -> bool:
        """Send requests about a topic to another node from now on.

        False where its URL cannot be followed to.
        """
        named = self.named(url)
        if named is None:
            return False
        self._owners[topic] = named
        self._owners.move_to_end(topic)
        if len(self._owners) > _TOPICS_MAX:
            self._owners.popitem(last=False)
        return True

    def forget(self, topic: Topic | None) -> None:
        """Ask the client's own URL about a topic again."""
        if topic is not None:
            self._owners.pop(topic, None)


def topic_in(request: Any) -> Topic | None:
    """Return the topic whose owner is to get a request; None where any node may."""
    topic = getattr(request, "topic", None)
    return None if topic is None else (request.namespace, topic)


def _spelt(address: Address, path: str) -> str:
    return f"{'https' if address.tls else 'http'}://{address.host_header}{path}"
