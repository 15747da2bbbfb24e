"""Changes of the file of tokens, noted in the audit log.

The file changes outside every transaction of the store. Promise: what a server has read, at its start or at SIGHUP, is
compared with what the store has noted last, and each name that came, went or changed is a row, once, whichever node or
worker reads it first. The row's `who` is the owner of the file: no other user but root may write it.
"""

from __future__ import annotations

import asyncio
import contextlib
import pwd
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from twophase.coordinator.background import Background, rest
from twophase.core.audit_log import AuditEntry, TokensSeen
from twophase.core.errors import StoreError
from twophase.server.identity.tokens import Token

_AGAIN_S: Final = 60.0
_EVER_S: Final = 86_400.0
_START_S_MAX: Final = 5.0
"""Bound of the first note: a directory service may hang."""
_DIGEST_SHOWN: Final = 16
_log = structlog.get_logger("twophase.server")


class TokenStore(Protocol):
    """The part of a store that notes tokens."""

    async def tokens_seen(self) -> TokensSeen: ...

    async def note_tokens(self, known: TokensSeen, now: dict[str, str], entries: Sequence[AuditEntry]) -> bool: ...


class TokensInForce(Protocol):
    """The entries that a server has read last, and the owner of their file."""

    tokens: tuple[Token, ...]
    owner_uid: int | None


class TokenChanges:
    """Notes the tokens that a server has read.

    Arguments:
        store: keeps what was noted.
        in_force: has the entries that are in force.
    """

    def __init__(self, store: TokenStore, in_force: TokensInForce) -> None:
        self._store = store
        self._in_force = in_force
        self._background = Background("twophase tokens")
        self._woken = asyncio.Event()

    async def start(self) -> None:
        """Note the tokens now, before a client comes, and after each `wake`.

        A start waits for the note a few seconds at most.
        """
        pause_s = _AGAIN_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_S_MAX):
                pause_s = await self._noted()
        self._background.start(self._loop(pause_s))

    async def stop(self) -> None:
        """Note nothing more. Safe to call twice."""
        await self._background.stop()

    def wake(self) -> None:
        """Note the tokens: the file was read again."""
        self._woken.set()

    async def note(self) -> None:
        """Write a row for each name that came, went or changed since the last note.

        Raises:
            StoreError: they cannot be read or written.
        """
        while True:
            now, owner_uid = described(self._in_force.tokens), self._in_force.owner_uid
            known = await self._store.tokens_seen()
            if now == known.by_name:
                return
            # In a thread: the name may come from a directory service.
            who = "" if owner_uid is None else await asyncio.to_thread(user_name, owner_uid)
            if await self._store.note_tokens(known, now, _changes(known.by_name, now, who)):
                return

    async def _loop(self, pause_s: float) -> None:
        while True:
            await rest(pause_s, self._woken)
            self._woken.clear()
            pause_s = await self._noted()

    async def _noted(self) -> float:
        """Note the tokens, and return the pause until the next time."""
        try:
            await self.note()
        except StoreError as error:
            _log.error("a change of tokens is not in the audit log yet", code=error.code, what=error.message)
            return _AGAIN_S
        return _EVER_S


def described(tokens: Iterable[Token]) -> dict[str, str]:
    """Return what each name may do; of a digest its beginning, and no token.

    >>> from twophase.server.identity.scopes import Scope
    >>> described([Token("shop", (Scope.PRODUCE,), "ab" * 32, gid_prefix="shop-")])
    {'shop': 'produce, sha256 abababababababab, gid prefix shop-'}
    """
    found: dict[str, list[str]] = {}
    for token in tokens:
        found.setdefault(token.name, []).append(_description(token))
    return {name: "; ".join(sorted(entries)) for name, entries in found.items()}


def _description(token: Token) -> str:
    parts = [" ".join(sorted(token.scopes))]
    parts += [f"sha256 {token.sha256[:_DIGEST_SHOWN]}"] if token.sha256 else []
    parts += [f"san {' '.join(token.san)}"] if token.san else []
    parts += [f"gid prefix {token.gid_prefix}"] if token.gid_prefix else []
    parts += [f"destinations {' '.join(token.destinations)}"] if token.destinations else []
    parts += [f"{name} {value}" for name, value in msgspec.structs.asdict(token.quota).items() if value is not None]
    return ", ".join(parts)


def user_name(uid: int) -> str:
    """Return the name of an operating system's user, or the number of one without it.

    >>> user_name(0), user_name(2**31 - 2)
    ('root', '2147483646')
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return str(uid)


def _changes(known: dict[str, str], now: dict[str, str], who: str) -> list[AuditEntry]:
    reason = "the file of tokens, which this user owns, was read" if who else "the server has no file of tokens"
    return [
        AuditEntry(who, "", "token", name, reason, known.get(name, ""), now.get(name, ""))
        for name in sorted(known.keys() | now.keys())
        if known.get(name) != now.get(name)
    ]
