"""A branch's payload as bytes.

It is JSON that states the given value, or a refusal that names what JSON cannot state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from twophase.core import limits
from twophase.core.errors import InvalidRequest
from twophase.core.limits import require


def _fields(value: Any) -> Any:
    """Return the fields of a pydantic model.

    The model is recognized by its method, without importing the library.
    """
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} has no JSON form; give its fields")
    return dump(mode="json")


_encode = msgspec.json.Encoder(enc_hook=_fields).encode


def payload_bytes(payload: Any, *, takes_bytes: bool = False) -> bytes:
    """A payload as it is sent: bytes as they are, else JSON; None is empty.

    Arguments:
        takes_bytes: any bytes will do; dtm's HTTP wire is JSON text, so there they must be UTF-8.

    Raises:
        InvalidRequest: neither JSON-able nor UTF-8; NaN and infinity are not JSON.
        LimitExceeded: larger than one branch's body may be.

    >>> payload_bytes({"amount": 30}), payload_bytes(b"raw"), payload_bytes(None)
    (b'{"amount":30}', b'raw', b'')
    """
    if payload is None:
        return b""
    if isinstance(payload, bytes | bytearray | memoryview):
        body = bytes(payload)
        try:
            if not takes_bytes:
                body.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(
                "payload is bytes that are not UTF-8; encode them (base64) first, or use the server's grpc:// address."
            ) from None
    else:
        body = _json(payload)
    require(limits.PAYLOAD_BYTES_MAX, len(body))
    return body


def _json(payload: Any) -> bytes:
    try:
        body = _encode(payload)
        # The encoder writes NaN as null without an error, so a null is checked twice.
        impossible = _no_numbers(msgspec.to_builtins(payload, enc_hook=_fields)) if b"null" in body else ()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"payload cannot be written as JSON: {str(error).rstrip('.')}.") from error
    for path, number in impossible:
        raise InvalidRequest(f"payload{path} is {number}, which JSON cannot say; leave it out, or give None.")
    return body


def _no_numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Paths to the floats that are no numbers, in builtin values."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _no_numbers(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for position, item in enumerate(value):
            yield from _no_numbers(item, f"{path}[{position}]")
