"""The file of tokens: who may send requests, and what each may do.

The file is TOML and holds no token, only the SHA-256 of each. Promise: it is read and written only where no user but
its owner can read it, and a crash leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from twophase.core.errors import ConfigurationError
from twophase.core.shell import argument
from twophase.server.identity.scopes import Scope

TOKENS_MAX: Final = 1_000
TOKEN_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_PREFIX: Final = "tp_"
"""Begins every token, so that a scanner for secrets finds it."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]*")

Number = Annotated[int, Meta(ge=1, le=1 << 50)]


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The bounds of one owner at one node; None: none.

    `bytes_stored` and `waiting_messages` count messages that are not final; `calls_in_flight` bounds the calls of its
    messages' branches, and as many check-backs besides.
    """

    requests_per_s: Number | None = None
    bytes_stored: Number | None = None
    waiting_messages: Number | None = None
    calls_in_flight: Number | None = None

    @property
    def is_metered(self) -> bool:
        """True where requests or waiting messages are bounded, and so counted."""
        return self.bounds_waiting or self.requests_per_s is not None

    @property
    def bounds_waiting(self) -> bool:
        """True where what waits is bounded, by number or by bytes."""
        return self.bytes_stored is not None or self.waiting_messages is not None


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of the file: a client with a token, or with a name in its certificate.

    Arguments:
        name: the owner of its messages; two entries of one name are one owner.
        scopes: the requests that it may make.
        sha256: of the token, in hexadecimal digits; empty for a client that has only a certificate.
        san: DNS names of its certificate.
        gid_prefix: the beginning of every gid that it may name.
        destinations: prefixes of the addresses that its messages may call; none: every address.
        quota: its bounds.
    """

    name: str
    scopes: tuple[Scope, ...]
    sha256: str = ""
    san: tuple[str, ...] = ()
    gid_prefix: str = ""
    destinations: tuple[str, ...] = ()
    quota: Quota = Quota()


class TokenFile(NamedTuple):
    """A file of tokens as it was read.

    `owner_uid`: the user of the operating system who owns it.
    """

    tokens: tuple[Token, ...]
    owner_uid: int


class _File(msgspec.Struct, forbid_unknown_fields=True):
    token: tuple[Token, ...] = ()


def fresh_token() -> str:
    """Return a new token of 32 random bytes, in characters that a URL may hold."""
    return _PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest_of(token: str) -> str:
    """Return what the file holds of a token.

    >>> digest_of("tp_x")[:8]
    'c2635c96'
    """
    return hashlib.sha256(token.encode()).hexdigest()


def plain_name(name: str) -> str:
    """Return one spelling of a DNS name; other letters than ASCII's stay as they are.

    >>> plain_name("Pay.internal"), plain_name("\u212aube.internal").isascii()
    ('pay.internal', False)
    """
    return name.lower() if name.isascii() else name


def read_tokens(file: Path) -> tuple[Token, ...]:
    """Return the entries of a file.

    Raises:
        ConfigurationError: as `read_token_file`.
    """
    return read_token_file(file).tokens


def read_token_file(file: Path) -> TokenFile:
    """Return the entries of a file, and its owner.

    Raises:
        ConfigurationError: it cannot be read, others may read it, or an entry cannot work.
    """
    try:
        # A pipe would block the server until a process writes into it.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise _refused(f"{file} is not a regular file.")
            mode = stat.S_IMODE(found.st_mode)
            if mode & 0o077:
                raise _refused(f"others may read {file} (mode {mode:04o}).", remedy=f"chmod 600 {argument(str(file))}")
            text = opened.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _refused(f"{file} cannot be read: {error.strerror}.") from error
    if len(text) > _FILE_BYTES_MAX:
        raise _refused(f"{file} has more than {_FILE_BYTES_MAX} bytes.")
    try:
        tokens = msgspec.convert(tomllib.loads(text.decode()), _File).token
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _refused(f"{file} is not a file of tokens: {error}.") from error
    _validate(tokens, file)
    return TokenFile(tokens, found.st_uid)


def _validate(tokens: Sequence[Token], file: Path) -> None:
    if len(tokens) > TOKENS_MAX:
        raise _refused(f"{file} has {len(tokens)} tokens, at most {TOKENS_MAX} are allowed.")
    for token in tokens:
        if not _NAME.fullmatch(token.name):
            raise _refused(f"{file}: name {token.name[:80]!r} is not 1 to 64 letters, digits, dots and dashes.")
        if not token.scopes:
            raise _refused(f"{file}: {token.name} has no scope.")
        if token.sha256 and not re.fullmatch("[0-9a-f]{64}", token.sha256):
            raise _refused(f"{file}: sha256 of {token.name} is not 64 hexadecimal digits in lower case.")
        if not token.sha256 and not token.san:
            raise _refused(f"{file}: {token.name} has neither sha256 nor san, so no client could be it.")
        for text in (token.gid_prefix, *token.destinations, *token.san):
            if not _PRINTABLE.fullmatch(text):
                raise _refused(f"{file}: {token.name} has a value with unprintable characters.")
    quotas = {token.name: token.quota for token in tokens}
    for token in tokens:
        if token.quota != quotas[token.name]:
            raise _refused(f"{file}: the entries of {token.name} have different quotas; they are one owner.")
    known = [one.sha256 for one in tokens if one.sha256] + [plain_name(name) for one in tokens for name in one.san]
    if len(set(known)) != len(known):
        raise _refused(f"{file}: two entries have one sha256 or one san.")


@contextlib.contextmanager
def changing(file: Path) -> Iterator[list[Token]]:
    """Yield the entries of a file for changes, and write what they are at the end.

    Other commands wait meanwhile. A file that does not exist has no entries.

    Raises:
        ConfigurationError: as `read_tokens`, or the file cannot be written.
    """
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _refused(f"{file} cannot be written: {error.strerror}.") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        tokens = list(read_tokens(file)) if file.exists() else []
        yield tokens
        _validate(tokens, file)
        _write(file, tokens, folder)
    finally:
        os.close(folder)


def _write(file: Path, tokens: Sequence[Token], folder: int) -> None:
    new = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            os.fchmod(opened.fileno(), 0o600)
            opened.write("\n".join(_toml(token) for token in tokens))
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file.resolve())
        os.fsync(folder)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise _refused(f"{file} cannot be written: {error.strerror}.") from error


def _toml(token: Token) -> str:
    fields = msgspec.to_builtins(token)
    quota = fields.pop("quota", {})
    # Every text is printable ASCII, whose JSON is TOML.
    lines = ["[[token]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items())]
    if quota:
        lines += ["[token.quota]", *(f"{name} = {value}" for name, value in quota.items())]
    return "\n".join(lines) + "\n"


def _refused(why: str, remedy: str = "See `twophase token --help`.") -> ConfigurationError:
    return ConfigurationError(f"tokens: {why}", remedy=remedy)
