"""The rule which addresses a server may listen on without knowing its clients.

On loopback every client is a user of this machine, and no configuration is needed. Any other address is refused unless
each port knows its clients (a tokens file, or a client CA), or the operator opens it on purpose.
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
        ConfigurationError: with the two ways out, a line each.
    """
    if settings.tokens or settings.allow_anonymous or is_loopback(settings.host):
        return
    ports = [name for name, authority in _authorities(settings) if not authority]
    if ports:
        raise ConfigurationError(
            f"host: other machines reach {settings.host}, and the {' and '.join(ports)} would serve every client"
            " without a token.",
            remedy=_REMEDY,
        )


def _authorities(settings: Settings) -> list[tuple[str, str]]:
    """Return each port with the CA of its clients' certificates; empty for none."""
    ports = [("HTTP port", "")]
    if settings.grpc_port != "off":
        ports.append(("gRPC port", settings.grpc_tls_client_ca))
    return ports
