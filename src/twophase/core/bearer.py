"""The `Authorization` of a client that has a token."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from twophase.core.credentials import secret_of
from twophase.core.errors import ConfigurationError
from twophase.core.shell import argument

TOKEN_VARIABLE: Final = "TWOPHASE_TOKEN"  # noqa: S105 -- the variable's name
_TOKEN_BYTES_MAX: Final = 4096


def authorization_of(token: str | None = None, authorization: str | None = None) -> str | None:
    """Return the value of the header; None without a token.

    It is made of the token, or of `TWOPHASE_TOKEN`, or is `authorization` itself. Each may be `env:NAME` or
    `file:PATH`.

    Raises:
        ConfigurationError: both are given, one has a character that no header may have, or `secret_of` refuses it.

    >>> authorization_of("tp_x"), authorization_of(authorization="Basic YTpi")
    ('Bearer tp_x', 'Basic YTpi')
    """
    if token is not None and authorization is not None:
        raise ConfigurationError("token and authorization exclude each other: both are the Authorization header.")
    if authorization is None:
        token = os.environ.get(TOKEN_VARIABLE) if token is None else token
        if not token:
            return None
        authorization = f"Bearer {secret_of(token)}"
    else:
        authorization = secret_of(authorization)
    if not (authorization.isascii() and authorization.isprintable()):
        raise ConfigurationError("the token or authorization contains a control or non-ASCII character.")
    return authorization


def token_in(file: Path) -> str:
    """Return the token that stands alone in a file.

    Raises:
        ConfigurationError: the file cannot be read, or others may read it.
    """
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode & 0o777
            if mode & 0o077:
                why = f"--token-file: others may read {file} (mode {mode:04o})."
                raise ConfigurationError(why, remedy=f"chmod 600 {argument(str(file))}")
            token = opened.read(_TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigurationError(f"--token-file: {file} cannot be read: {error.strerror}.") from error
    if not token:
        raise ConfigurationError(f"--token-file: {file} is empty.")
    return token
