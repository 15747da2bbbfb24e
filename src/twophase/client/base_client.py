"""The part that `Client` and `AsyncClient` share, and the channel of a message.

A message knows its coordinator as an address or as a client. Messages of one address share one channel in this process.
"""

from __future__ import annotations

import functools
import math
import ssl
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.client.channel import AsyncChannel, Channel, SyncChannel
from twophase.client.draft import checked_url
from twophase.client.options import USUAL, MessageOptions, read_options
from twophase.client.retry import RetryPolicy
from twophase.client.transport.exchange import RequestBounds
from twophase.core.bearer import authorization_of
from twophase.core.credentials import without_credentials
from twophase.core.errors import ConfigurationError, EventLoopBlocked
from twophase.core.options import Options
from twophase.core.spans import as_ms, as_seconds
from twophase.core.trust import NO_FILES, File, Trust, is_tls, trust_of

if TYPE_CHECKING:
    from datetime import timedelta

C = TypeVar("C", bound=Channel)


class BaseClient(Generic[C]):
    """The part that `Client` and `AsyncClient` share."""

    _kind: ClassVar[type[Channel]]
    """The channel of its messages."""

    def __init__(
        self,
        url: str,
        *,
        check: str | None = None,
        options: MessageOptions | None = None,
        timeout: float | timedelta = 5.0,
        retry: RetryPolicy | None = None,
        barrier_table: str = DEFAULT_TABLE,
        allow_unsafe_database: bool = False,
        allow_event_loop: bool = False,
        token: str | None = None,
        authorization: str | None = None,
        ca: File | None = None,
        client_certificate: File | None = None,
        client_key: File | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Describe a coordinator; it is connected on first use.

        Arguments:
            url: `http://host:port` or `https://…`; dtm's `/api/dtmsvr` behind it is allowed. Or `grpc://host:port`
                or `grpcs://…`, by which payloads may be any bytes; needs the `grpc` extra.
            check: the address of the check-back route, for messages that name none.
            options: for messages that ask for no others.
            timeout: for one try of one request, in seconds or as a timedelta.
            retry: how often and how long a request is repeated.
            barrier_table: the barrier's name in the business databases, `name` or `schema.name`.
            allow_unsafe_database: take business databases whose crash may undo a commit they have confirmed, for tests
                and for data that may be lost; refused with UnsafeDatabase otherwise.
            allow_event_loop: take blocking calls where an event loop runs, as in a notebook; the loop stands still
                meanwhile. Refused with EventLoopBlocked otherwise.
            token: for a coordinator that knows its clients, or `env:NAME` or `file:PATH`, where it stands; the variable
                `TWOPHASE_TOKEN` by default.
            authorization: sent as the `Authorization` header of every request, instead of a token; may stand elsewhere,
                too.
            ca: PEM file of the authority of an https or grpcs coordinator; the variable `TWOPHASE_CA` by default, and
                without it the system's authorities count. The files are read once, here.
            client_certificate, client_key: PEM files by which this client names itself, of a key of mode 0600; the key
                may stand in the certificate's file. `TWOPHASE_CLIENT_CERTIFICATE` and `TWOPHASE_CLIENT_KEY` by default.
            ssl_context: instead of these files. For grpcs only its trusted roots count.

        Raises:
            ConfigurationError: one of these cannot work.
            InvalidRequest, LimitExceeded: `check` is no address, or an option cannot have its value.
        """
        if not isinstance(url, str):
            raise ConfigurationError(
                f"url is of type {type(url).__name__}, not a text; is the variable that names the coordinator set?"
            )
        if not _is_bounded(timeout):
            raise ConfigurationError(f"timeout must be seconds above zero or a timedelta, not {timeout!r}.")
        retry = RetryPolicy() if retry is None else retry
        if not isinstance(retry, RetryPolicy):
            raise ConfigurationError(f"retry must be a RetryPolicy, such as RetryPolicy(total=30), not {retry!r}.")
        _require_switch("allow_unsafe_database", allow_unsafe_database)
        _require_switch("allow_event_loop", allow_event_loop)
        trust = _trust(url, ca, client_certificate, client_key, has_context=ssl_context is not None)
        self._channel: C = cast(
            "C",
            self._kind(
                url,
                RequestBounds(timeout_ms=max(1, as_ms(timeout)), attempts=retry.attempts, total_ms=retry.total_ms),
                check=None if check is None else checked_url("check", check),
                options=read_options(options or {}),
                barrier_table=validate_table(barrier_table),
                allow_unsafe_database=allow_unsafe_database,
                allow_event_loop=allow_event_loop,
                authorization=authorization_of(token, authorization),
                ssl_context=ssl_context or (None if trust == NO_FILES else trust.context()),
                trust=trust,
            ),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The coordinator's address."""
        return self._channel.url


def _require_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):  # a text such as "false" would be true
        raise ConfigurationError(f"{name} must be True or False, not {value!r}.")


