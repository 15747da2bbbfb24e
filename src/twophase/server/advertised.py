"""The addresses by which other nodes name this one to clients.

They are the settings `rocketmq_address` and `http_address`, or else the addresses that the ports listen on. A port that
listens on every address of its machine does not know by which of them clients reach it; then the host is empty.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from twophase.core.address import shown_address

if TYPE_CHECKING:
    from twophase.server.settings import Settings

_HOST: Final = re.compile(r"[0-9A-Za-z_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


def why_no_address(text: str) -> str | None:
    """Return why a setting cannot be an address; None when it can.

    >>> why_no_address("mq-1.internal:8081"), why_no_address("[fd00::7]"), why_no_address("")
    (None, None, None)
    >>> why_no_address("http://mq:80")
    "'http://mq:80' is no host:port"
    """
    host, port = parts_of(text)
    if text and (not _HOST.fullmatch(host) or not (port == "" or (port.isdigit() and 0 < int(port) < 1 << 16))):
        return f"{shown_address(text)[:64]!r} is no host:port"
    return None


def advertised(setting: str, listens: str) -> str:
    """Return the address of a port.

    Arguments:
        setting: `host:port`, or a host alone; empty for the port's own.
        listens: host and port of the port.

    >>> advertised("", "10.0.0.5:8081"), advertised("mq-1", "0.0.0.0:8081"), advertised("mq-1:80", "0.0.0.0:8081")
    ('10.0.0.5:8081', 'mq-1:8081', 'mq-1:80')
    >>> advertised("", "0.0.0.0:8081")
    ':8081'
    """
    host, port = parts_of(setting)
    own_host, own_port = parts_of(listens)
    if not host and not is_every_address(own_host):
        host = own_host
    return f"{host}:{port or own_port}"


def why_no_url(text: str) -> str | None:
    """Return why a setting cannot be a URL or an address; None when it can.

    >>> why_no_url("https://mq-1.internal"), why_no_url("mq-1:80"), why_no_url("")
    (None, None, None)
    >>> why_no_url("http://mq/path")
    "'http://mq/path' is no URL and no host:port"
    >>> why_no_url("ftp://mq") is why_no_url("http://") is None
    False
    """
    scheme, separator, rest = text.rpartition("://")
    if text and (why_no_address(rest) or not rest or (separator and scheme not in {"http", "https"})):
        return f"{shown_address(text)[:64]!r} is no URL and no host:port"
    return None


def advertised_url(setting: str, host: str, port: int, *, tls: bool) -> str:
    """Return the URL of the HTTP port; empty for one that does not know its name.

    Arguments:
        setting: a URL without a path, `host:port`, or a host alone; empty for the port's own.
        host, port: what the port listens on.
        tls: it speaks TLS, which counts where the setting names no scheme.

    >>> advertised_url("", "10.0.0.5", 80, tls=False), advertised_url("mq-1", "0.0.0.0", 36789, tls=True)
    ('http://10.0.0.5:80', 'https://mq-1:36789')
    >>> advertised_url("https://mq-1.internal", "0.0.0.0", 36789, tls=False), advertised_url("", "::", 1, tls=False)
    ('https://mq-1.internal', '')
    """
    if "://" in setting:
        return setting
    named = advertised(setting, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return "" if named.startswith(":") else f"{'https' if tls else 'http'}://{named}"


def http_url(settings: Settings, listens: str) -> str:
    """Return the URL by which other nodes name this one to clients.

    It is empty where the node does not know one. A worker has none: the workers share their port, and no URL leads to
    one of them.

    Arguments:
        settings: the server's.
        listens: the URL of its HTTP port.
    """
    if settings.workers > 1:
        return ""
    port = urlsplit(listens).port or 0
    return advertised_url(settings.http_address, settings.host, port, tls=listens.startswith("https:"))


def of_worker(setting: str, number: int) -> str:
    """Return the setting of a worker, counted from 1: each has the next port.

    >>> of_worker("mq:8081", 3), of_worker("mq", 3)
    ('mq:8083', 'mq')
    """
    host, port = parts_of(setting)
    return f"{host}:{int(port) + number - 1}" if port else host


def is_every_address(host: str) -> bool:
    """Return True for a host that stands for all addresses of a machine.

    >>> is_every_address("0.0.0.0"), is_every_address("::"), is_every_address("10.0.0.5")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def parts_of(text: str) -> tuple[str, str]:
    """Return host and port of an address; the latter may be empty."""
    host, separator, port = text.rpartition(":")
    if not separator or port.endswith("]"):
        return text, ""
    return host, port
