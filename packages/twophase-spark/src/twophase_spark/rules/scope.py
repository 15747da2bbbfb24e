"""The services that an audit was given, and how far back their rows reach."""

from __future__ import annotations

import msgspec


class Table(msgspec.Struct, frozen=True):
    """A table of a consumer, with the names for the commands that repair.

    `agrees`: of a ledger, the condition on payload and row; empty for none.
    """

    name: str
    engine: str = "sqlite"
    gid: str = "gid"
    branch: str = "branch_id"
    agrees: str = ""


class ProducerScope(msgspec.Struct, frozen=True):
    """A producer that was given.

    `identity`: of its database, None for a table without one; `check_urls`: the beginnings of the check addresses that
    it answers, which count where one side has no identity.
    """

    name: str
    identity: str | None = None
    check_urls: tuple[str, ...] = ()


class ServiceScope(msgspec.Struct, frozen=True):
    """A consumer that was given.

    `urls`: the beginnings of the branches that it serves, empty for every one; `ledger`: if given.
    """

    name: str
    urls: tuple[str, ...] = ()
    barrier: Table = Table("barrier")
    ledger: Table | None = None


class Scope(msgspec.Struct, frozen=True):
    """The scope of conclusions from the inputs.

    `as_of_ms`: when the reading began, by the coordinators' clock; `late_ms`: the age above which a message that is not
    final is late; `…_horizon_ms`: below it rows may have been cleaned, 0 for never; `ledgers`: the names of the
    consumers whose ledger was given.
    """

    as_of_ms: int
    late_ms: int = 3_600_000
    history_horizon_ms: int = 0
    producer_horizon_ms: int = 0
    consumer_horizon_ms: int = 0
    producers: tuple[ProducerScope, ...] = ()
    consumers: tuple[ServiceScope, ...] = ()
    ledgers: tuple[str, ...] = ()

    @property
    def has_urls(self) -> bool:
        """True when a consumer serves some addresses only.

        Then an effect must stand in the service that its address names.
        """
        return any(consumer.urls for consumer in self.consumers)
