"""The addresses that a client may connect to.

A name is no proof: its owner chooses its address, and may change it after a check. So each address is judged at
the moment of the connection, after the name was resolved. Promise: no call reaches a link-local address, a cloud's
metadata service, a multicast, unspecified, broadcast or reserved address, or a port on which this process itself
listens, in whatever form IPv6 writes an IPv4 address.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from twophase.http_client.outcome import HttpError, HttpErrorKind

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        # Alibaba, Azure, Oracle; AWS, Google and Scaleway by IPv6. The others are link-local.
        ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42"),
    )
)
_NEVER: Final = tuple(
    (ipaddress.ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "an unspecified address"),
        ("169.254.0.0/16", "a link-local address"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved or broadcast address"),
        ("::/128", "an unspecified address"),
        ("fe80::/10", "a link-local address"),
        ("ff00::/8", "a multicast address"),
    )
)
_PRIVATE: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            *("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16"),
            *("198.18.0.0/15", "::1/128", "fc00::/7", "fec0::/10"),
        ),
    )
)
_CARRIERS: Final = tuple(
    (ipaddress.IPv6Network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),  # IPv4-mapped
        ("::ffff:0:0:0/96", 0),  # IPv4-translated
        ("::/96", 0),  # IPv4-compatible
        ("64:ff9b::/96", 0),  # NAT64
        ("64:ff9b:1::/48", 0),
        ("2002::/16", 80),  # 6to4
    )
)
"""Networks of IPv6 whose addresses carry one of IPv4, and the bits below it."""


class Guard:
    """Judges the addresses of calls.

    Arguments:
        private: private and loopback addresses may be called.
    """

    def __init__(self, *, private: bool = True) -> None:
        self._private = private
        self._own: dict[int, set[_Ip]] = {}

    def listens(self, address: str, port: int) -> None:
        """Refuse this port from now on: this process listens there.

        Arguments:
            address: an IP literal; an unspecified one stands for every address of the machine.
            port: in 1 to 65535.
        """
        self._own.setdefault(port, set()).add(ipaddress.ip_address(address))

    def why_not(self, address: str, port: int) -> str:
        """Return why this IP address may not be connected to; empty when it may.

        >>> Guard().why_not("10.0.0.7", 80), Guard().why_not("::ffff:169.254.169.254", 80)
        ('', '::ffff:169.254.169.254 is a link-local address, which is never called')
        """
        ip = ipaddress.ip_address(address)
        for one in _forms(ip):
            if one in _METADATA:
                return f"{address} is a cloud's metadata service, which is never called"
            for network, what in _NEVER:
                if one in network:
                    return f"{address} is {what}, which is never called"
            if port in self._own and self._is_own(one, self._own[port]):
                return f"{address} port {port} is the coordinator's own, which is never called"
        if not self._private and any(one in network for one in _forms(ip) for network in _PRIVATE):
            return f"{address} is a private address, and private_destinations is false"
        return ""

    def require_literal(self, host: str, port: int) -> None:
        """Refuse a host that is an IP address and may not be connected to.

        A name is judged when it is called.

        Raises:
            HttpError: kind `REFUSED`.
        """
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return
        why_not = self.why_not(host, port)
        if why_not:
            raise HttpError(HttpErrorKind.REFUSED, why_not)

    @staticmethod
    def _is_own(ip: _Ip, listening: set[_Ip]) -> bool:
        return ip in listening or (any(one.is_unspecified for one in listening) and _of_this_machine(ip))


def _forms(ip: _Ip) -> list[_Ip]:
    """Return the address, and the IPv4 address that it carries.

    ::1 carries none: it is the loopback address.
    """
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    plain = ipaddress.IPv6Address(int(ip))  # without its zone
    if plain.is_loopback or plain.is_unspecified:
        return [plain]
    carried = (ipaddress.IPv4Address(int(plain) >> bits & 0xFFFFFFFF) for net, bits in _CARRIERS if plain in net)
    return [plain, *carried]


def _of_this_machine(ip: _Ip) -> bool:
    """Return True when the machine has this address.

    Only then can a socket be bound to it.
    """
    if ip.is_loopback:
        return True
    with socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(ip), 0))
        except OSError:
            return False
    return True
