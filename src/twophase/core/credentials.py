"""Secrets by reference, and the part of a database's URL that may be shown.

That is host, port and name; the user and the password are left out.

Keeps one promise: no part of a password reaches a log line, the ready line or an error, also when it is typed with
characters that a URL should have encoded ('@', '/', '?', '#'), or stands among the parameters. Such a URL has no
certain end of its password; where the rest could be a piece of it, only the scheme is shown.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from twophase.core.errors import ConfigurationError
from twophase.core.shell import argument

_SECRET_BYTES_MAX: Final = 8192
_OF_OTHERS: Final = 0o007
_HIDDEN: Final = "…"
_DATABASES: Final = r"(?:postgres|postgresql|mysql|mariadb)(?:\+\w+)?"
_DATABASE: Final = re.compile(_DATABASES, re.IGNORECASE)
_DATABASE_URL: Final = re.compile(rf"\b{_DATABASES}://\S*", re.IGNORECASE)
_AFTER_URL: Final = "'\",.;:)]}>"
_HOST: Final = r"(?:\[[0-9a-f:.%]+\]|[\w.%-]*)(?::\d*)?"
_ADDRESS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^?#]*)?", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"[?&#]\w+=")
_WORD: Final = re.compile(r"\S+")
_LOGIN: Final = re.compile(r"(?<=://)(?:[^/?#\s]*@|[^/?#\s@:\[]*:(?!\d*(?:[/?#\s]|$))\S*@)")
_PASSWORD: Final = re.compile(r"(?i)\b((?:ssl)?pass(?:word|wd|file)?|pwd)=[^\s&]*")
_LOGIN_PASSWORD: Final = re.compile(r"://[^/?#\s@:\[]*:(?!\d*(?:[/?#\s]|$))[^\s@]\S*@")
_PARAMETER_PASSWORD: Final = re.compile(r"(?i)[?&](?:(?:ssl)?pass(?:word|wd)?|pwd)=[^\s&]")


def is_reference(text: str) -> bool:
    """Return True when `text` names a secret instead of being one."""
    return text.startswith(("env:", "file:"))


def secret_of(text: str) -> str:
    """Return the secret that `env:NAME` or `file:PATH` names.

    Any other text stands for itself. White space around it is left out: most files end with a line feed.

    Raises:
        ConfigurationError: there is no such variable or file, it is empty, longer than 8 KiB, or open to every user of
            this machine. Never shows a secret.

    >>> secret_of("plain")
    'plain'
    >>> secret_of("env:NO_SUCH_VARIABLE")
    Traceback (most recent call last):
    twophase.core.errors.ConfigurationError: TP-7000: env:NO_SUCH_VARIABLE: there is no such environment variable...
    """
    kind, _, name = text.partition(":")
    if kind == "env":
        value = os.environ.get(name)
        if value is None:
            raise ConfigurationError(f"env:{name}: there is no such environment variable.")
    elif kind == "file":
        try:
            with Path(name).open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(_SECRET_BYTES_MAX + 1)
            value = content.decode()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigurationError(f"file:{name}: the file cannot be read: {why}.") from None
        _require_private(f"file:{name}", name, mode)
        if len(content) > _SECRET_BYTES_MAX:
            raise ConfigurationError(f"file:{name}: the file is longer than {_SECRET_BYTES_MAX} bytes.")
    else:
        return text
    if not value.strip():
        raise ConfigurationError(f"{text}: there is nothing in it.")
    return value.strip()


def require_private(setting: str, file: Path) -> None:
    """Refuse a file with a secret that every user of this machine may use.

    Raises:
        ConfigurationError: it is such a file; names the setting.
        OSError: it is not there.
    """
    _require_private(f"{setting}: {file}", str(file), file.stat().st_mode)


def _require_private(what: str, name: str, mode: int) -> None:
    if stat.S_ISREG(mode) and mode & _OF_OTHERS:
        why = f"{what}: every user of this machine may use the file (mode {mode & 0o777:04o})."
        raise ConfigurationError(why, remedy=f"chmod 600 {argument(name)}")


def holds_password(url: str) -> bool:
    """Return True when a URL has a password, in its login or its parameters.

    >>> [holds_password(f"postgresql://{rest}") for rest in ("me:tiger@db/pay", "db/pay?password=x", "me@db:5432/pay")]
    [True, True, False]
    """
    return any(_LOGIN_PASSWORD.search(_up_to_a_login(word)) for word in url.split()) or bool(
        _PARAMETER_PASSWORD.search(url)
    )


def shown(url: str) -> str:
    """Return the URL of a store without its credentials.

    >>> shown("postgresql://me:se@c/r?et@db1:5433/twophase?sslmode=require")
    'postgresql://db1:5433/twophase'
    >>> shown("postgresql://db1/twophase?user=me&password=sec@ret")
    'postgresql://…'
    >>> shown("sqlite:///file.db")
    'sqlite:///file.db'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _HIDDEN if "@" in url or _PASSWORD.search(url) else url
    if _DATABASE.fullmatch(scheme) is None:
        return without_credentials(url)
    login, _, address = rest.rpartition("@")
    found = _ADDRESS.match(address)
    # An '@' behind a parameter is no end of a login; what is behind it may be the end of a password.
    if _PARAMETER.search(login) or found is None or address[found.end() : found.end() + 1] not in {"", "?", "#"}:
        return f"{scheme}://{_HIDDEN}"
    return f"{scheme}://{found[0]}"


def without_credentials(text: str) -> str:
    """Return `text` without the credentials of the URLs in it.

    A database's URL is returned as by `shown`.

    >>> without_credentials("sqlite:///file.db, postgresql://u:pw@h/db?password=x: refused; http://u:pw@bank/in?a=1")
    'sqlite:///file.db, postgresql://h/db: refused; http://***@bank/in?a=1'
    """
    if "://" in text:
        text = _DATABASE_URL.sub(_shown_there, text)
        text = _WORD.sub(_without_login, text)
    return _PASSWORD.sub(r"\1=***", text)


def _without_login(found: re.Match[str]) -> str:
    word = found[0]
    before = _up_to_a_login(word)
    return _LOGIN.sub("***@", before) + word[len(before) :] if "://" in before else word


def _up_to_a_login(word: str) -> str:
    """Return a word up to the last character that may end a login.

    From there on a pattern would look for one from each "://" to the end, which takes the square of the time.
    """
    return word[: word.rfind("@") + 1]


def _shown_there(found: re.Match[str]) -> str:
    url = found[0].rstrip(_AFTER_URL)
    return shown(url) + found[0][len(url) :]
