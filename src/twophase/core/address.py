"""Names in an address's query that belong to the coordinator.

An address that carries one is refused.

The coordinator appends `gid`, `branch_id`, `op` and `trans_type` to each call, `prepared_at` to a check-back, and our
SDK `barrier` to a check address. A framework that takes the first of two values would read the address's own: two
branches would become one to the receiver's barrier, and the second would be lost. So no API takes such an address.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_plus

from twophase.core.credentials import without_credentials
from twophase.core.errors import DestinationRefused, InvalidRequest

TOPIC_PREFIX: Final = "topic://"
IDENTITY_PARAMETER: Final = "barrier"
"""The parameter of a check address with the identity of the producer's database."""
RESERVED_PARAMETERS: Final = frozenset({"gid", "branch_id", "op", "trans_type", "prepared_at"})
"""Parameters that the coordinator itself gives to its calls."""
DESTINATION_REFUSED: Final = "destination_refused: "
"""The first word of the reason why an address that could be called is not."""
_SHOWN_MAX: Final = 200
_MISSPELLED_SCHEME: Final = re.compile("(https?|grpcs?)(?::/|//)/*(?=[^/])", re.IGNORECASE)
_UP_TO_HOST: Final = re.compile(r"\W*(?:\w[\w+.-]*:///*|(?:https?|grpcs?)(?::/|//)/*)?", re.IGNORECASE)
_LOGIN: Final = re.compile(r"[^/?#]*@|[^/?#\s@:\[]*:(?!\d+(?:[/?#\s]|$)).*@", re.DOTALL)
_HIDDEN_LOGIN: Final = "***@"
_SEPARATOR: Final = re.compile("[&;]")  # some servers still separate parameters by semicolons


def why_reserved(url: str, *, identities_max: int = 0) -> str:
    """Return why no message may name this address; empty when one may.

    Arguments:
        url: the address; a topic's name always passes.
        identities_max: the most times that `barrier` may be there: 1 in a check address, 0 in a branch's.

    >>> why_reserved("http://b/in?tenant=7"), why_reserved("http://a/check?barrier=7f", identities_max=1)
    ('', '')
    >>> why_reserved("http://b/in?tenant=7&%67id=8")
    "its query has the parameter 'gid', which the coordinator sets in each call; give it another name"
    >>> why_reserved("http://a/check?barrier=7f&barrier=8a", identities_max=1)
    "its query has the parameter 'barrier' twice; it must name one database"
    """
    if "?" not in url or url.startswith(TOPIC_PREFIX):
        return ""  # nearly all
    identities = 0
    for name in parameters_of(url):
        if name in RESERVED_PARAMETERS:
            return (
                f"its query has the parameter {name!r}, which the coordinator sets in each call; give it another name"
            )
        identities += name == IDENTITY_PARAMETER
    if identities <= identities_max:
        return ""
    if identities_max:
        return f"its query has the parameter {IDENTITY_PARAMETER!r} twice; it must name one database"
    return f"its query has the parameter {IDENTITY_PARAMETER!r}, which only a check address has; give it another name"


def refused_address(field: str, why_not: str, gid: str | None = None) -> InvalidRequest:
    """Return the error of a request that names an address which is not called.

    Arguments:
        field: where the address stands, with a colon and a blank.
        why_not: as the destination gives it.
        gid: of the message, when there is one.

    >>> refused_address("url: ", "destination_refused: it is not listed").code, refused_address("", "bad_url: x").code
    ('TP-1005', 'TP-1000')
    """
    kind = DestinationRefused if why_not.startswith(DESTINATION_REFUSED) else InvalidRequest
    return kind(f"{field}{why_not}", gid=gid)


def why_no_scheme(url: str) -> str:
    """Return the fault of an address without a scheme.

    It names the address that was probably meant.

    >>> why_no_scheme("localhost:1/in"), why_no_scheme("/in")
    ("'localhost:1/in' has no scheme; write http://localhost:1/in", "'/in' has no scheme and no host")
    """
    shown = shown_address(url)[:_SHOWN_MAX]
    if url[:1].isalnum() or url.startswith("["):
        return f"{shown!r} has no scheme; write {with_scheme(shown)}"
    return f"{shown!r} has no scheme and no host"


def shown_address(text: str) -> str:
    """Return an address without its login and passwords, as an error may show it.

    It may be one that is refused: without a scheme, or with a blank in it.

    >>> [shown_address(f"{scheme}eve:se/cr et@b/in") for scheme in ("", "http//", "http://")]
    ['***@b/in', 'http//***@b/in', 'http://***@b/in']
    """
    found = _UP_TO_HOST.match(text)
    begin = found.end() if found else 0
    login = _LOGIN.match(text, begin)
    return without_credentials(f"{text[:begin]}{_HIDDEN_LOGIN}{text[login.end() :]}" if login else text)


def with_scheme(text: str) -> str:
    """Return the address that a text without `://` probably means.

    A login that `shown_address` left out stays out.

    >>> with_scheme("b/in"), with_scheme("https//b/in"), with_scheme("http:/b/in"), with_scheme("http:8080/in")
    ('http://b/in', 'https://b/in', 'http://b/in', 'http://http:8080/in')
    """
    misspelled = _MISSPELLED_SCHEME.match(text)
    scheme = misspelled[1].lower() if misspelled else "http"
    return f"{scheme}://{text[misspelled.end() if misspelled else 0 :].removeprefix(_HIDDEN_LOGIN)}"


def with_identity(check_url: str, identity: str) -> str:
    """Return a check address that names the database it asks (rule 6).

    >>> with_identity("http://a/check?tenant=1#top", "7f")
    'http://a/check?tenant=1&barrier=7f#top'
    """
    address, hash_sign, fragment = check_url.partition("#")
    joint = "&" if "?" in address else "?"
    return f"{address}{joint}{IDENTITY_PARAMETER}={quote(identity, safe='')}{hash_sign}{fragment}"


def parameters_of(url: str) -> list[str]:
    """Return the names in an address's query, decoded as a server decodes them.

    >>> parameters_of("http://b/in?a=1&%62=2;c#d=4")
    ['a', 'b', 'c']
    """
    query = url.partition("#")[0].partition("?")[2]
    return [unquote_plus(pair.partition("=")[0]) for pair in _SEPARATOR.split(query)]
