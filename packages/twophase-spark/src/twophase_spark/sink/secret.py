"""Secrets by reference: `env:NAME` or `file:PATH`.

The reference travels in Spark's plan, and is looked up where it is used. A text that looks like a secret itself is
refused without being repeated. No more can be done: a secret under a name that does not show it looks like any other
text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote_plus

from twophase.core.credentials import without_credentials
from twophase.core.errors import ConfigurationError

SECRET_BYTES_MAX = 8192
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


def is_reference(text: str) -> bool:
    """Return True when `text` names a secret instead of being one."""
    return text.startswith(("env:", "file:"))


def looked_up(option: str, text: str) -> str:
    """Return the value of a reference; any other text stands for itself.

    Raises:
        ConfigurationError: there is no such variable or file.
    """
    kind, _, name = text.partition(":")
    if kind == "env":
        value = os.environ.get(name, "").strip()
        if not value:
            raise ConfigurationError(
                f"Option {option} names the environment variable {name}, which Spark's Python does not have. Set it "
                "before the session is started, on a cluster also for the executors, or use file:…."
            )
        return value
    if kind == "file":
        try:
            with Path(name).open("rb") as file:
                return file.read(SECRET_BYTES_MAX).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigurationError(f"Option {option} names the file {name}, which cannot be read: {why}.") from None
    return text


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
