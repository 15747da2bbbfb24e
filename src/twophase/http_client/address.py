"""The parts of a URL that a request line and a connection need.

Nothing unsafe passes. Promise: no character of a URL can end the request line, add a header or name another host than
the one that is connected to. User names and passwords in URLs are refused (they would end in logs), fragments are
dropped (they are never sent), characters outside ASCII and blanks are percent-encoded as UTF-8 (RFC 3986, RFC 3987
§3.1).
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from twophase.http_client.outcome import HttpError, HttpErrorKind

_DEFAULT_PORTS = {"http": 80, "https": 443}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_REG_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
"""The last part of a host that resolvers read as an IPv4 address, in any base."""
_PORT = re.compile(r"[0-9]{1,5}")
_KEPT_IN_PATH = "%/:@!$&'()*+,;=~"
_KEPT_IN_QUERY = _KEPT_IN_PATH + "?"


class Address(NamedTuple):
    """A URL without its fragment: the host to connect to and the target to request."""

    key: str
    """`scheme://host:port` in lower case, the key of connections and limits.

    The port is always given.
    """
    tls: bool
    host: str
    """Name or IP literal without brackets.

    The resolver and the certificate check want it so.
    """
    port: int
    host_header: str
    path: str
    """Begins with a slash, ready for the request line."""
    target: str
    """The path and the URL's own query, ready for the request line."""
    joint: str
    """The text between the target and more parameters."""
    end_of_line: str
    """The head after the target: the rest of the request line, and the host header."""


def _bad(text: str) -> HttpError:
    return HttpError(HttpErrorKind.BAD_URL, text)


def _split_authority(authority: str) -> tuple[str, str]:
    """Return host and port text of `authority`, an IPv6 literal still in its brackets."""
    if authority.startswith("["):
        literal, bracket, rest = authority.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _bad("the brackets of the host are not balanced")
        return literal + bracket, rest[1:]
    host, _, port = authority.partition(":")
    return host, port


def _checked_host(host: str) -> str:
    """Return the host in the form the resolver wants.

    Refuse a text that is neither an address nor a name.
    """
    if host.startswith("["):
        if "%" in host:
            raise _bad("an IPv6 zone is only meaningful on one machine")
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise _bad("the host in brackets is not an IPv6 address") from None
    written = host
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise _bad("the host is not a valid international name") from None
    if _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) and not _is_ipv4(written):
        raise _bad("the host is a number; write an IPv4 address as four decimal numbers, without leading zeros")
    if len(host) > 253 or not _REG_NAME.fullmatch(host):
        raise _bad("the host is missing" if not host else "the host has characters that a host name must not have")
    return host.lower()


def _is_ipv4(host: str) -> bool:
    try:
        return host.isascii() and str(ipaddress.IPv4Address(host)) == host
    except ValueError:
        return False


def parse_address(url: str) -> Address:
    """Return the address in an absolute `http` or `https` URL.

    The fragment is left out.

    Raises:
        HttpError: kind `BAD_URL`; the text names what is wrong and does not repeat the URL.

    >>> address = parse_address("http://Bank-B/transfer in?x=1#top")
    >>> address.key, address.path, address.target, address.joint
    ('http://bank-b:80', '/transfer%20in', '/transfer%20in?x=1', '&')
    >>> parse_address("https://[::1]:8443").host_header
    '[::1]:8443'
    """
    if _CONTROL.search(url) or url[:1].isspace():
        raise _bad("the URL has control characters or begins with a blank")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _bad("the URL cannot be parsed") from None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise _bad("the scheme is not http or https")
    if "@" in parts.netloc:
        raise _bad("user names and passwords in URLs are not allowed; use a header")
    host_text, port_text = _split_authority(parts.netloc)
    host = _checked_host(host_text)
    port = _DEFAULT_PORTS[scheme]
    if port_text:
        if not _PORT.fullmatch(port_text) or not 0 < int(port_text) < 65536:
            raise _bad("the port is not a number from 1 to 65535")
        port = int(port_text)
    shown = f"[{host}]" if ":" in host else host
    host_header = shown if port == _DEFAULT_PORTS[scheme] else f"{shown}:{port}"
    path = _encoded(parts.path or "/", _KEPT_IN_PATH)
    _, mark, query = url.partition("#")[0].partition("?")
    return Address(
        key=f"{scheme}://{shown}:{port}",
        tls=scheme == "https",
        host=host,
        port=port,
        host_header=host_header,
        path=path,
        target=f"{path}{mark}{encode_query(query)}",
        joint=_joint(mark, query),
        end_of_line=f" HTTP/1.1\r\nhost: {host_header}\r\n",
    )


def _joint(mark: str, query: str) -> str:
    return "?" if not mark else "&" if query and query[-1] not in "?&" else ""


def _encoded(text: str, kept: str) -> str:
    try:
        return quote(text, safe=kept)
    except UnicodeEncodeError:
        raise _bad("the URL has characters that cannot be encoded") from None


def encode_query(query: str) -> str:
    """Return a query string as it may stand in a request line.

    One that is clean already is returned unchanged.

    Raises:
        HttpError: kind `BAD_URL`, for control characters.

    >>> encode_query("gid=g1&op=msg"), encode_query("name=Zoë B")
    ('gid=g1&op=msg', 'name=Zo%C3%AB%20B')
    """
    if query.isascii() and query.isprintable() and " " not in query:
        return query
    if _CONTROL.search(query):
        raise _bad("the URL has control characters")
    return _encoded(query, _KEPT_IN_QUERY)


class AddressBook(dict[str, Address]):
    """Addresses already parsed, by URL.

    `book[url]` parses a URL that is not known yet. The same few URLs are called over and over, each time with other
    parameters. A look-up raises as `parse_address`.
    """

    __slots__ = ("_entries_max",)

    def __init__(self, entries_max: int = 2048) -> None:
        super().__init__()
        self._entries_max = entries_max

    def __missing__(self, url: str) -> Address:
        bare, mark, query = url.partition("#")[0].partition("?")
        if bare == url:
            address = parse_address(url)
        else:  # often another query each time, of the same address
            path = self[bare].path
            address = self[bare]._replace(target=f"{path}{mark}{encode_query(query)}", joint=_joint(mark, query))
        if len(self) >= self._entries_max:
            self.clear()  # cheaper than to keep an order of use, and as rare as thousands of branch URLs
        self[url] = address
        return address