def _is_bounded(span: float | timedelta) -> bool:
    try:
        return 0 < as_seconds(span) < math.inf
    except TypeError:
        return False


def default_options(server: str | BaseClient[Any]) -> Options:
    """The options of a message of this server that asks for none."""
    return USUAL if isinstance(server, str) else server._channel.options  # noqa: SLF001 -- of this module


def channel_of(server: str | BaseClient[SyncChannel], instead: str) -> SyncChannel:
    """The channel of blocking calls to a message's coordinator.

    Arguments:
        instead: what to write where an event loop runs.

    Raises:
        EventLoopBlocked: an event loop runs in this thread.
    """
    channel = _shared(server) if isinstance(server, str) else server._channel  # noqa: SLF001 -- of this module
    # Where asyncio was never imported no loop runs, and importing it would cost more than all the rest.
    asyncio = sys.modules.get("asyncio")
    running = asyncio._get_running_loop() if asyncio is not None else None  # noqa: SLF001 -- the public one raises
    if running is not None and not channel.allow_event_loop:
        raise EventLoopBlocked(
            remedy=f"Write `{instead}`, or run the blocking call in a thread (`asyncio.to_thread`, "
            "`run_in_threadpool`); in a notebook, Client(url, allow_event_loop=True) takes it."
        )
    return channel


def achannel_of(server: str | BaseClient[Any]) -> AsyncChannel:
    """`channel_of` for asyncio."""
    if isinstance(server, str):
        return _ashared(server)
    channel = server._channel  # noqa: SLF001 -- the same
    if isinstance(channel, AsyncChannel):
        return channel
    raise ConfigurationError("This message's Client makes blocking calls: take an AsyncClient or an address.")


class _Blocking(BaseClient[SyncChannel]):
    """The client of messages that only have an address."""

    _kind = SyncChannel


class _Asyncio(BaseClient[AsyncChannel]):
    """`_Blocking` for asyncio."""

    _kind = AsyncChannel


@functools.lru_cache(maxsize=128)
def _shared(url: str) -> SyncChannel:
    """The channel behind every `Message(url)` of this process."""
    return _Blocking(url)._channel  # noqa: SLF001 -- the same


@functools.lru_cache(maxsize=128)
def _ashared(url: str) -> AsyncChannel:
    """The channel behind every `AsyncMessage(url)` of this process."""
    return _Asyncio(url)._channel  # noqa: SLF001 -- the same


def _trust(url: str, ca: File | None, certificate: File | None, key: File | None, *, has_context: bool) -> Trust:
    """Return the files of a client, as `trust_of`; raises ConfigurationError."""
    if ca is not None or certificate is not None or key is not None:
        if has_context:
            raise ConfigurationError("ssl_context and ca, client_certificate, client_key exclude each other.")
        if not is_tls(url):
            raise ConfigurationError(
                f"ca and client_certificate need an https:// or grpcs:// url, not {without_credentials(url)!r}.",
                remedy="Write https://, or leave them out.",
            )
    return NO_FILES if has_context or not is_tls(url) else trust_of(ca, certificate, key)
