"""What the tests ask of a client's program, and what it answers; one vocabulary for the programs of all languages.

Every program is a bank: `serve` answers check-backs and branches, `transfer WISH` makes one transfer as a producer.
`go/` speaks it in Go, `dtmcli_bank` and `sdk_bank` in Python.
"""

from __future__ import annotations

import msgspec

PAYER, PAYEE, AMOUNT = "payer", "payee", 30
TABLE = "dtm_barrier.barrier"
"""dtm's own name for its barrier table; Python's dtmcli knows no other."""


class Payload(msgspec.Struct, frozen=True):
    """What a branch is called with."""

    amount: int = AMOUNT
    refusals: int = 0
    """The branch refuses so many calls before it takes the money."""
    meet: int = 0
    """The branch answers only when so many calls of this message are there at once."""


class Step(msgspec.Struct, frozen=True):
    """One branch: an address, or a topic."""

    action: str = ""
    topic: str = ""
    payload: Payload = Payload()


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer.

    `ending` is how the producer goes on: "" as it should; "business error", "failure", "asked first", "commit fails",
    "error after commit"; "hold before commit" and "hold after commit" wait there to be killed.
    """

    server: str
    protocol: str
    store: str
    gid: str
    """Empty: the server makes one."""
    check: str
    steps: list[Step]
    amount: int = AMOUNT
    ending: str = ""
    wait_result: bool = False
    concurrent: bool = False
    delay: int = 0
    timeout_to_fail: int = 0
    headers: dict[str, str] = {}


class Told(msgspec.Struct, frozen=True):
    """How a transfer ended for the producer; `error` is empty when it did not hear of one."""

    gid: str
    error: str = ""


class Holds(msgspec.Struct, frozen=True):
    """The producer waits where the wish says."""

    holds: str


class Addresses(msgspec.Struct, frozen=True):
    """Where a started program is reached; `grpc` without a scheme, as dtm writes it, empty where it has none."""

    http: str
    grpc: str = ""
