"""A body as the value that a handler takes.

Promise: a text about a body that cannot be read has names and types of fields, and no value of it.
"""

from __future__ import annotations

import functools
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.inspect import CustomType, Field, Type, type_info

from twophase.core.errors import ConfigurationError, PayloadUnreadable

P = TypeVar("P")

PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""A body that was compressed, when it is plain."""
_VALUE: Final = re.compile(r"'.*'", re.DOTALL)
"""A value in a text of msgspec's."""
_FIELDS_SHOWN: Final = 3


def plain(body: bytes, encoding: str) -> bytes:
    """Return a body as the producer's program gave it.

    Raises:
        PayloadUnreadable: it is not compressed as its encoding says, or too long.
    """
    if encoding != "gzip":
        return body
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:  # of any number of members
            text = stream.read(PLAIN_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise PayloadUnreadable("the body is not gzip, as its encoding says, or truncated.") from error
    if len(text) > PLAIN_BYTES_MAX or not body:
        raise PayloadUnreadable(f"the body is empty, or has more than {PLAIN_BYTES_MAX} bytes when it is plain.")
    return text


def require_readable(kind: Any) -> None:
    """Refuse a type that no body could be read as.

    Raises:
        ConfigurationError: so it is.
    """
    if kind in {bytes, str} or hasattr(kind, "model_validate_json"):
        return
    try:
        _decoder(kind)
        for part in _foreign(type_info(kind), set()):
            if not hasattr(part, "model_validate"):
                raise TypeError(f"{part!r} is of no kind that is read")
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"no JSON can be read as {kind!r}: {error}.",
            remedy="Take bytes, str, a dataclass, a msgspec Struct, a pydantic model, or containers of them.",
        ) from error


def _foreign(of: Any, seen: set[int]) -> Iterator[type]:
    """Return the classes in a type that msgspec does not know."""
    if isinstance(of, tuple):
        for part in of:
            yield from _foreign(part, seen)
    elif isinstance(of, CustomType):
        yield of.cls
    elif isinstance(of, Type | Field) and id(of) not in seen:
        seen.add(id(of))
        for name in of.__struct_fields__:
            yield from _foreign(getattr(of, name), seen)


def read_as(body: bytes, kind: type[P]) -> P:
    """Return a body as a value of a type.

    `bytes` is the body itself, `str` its text; every other type is read from JSON.

    Raises:
        PayloadUnreadable: it is no such value.

    >>> read_as(b'{"order":7}', dict[str, int])
    {'order': 7}
    >>> read_as(b'{"order":"secret"}', dict[str, int])
    Traceback (most recent call last):
    twophase.core.errors.PayloadUnreadable: TP-1023: Expected `int`, got `str` - at `$[...]`. ...
    """
    if kind is bytes:
        return cast("P", body)
    try:
        if kind is str:
            return cast("P", body.decode())
        validate = getattr(kind, "model_validate_json", None)
        if validate is not None:
            return cast("P", validate(body))
        decoder: msgspec.json.Decoder[P] = _decoder(kind)  # type: ignore[arg-type]  # types are hashable
        return decoder.decode(body)
    except UnicodeDecodeError as error:
        raise PayloadUnreadable("the body is not UTF-8 text.") from error
    except msgspec.MsgspecError as error:
        raise PayloadUnreadable(f"{_VALUE.sub('…', str(error))}.") from None  # its cause has the value
    except ValueError as error:
        raise PayloadUnreadable(f"{_described(error)}.") from None


@functools.lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_model)


def _model(kind: Any, value: Any) -> Any:
    """Return a pydantic model inside of another type.

    It is recognized by its method, without importing the library.
    """
    try:
        return kind.model_validate(value)
    except ValueError as error:
        raise ValueError(_described(error)) from None


def _described(error: ValueError) -> str:
    """Describe an error of pydantic's without the values in it."""
    listed = getattr(error, "errors", None)
    if listed is None:
        return "the body is not of the type that is wanted"
    found = listed(include_url=False, include_context=False, include_input=False)
    shown = [f"{one['type']} at {'.'.join(map(str, one['loc'])) or 'the top'}" for one in found[:_FIELDS_SHOWN]]
    return ", ".join(shown)
