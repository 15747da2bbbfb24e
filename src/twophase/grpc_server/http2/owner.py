"""The port of a connection, as the connection knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from twophase.grpc_server.http2.headers import Known
from twophase.grpc_server.http2.limits import Limits
from twophase.http_client.byte_budget import ByteBudget
from twophase.http_client.turns import TurnsByAddress

if TYPE_CHECKING:
    from twophase.grpc_server.http2.connection import Connection


class Owner(Protocol):
    """The port of a connection; see `port.Port`."""

    now_s: float

    @property
    def limits(self) -> Limits: ...

    @property
    def known(self) -> Known[Any]: ...

    @property
    def settings(self) -> Mapping[int, int]: ...

    @property
    def crashed(self) -> Callable[[Exception], None]: ...

    @property
    def turns(self) -> TurnsByAddress: ...

    @property
    def budget(self) -> ByteBudget: ...

    def joined(self, connection: Connection) -> bool: ...

    def left(self, connection: Connection) -> None: ...
