"""Global ids: made here, validated here.

A gid is the idempotency key of a message, for ever. Ours carry their birth time, so that a coordinator whose
history has been cleaned can still refuse a gid it must once have known (correctness rule 15):
`tp` + 10 characters of milliseconds since 1970 + 16 characters of randomness, in Crockford's base 32, lower
case; so they sort by birth, which databases reward. Foreign gids (dtm's, the application's own) are taken as
they are: 1 to 128 bytes of UTF-8 without control characters.
"""

from __future__ import annotations

import os
from typing import Final

from twophase.core.errors import InvalidRequest
from twophase.core.limits import GID_BYTES_MAX, require

PROBE_GID: Final = "twophase-probe"
"""The gid of probes of check addresses (`core.probe`).

No message has it, so no row of a barrier has it either.
"""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGITS = frozenset(_ALPHABET)
_PREFIX = "tp"
_TIME_CHARACTERS = 10
_RANDOM_CHARACTERS = 16
_BORN_MS_END = 2**48
RANDOM_BYTES = 10
GID_CHARACTERS = len(_PREFIX) + _TIME_CHARACTERS + _RANDOM_CHARACTERS


# Two digits at a time, because a gid is made for every message: a third of the time of one by one.
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)


def _base32(number: int, characters: int) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(5 * characters - 10, -10, -10)])


def make_gid(born_ms: int, randomness: bytes) -> str:
    """Make a gid.

    Arguments:
        born_ms: milliseconds since 1970-01-01 UTC, less than 2**48.
        randomness: exactly 10 random bytes (`RANDOM_BYTES`).

    >>> make_gid(1_700_000_000_000, bytes(10))
    'tp01hf7yat000000000000000000'
    """
    assert 0 <= born_ms < _BORN_MS_END, "birth time fits 48 bits"
    assert len(randomness) == RANDOM_BYTES, "ten bytes of randomness"
    return _PREFIX + _base32(born_ms, _TIME_CHARACTERS) + _base32(int.from_bytes(randomness), _RANDOM_CHARACTERS)


def fresh_gid(born_ms: int) -> str:
    """Return a new gid."""
    return make_gid(born_ms, os.urandom(RANDOM_BYTES))


def born_ms(gid: str) -> int | None:
    """Milliseconds since 1970 when `gid` was made; None for a gid that is not ours.

    The whole form is checked, not only the part that holds the time: a foreign gid that merely begins like one of
    ours must not be refused as too old.

    >>> born_ms("tp01hf7yat000000000000000000"), born_ms("order-17")
    (1700000000000, None)
    """
    digits = gid[len(_PREFIX) :]
    if len(gid) != GID_CHARACTERS or not gid.startswith(_PREFIX) or not _DIGITS.issuperset(digits):
        return None
    born = 0
    for digit in digits[:_TIME_CHARACTERS]:
        born = born << 5 | _ALPHABET.index(digit)
    return born if born < _BORN_MS_END else None


def lowest_gid(born_ms: int) -> str:
    """Return a text that no gid made at `born_ms` or later sorts before.

    Every gid that was made earlier sorts before it. So a text comparison finds the few gids that may be older than a
    horizon; `born_ms` then shows whether twophase made them.

    >>> lowest_gid(1_700_000_000_000) <= make_gid(1_700_000_000_000, bytes(10))
    True
    """
    return make_gid(born_ms, bytes(RANDOM_BYTES))


def validate_gid(gid: str) -> str:
    """Return `gid` when it may name a message.

    Raises:
        InvalidRequest: empty or reserved, or it contains a control character, a lone surrogate, or leading or trailing
            space.
        LimitExceeded: longer than 128 bytes of UTF-8.

    >>> validate_gid("order-17")
    'order-17'
    """
    if not gid:
        raise InvalidRequest("gid is empty.")
    if gid.isascii():
        size_bytes = len(gid)
        printable = gid.isprintable()
    else:
        try:
            size_bytes = len(gid.encode())
        except UnicodeEncodeError:
            raise InvalidRequest("gid is not valid UTF-8.") from None
        printable = gid.isprintable()
    if size_bytes > GID_BYTES_MAX.value:
        require(GID_BYTES_MAX, size_bytes)
    if gid == PROBE_GID:
        raise InvalidRequest(f"gid {PROBE_GID!r} is reserved: by it a coordinator probes check addresses.")
    if not printable:
        raise InvalidRequest("gid contains a control or other unprintable character.")
    if gid[0] == " " or gid[-1] == " ":
        raise InvalidRequest("gid begins or ends with a space.")
    return gid
