"""Blocking HTTP to one coordinator, on `http_client.blocking`."""

from __future__ import annotations

import ssl
from typing import Final

from twophase.client.transport.wire import (
    API_PATH,
    Disconnected,
    HttpAnswer,
    NotConnected,
    NotTrusted,
    Operation,
    TransportFailure,
    answer_of,
)
from twophase.core.address import shown_address, with_scheme
from twophase.core.errors import ConfigurationError
from twophase.http_client.address import Address, parse_address
from twophase.http_client.blocking import BlockingClient
from twophase.http_client.outcome import HttpError, HttpErrorKind

ANSWER_BYTES_MAX: Final = 1024 * 1024
_DISCONNECTED: Final = {HttpErrorKind.CONNECT: NotConnected, HttpErrorKind.CLOSED: Disconnected}
"""Failures that show that no coordinator runs there at this moment.

Every other failure may come from a running one.
"""


_MAY_DEMAND_A_CERTIFICATE: Final = " (a server with tls_client_ca ends a connection without a client certificate)"
_MAY_SPEAK_TLS: Final = " (a server with tls_certificate ends a connection without TLS: is it https?)"
_REMEDY: Final = "Write http://host:port, the address at which `twophase server` listens."


def address_of(server: str) -> Address:
    """Return a coordinator's address, without dtm's path.

    Arguments:
        server: `http://host:port` or `https://…`, with or without dtm's path.

    Raises:
        ConfigurationError: not such an address.

    >>> address_of("http://localhost:36789/behind").path, address_of("http://localhost:36789/api/dtmsvr/").path
    ('/behind', '')
    """
    shown = shown_address(server)
    try:
        address = parse_address(server)
    except HttpError as error:
        remedy = _REMEDY if "://" in server or not server else f"Write {with_scheme(shown)}."
        raise ConfigurationError(
            f"server {shown!r} is not an http:// or https:// address ({error}).", remedy=remedy
        ) from error
    if not server.isascii() or not server.isprintable() or set(server) & {" ", "?", "#"}:
        raise ConfigurationError(
            f"server {shown!r} has something that an address of a server must not have.", remedy=_REMEDY
        )
    return address._replace(path=address.path.rstrip("/").removesuffix(API_PATH))


def failure_of(error: HttpError, text: str, *, tls: bool) -> TransportFailure:
    """Return what a request without an answer means to the exchange.

    Arguments:
        text: the words for any failure but one of TLS, which has its own.
        tls: the address is an https one.
    """
    if error.kind is HttpErrorKind.TLS:
        return NotTrusted(error.text, error.remedy)
    failure = _DISCONNECTED.get(error.kind, TransportFailure)
    if error.kind is HttpErrorKind.CLOSED or "during the TLS handshake" in str(error):
        text += _MAY_DEMAND_A_CERTIFICATE if tls else _MAY_SPEAK_TLS
    return failure(text)


class SyncTransport:
    """A pool of connections to one coordinator.

    Any thread may use it, and any child after a fork.
    """

    def __init__(
        self, server: str, *, headers: tuple[tuple[str, str], ...] = (), ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """Connects on first use.

        Arguments:
            server: `http://host:port` or `https://…`, with or without dtm's path.
            headers: sent with every request, such as an authorization.
            ssl_context: for https; the system's trusted roots by default.

        Raises:
            ConfigurationError: not such an address.
        """
        self._client = BlockingClient(
            address_of(server), answer_bytes_max=ANSWER_BYTES_MAX, headers=headers, ssl_context=ssl_context
        )
        self._heads = {operation: self._client.head("POST", operation.path) for operation in Operation}

    def send(self, operation: Operation, body: bytes, timeout_ms: int) -> HttpAnswer:
        """Send one request and wait for its answer, at most `timeout_ms`.

        Raises:
            TransportFailure: no usable answer came.
        """
        try:
            response = self._client.exchange(self._heads[operation], body, timeout_ms / 1000)
        except HttpError as error:
            where = self._client.server.host_header
            where = f"cannot connect to {where}" if error.kind is HttpErrorKind.CONNECT else where
            text = f"{where}: {error.__cause__ or error}"
            raise failure_of(error, text, tls=self._client.server.tls) from error.__cause__
        return answer_of(response)

    def close(self) -> None:
        """Close the idle connections; the transport may be used again."""
        self._client.close()
