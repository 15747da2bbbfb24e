"""Clients with tokens: the file that a server reads, and the header of a request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Quota, Token, changing, digest_of


def token_of(name: str) -> str:
    """Return the token that `write` gives a client."""
    return f"tp_token-of-{name}"


def bearer(name: str | None) -> tuple[str, ...]:
    """Return the header that carries a client's token; none for no client."""
    return () if name is None else (f"Authorization: Bearer {token_of(name)}",)


def write(
    folder: Path,
    name: str,
    scopes: Iterable[Scope],
    *,
    gid_prefix: str = "",
    destinations: tuple[str, ...] = (),
    san: tuple[str, ...] = (),
    quota: Quota | None = None,
) -> str:
    """Add a client to the file of tokens in a folder; return the file's name."""
    file = folder / "tokens.toml"
    digest = "" if san else digest_of(token_of(name))
    with changing(file) as entries:
        entries.append(Token(name, tuple(scopes), digest, san, gid_prefix, destinations, quota or Quota()))
    return str(file)
