"""The rule which addresses a server may listen on without knowing its clients.

On loopback every client is a user of this machine, and no configuration is needed. Any other address is refused unless
the server knows its clients (a tokens file, or a client CA), or the operator opens it on purpose.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import Final

from twophase.core.errors import ConfigurationError
from twophase.server.settings import Settings

_REMEDY: Final = (
    "Do one of these:\n"
    "  twophase token add NAME --scope produce --tokens tokens.toml, and start with --tokens tokens.toml\n"
    "  set tls_client_ca, beside tls_certificate and tls_key, if every client has a certificate of that CA\n"
    "  start with --allow-anonymous, if only trusted clients reach this address"
)


def is_loopback(host: str) -> bool:
    """Return True when only this machine reaches `host`.

    Raises:
        ConfigurationError: the name has no address.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"host: {host!r} has no address: {error}.") from error
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)


def is_anonymous(settings: Settings) -> bool:
    """Return True when clients of another machine may do everything without a name."""
    return settings.allow_anonymous and not is_loopback(settings.host)


def require_known_clients(settings: Settings) -> None:
    """Refuse an address that would be open to every client by mistake.

    Raises:
        ConfigurationError: with the three ways out, a line each.
    """
    if settings.tokens or settings.tls_client_ca or settings.allow_anonymous or is_loopback(settings.host):
        return
    raise ConfigurationError(
        f"host: other machines reach {settings.host}, and every client there would be served without a token.",
        remedy=_REMEDY,
    )
