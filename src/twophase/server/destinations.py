"""The entries of the setting `destinations`: addresses, and how they are called.

Promise: a secret stands in no setting and in no message. An entry names it by `env:NAME` or `file:PATH`, it is looked
up at the start, and an error shows the name alone.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from twophase.core.credentials import is_reference, require_private, secret_of
from twophase.core.errors import ConfigurationError
from twophase.core.headers import why_no_header, why_no_metadata
from twophase.core.signature import key_of
from twophase.core.trust import NO_FILES, Trust, is_tls
from twophase.destinations.allow_list import AllowList, Listed

_Text = Annotated[str, Meta(min_length=1)]
FIELDS_SHOWN: Final = (
    "key (env:NAME or file:PATH) and key_id, which sign each call; signed_verdicts; headers, whose values may be"
    " env:NAME or file:PATH; in_flight, ca, client_certificate and client_key, which apply to scheme, host and port"
)


class AllowedDestination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of `destinations`: calls may go to addresses that begin with `url`.

    `key` and the values of `headers` are references to secrets, or a header's plain value; all files are PEM.
    """

    name: _Text
    url: _Text
    key: str = ""
    key_id: str = ""
    signed_verdicts: bool = False
    headers: dict[str, str] = {}
    in_flight: Annotated[int, Meta(ge=0)] = 0
    ca: str = ""
    client_certificate: str = ""
    client_key: str = ""


def allow_list_of(entries: Iterable[AllowedDestination]) -> AllowList:
    """Return the list, with every secret looked up.

    Raises:
        ConfigurationError: an entry cannot be one, or names a secret that is not there.
    """
    entries = tuple(entries)
    if len({one.name for one in entries}) < len(entries):
        raise ConfigurationError("destinations: two entries have one name.")
    try:
        return AllowList([_listed(one) for one in entries])
    except ValueError as error:
        raise ConfigurationError(f"destinations: {error}.") from error


def contexts_of(allowed: AllowList) -> dict[str, ssl.SSLContext]:
    """Return the contexts for HTTPS, by `scheme://host:port`.

    Raises:
        ConfigurationError: a file cannot be used, also one for gRPC, which reads it again for each channel.
    """
    try:
        return {key: trust.context() for key, trust in allowed.trust.items()}
    except ConfigurationError as error:
        raise ConfigurationError(f"destinations: {error.message}", remedy=error.remedy) from error


def _listed(entry: AllowedDestination) -> Listed:
    where = f"destinations: {entry.name}:"
    if entry.key and not is_reference(entry.key):
        raise ConfigurationError(f"{where} key must be env:NAME or file:PATH; settings must not contain a secret.")
    if bool(entry.key) != bool(entry.key_id):
        raise ConfigurationError(f"{where} key and key_id belong together.")
    if entry.signed_verdicts and not entry.key:
        raise ConfigurationError(f"{where} signed_verdicts needs key and key_id.")
    if entry.client_key and not entry.client_certificate:
        raise ConfigurationError(f"{where} client_key needs client_certificate.")
    trust = Trust(entry.ca, entry.client_certificate, entry.client_key)
    if trust != NO_FILES and not is_tls(entry.url):
        raise ConfigurationError(f"{where} ca and client_certificate need an https:// or grpcs:// url.")
    try:
        _require_private_key(trust)
        return Listed(
            entry.url,
            key_of(entry.key_id, secret_of(entry.key)) if entry.key else None,
            entry.signed_verdicts,
            _headers(entry.url, entry.headers),
            trust,
            entry.in_flight,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{where} {error.message}", remedy=error.remedy) from error


def _require_private_key(trust: Trust) -> None:
    """Refuse a key that every user of this machine may use.

    A missing file is refused where it is read.
    """
    key = trust.client_key or trust.client_certificate
    if key:
        with contextlib.suppress(OSError):
            require_private("client_key", Path(key))


def _headers(url: str, references: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    headers = tuple([(name, secret_of(value)) for name, value in references.items()])
    for name, value in headers:
        why_not = why_no_header(name, value)
        if not why_not and url.lower().startswith("grpc"):
            why_not = why_no_metadata("", [(name, value)])
        if why_not:
            raise ConfigurationError(f"headers: {why_not}")
    return headers
