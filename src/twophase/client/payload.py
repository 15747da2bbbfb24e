"""A branch's payload as bytes.

It is JSON that states the given value, or a refusal that names what JSON cannot state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import msgspec

from twophase.core import limits
from twophase.core.errors import InvalidRequest
from twophase.core.limits import require


def _fields(value: Any) -> Any:
    """Return the fields of a pydantic model.

    The model is recognized by its method, without importing the library.

    Raises:
        TypeError: no model, or one with a secret, of which pydantic writes stars; or a row of SQLModel that lacks
            fields, which pydantic leaves out.
    """
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} has no JSON form; give its fields")
    row = getattr(value, "_sa_instance_state", None)
    if row is not None and (lacking := row.unloaded.intersection(type(value).model_fields)):
        raise TypeError(
            f"{type(value).__name__} is a row whose {', '.join(sorted(lacking))} is not loaded, as after a commit; "
            "refresh it first"
        )
    fields = dump(mode="json")
    if _STARS in str(fields) and any(hasattr(one, "get_secret_value") for _, one in _leaves(dump())):
        raise TypeError(f"{type(value).__name__} holds a secret, whose JSON is stars; give its get_secret_value()")
    return fields


_STARS: Final = "*" * 10
"""The text that pydantic writes for each secret."""
_suspicious = re.compile(rb'null|NaN|Infinity|"-?(?:nan|inf)"').search
"""Finds how the encoder writes numbers that JSON has not; a text may look so too."""
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
        # The encoder writes numbers that JSON has not without an error, so a body with such a word is checked twice.
        if _suspicious(body):
            _require_numbers(msgspec.to_builtins(payload, enc_hook=_fields, builtin_types=(Decimal,)))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"payload cannot be written as JSON: {str(error).rstrip('.')}.") from error
    return body


def _require_numbers(payload: Any) -> None:
    """Refuse NaN and infinity in builtin values; raises InvalidRequest."""
    for path, leaf in _leaves(payload):
        finite = leaf.is_finite() if isinstance(leaf, Decimal) else not isinstance(leaf, float) or math.isfinite(leaf)
        if not finite:
            raise InvalidRequest(f"payload{path} is {leaf}, which JSON does not have; leave it out, or give None.")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths to the values and keys inside builtin containers."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.keys()", key
            yield from _leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for position, item in enumerate(value):
            yield from _leaves(item, f"{path}[{position}]")
    else:
        yield path, value
