"""The refusal of secrets in the sink's options, which Spark shows.

A secret is named by a reference (`references`). A text that looks like a secret itself is refused without being
repeated. No more can be done: a secret under a name that does not show it looks like any other text.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from twophase.core.credentials import is_reference, without_credentials
from twophase.core.errors import ConfigurationError

_NAMED = re.compile(
    r"(?i)(?:.*[-_.])?"
    r"(?:authorization|cookie|credentials?|(?:ssl)?pass|sig|signature|(?:api|access)[-_]?key"
    r"|\w*?(?:password|passwd|pwd|secret|token))"
)
"""A header or parameter of such a name is a credential."""
_KEY = re.compile(r"(?i)(?:basic|bearer|digest|negotiate)\s")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PLACEHOLDER = re.compile(r"\$\{[^{}]+\}")
"""A placeholder: its value comes from a row."""
_EMPTY = re.compile(r"(?<=[?&;])[^?&;#=]*=(?=[&;#]|$)")
"""A parameter without a value, or with placeholders alone."""
_HEADER = "let a header carry it: branchHeaders takes env:NAME and file:PATH"


def require_no_secret_in(option: str, url: str) -> str:
    """Return an address or a template of one, when it may stand in a plan.

    >>> require_no_secret_in("url", "http://shipping/orders?region=eu@1")
    'http://shipping/orders?region=eu@1'
    >>> require_no_secret_in("urlTemplate", "http://shipping/${id}?password=${password}")
    'http://shipping/${id}?password=${password}'

    Raises:
        ConfigurationError: it carries a login, or a parameter whose name says that it is a credential.
    """
    plain = _PLACEHOLDER.sub("", url)
    plain = plain if _SCHEME.match(plain) else f"grpc://{plain}"
    for parameter in re.split(r"[&;]", plain.partition("?")[2].partition("#")[0]):
        name, _, value = parameter.partition("=")
        if value and _NAMED.fullmatch(unquote_plus(name)):
            raise ConfigurationError(
                f"Option {option} must not carry a secret, because Spark shows options; {_HEADER}."
            )
    rest = _EMPTY.sub("", plain)
    if without_credentials(rest) != rest:
        raise ConfigurationError(f"Option {option} must not carry a login, because Spark shows options; {_HEADER}.")
    return url


def require_no_secret_header(name: str, value: str) -> None:
    """Refuse a header whose value is a credential, and not a reference to one.

    Raises:
        ConfigurationError: its name or its value says so.
    """
    if not is_reference(value) and (_NAMED.fullmatch(name) or _KEY.match(value)):
        raise ConfigurationError(f"Option branchHeaders: {name} is env:NAME or file:PATH, because Spark shows options.")
