"""What the document says of one path, as data, and the types of answers that have no other place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

OPENAPI_PATH: Final = "/api/twophase/openapi.json"

REFUSED: Final = "the message's state, or its content, refuses it: `dtm_result` is `FAILURE`, `state` says which"
NO_TOPIC: Final = "TP-1003: there is no such topic; nothing was stored"
NO_MESSAGE: Final = "TP-2004: there is no such message"
FORGOTTEN: Final = "TP-2005: the gid is older than the history kept, nobody can tell"
STORE: Final = "the store does not answer"


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a URL; `where` it stands is `query` or `path`."""

    name: str
    description: str
    type: Any = str
    where: str = "query"
    required: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One path. `answer` is the type of a 200's JSON, None for text; `refusals` say when, by status."""

    path: str
    summary: str
    tag: str
    methods: tuple[str, ...] = ("get",)
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    request: Any = None
    needs_body: bool = True
    answer: Any = None
    refusals: Mapping[int, str] = {}
    shapes: Mapping[int, tuple[Any, ...]] = {}
    """The types of a refusal's body, by status, where it is not `Failure` alone."""


class Pong(msgspec.Struct):
    """The answer to `ping`."""

    msg: str


class Done(msgspec.Struct):
    """It is done, or was done before. `prepared_at`: milliseconds since 1970, by the store's clock."""

    dtm_result: str
    prepared_at: int | None = None


class Health(msgspec.Struct):
    """How the server is."""

    status: str
    reason: str = ""
