"""The orders of the tests to a client's program, and its answers.

The vocabulary is one for the programs of all languages. Every program is a bank: `serve` answers check-backs and
branches, `transfer ORDER` makes one transfer as a producer. `go/` speaks it in Go, `dtmcli_bank` and `sdk_bank` in
Python.
"""

from __future__ import annotations

import msgspec

PAYER, PAYEE, AMOUNT = "payer", "payee", 30
TABLE = "dtm_barrier.barrier"
"""dtm's own name for its barrier table; Python's dtmcli knows no other."""


class Payload(msgspec.Struct, frozen=True):
    """The payload of a branch's call."""

    amount: int = AMOUNT
    refusals: int = 0
    """Number of calls that the branch refuses before it takes the money."""
    meet: int = 0
    """Number of calls of this message that must be there before the branch answers.

    They are there at the same time.
    """


class Step(msgspec.Struct, frozen=True):
    """One branch: an address, or a topic."""

    action: str = ""
    topic: str = ""
    payload: Payload = Payload()


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer.

    `ending` is the producer's behaviour: "" as it should; "business error", "failure", "asked first", "commit fails",
    "error after commit"; "hold before commit" and "hold after commit" wait there to be killed.
    """

    server: str
    protocol: str
    store: str
    gid: str
    """The gid; when it is empty, the server makes one."""
    check: str
    steps: list[Step]
    token: str = ""
    """The token for the metadata of calls over gRPC, which has no base URL."""
    amount: int = AMOUNT
    ending: str = ""
    wait_result: bool = False
    concurrent: bool = False
    delay: int = 0
    timeout_to_fail: int = 0
    headers: dict[str, str] = {}


class Told(msgspec.Struct, frozen=True):
    """The end of a transfer for the producer; `error` is empty when it received none."""

    gid: str
    error: str = ""


class Holds(msgspec.Struct, frozen=True):
    """The note that the producer waits at the point of the order."""

    holds: str


class Addresses(msgspec.Struct, frozen=True):
    """The addresses of a started program.

    `grpc` is without a scheme, as dtm writes it, and empty where it has none.
    """

    http: str
    grpc: str = ""
