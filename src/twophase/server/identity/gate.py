"""The gate: finds out who sends a request, from what came with it.

A token stands in `Authorization: Bearer`, in gRPC's metadata, or, for clients that know nothing but a base URL, at the
beginning of the path: `/t/TOKEN/api/dtmsvr`. A certificate's DNS name stands for a token where `tls_client_ca` is set
and the request has no token: one that was revoked must not act as the certificate's client.
Promise: a token that came in a path may only produce, because paths are logged by others; it leaves the path here, so
nothing behind the gate sees it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Final

from twophase.coordinator.owners import Owners as CoordinatorsOwners
from twophase.server.codecs.sight import Sight, hidden_headers
from twophase.server.identity.caller import Caller, unknown
from twophase.server.identity.quotas import Meter, Owners
from twophase.server.identity.refusals import Refusals
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Token, digest_of, plain_name, read_token_file

_IN_PATH: Final = b"/t/"
_ORIGIN_BEFORE: Final = re.compile(rb"https?://[^/?]+(?=/t/)", re.IGNORECASE)
"""The origin before a token, in a whole URL (RFC 9112 §3.2.2)."""
_AUTHORIZATION: Final = b"authorization"
_BEARER: Final = b"bearer"
_PRODUCE_ALONE: Final = frozenset({Scope.PRODUCE})


class Gate:
    """Knows the callers of a server.

    Arguments:
        tokens: the file of tokens; empty: every client may do everything.
        hidden: names of headers whose values are never shown, separated by commas; None: the usual ones.
        owners: count what waits of each owner, for quotas.
        refusals: notes refusals by scope.

    Raises:
        ConfigurationError: the file cannot be read, or an entry of it cannot work.
    """

    def __init__(
        self,
        tokens: str = "",
        hidden: str | None = None,
        owners: Owners | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._file = Path(tokens) if tokens else None
        self._hidden = Sight().hidden if hidden is None else hidden_headers(hidden)
        self._owners = CoordinatorsOwners() if owners is None else owners
        self.anonymous = Caller(sight=Sight(hidden=self._hidden), limited=False)
        self._refusals = refusals
        self.unknown = self.anonymous if self._file is None else unknown(refusals)
        """A caller that gives no token; a certificate may name it."""
        self.mistaken = self.anonymous if self._file is None else unknown(refusals)
        """A caller that gives a wrong token, or two."""
        self.tokens: tuple[Token, ...] = ()
        """The entries that are in force."""
        self.owner_uid: int | None = None
        """The operating system's user who owns the file; None without a file."""
        self._by_digest: dict[str, Caller] = {}
        self._by_name: dict[str, Caller] = {}
        self._entries: dict[str, Token] = {}
        self._by_owner: dict[str, list[Caller]] = {}
        self.on_reread: list[Callable[[], None]] = []
        """Called after each reading of the file.

        Callers that are remembered are outdated then.
        """
        self.reread()

    @property
    def is_open(self) -> bool:
        """True when there are no tokens, so no client is asked for one."""
        return self._file is None

    def reread(self) -> None:
        """Read the file again; on an error what was read before stays in force.

        Requests under way are held to what is read now.

        Raises:
            ConfigurationError: as for the constructor.
        """
        if self._file is None:
            return
        tokens, owner_uid = read_token_file(self._file)
        meters: dict[str, Meter] = {}
        callers = [(token, self._caller(token, meters)) for token in tokens]
        self._by_digest = _renewed(
            self._by_digest, ((token.sha256, caller) for token, caller in callers if token.sha256)
        )
        self._by_name = _renewed(
            self._by_name, ((plain_name(name), caller) for token, caller in callers for name in token.san)
        )
        self._entries = {plain_name(name): token for token in tokens for name in token.san}
        self.tokens = tokens
        self.owner_uid = owner_uid
        self._by_owner = {}
        for token, caller in callers:
            self._by_owner.setdefault(token.name, []).append(caller)
        self._owners.may_call = self.may_call
        self._owners.calls_max = {token.name: token.quota.calls_in_flight for token in tokens}.get
        self._owners.wanted = any(token.quota.bounds_waiting for token in tokens)
        for outdate in self.on_reread:
            outdate()

    def identify(self, url: bytes, fields: Mapping[bytes, bytes]) -> tuple[bytes, Caller]:
        """Return the path of an HTTP request without a token, and the caller."""
        origin = _ORIGIN_BEFORE.match(url)
        if origin is not None:
            url = url[origin.end() :]
        if url.startswith(_IN_PATH):
            token, slash, rest = url[len(_IN_PATH) :].partition(b"/")
            caller = self.with_token(token)
            return slash + rest, caller if caller.scopes == _PRODUCE_ALONE else self.mistaken
        return url, self.anonymous if self._file is None else self.among(fields.items())

    def among(self, fields: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Return the caller whose token is in these headers; two tokens name no caller."""
        found = [value for name, value in fields if len(name) == len(_AUTHORIZATION) and name.lower() == _AUTHORIZATION]
        if len(found) != 1:
            return self.mistaken if found else self.unknown
        scheme, _, token = found[0].partition(b" ")
        return self.with_token(token.strip()) if scheme.lower() == _BEARER else self.unknown

    def with_token(self, token: bytes) -> Caller:
        """Return the caller of a token, compared in constant time."""
        given = digest_of(token.decode("latin-1"))
        found = self.mistaken
        for digest, caller in self._by_digest.items():
            if hmac.compare_digest(digest, given):
                found = caller
        return found

    def with_certificate(self, certificate: Mapping[str, Any] | None) -> Caller:
        """Return the caller that a verified certificate names.

        Names of two entries name no caller. The certificate is what `ssl.SSLSocket.getpeercert` returns.
        """
        names: Iterable[tuple[str, str]] = (certificate or {}).get("subjectAltName", ())
        found = {self._entries.get(plain_name(name)): name for kind, name in names if kind == "DNS"}
        found.pop(None, None)
        return self._by_name[plain_name(*found.values())] if len(found) == 1 else self.unknown

    def may_call(self, owner: str, urls: Iterable[str], protocol: str) -> bool:
        """Return True when a token of this owner allows these addresses.

        A message without an owner is from before the tokens; an owner whose tokens are revoked names no new address.
        """
        wanted = tuple(urls)
        callers = self._by_owner.get(owner, ())
        return not owner or any(all(caller.allows(url, protocol) for url in wanted) for caller in callers)

    def _caller(self, token: Token, meters: dict[str, Meter]) -> Caller:
        meter = None
        if token.quota.is_metered:
            meter = meters.setdefault(token.name, Meter(token.name, token.quota, self._owners))
        return Caller(
            token.name,
            frozenset(token.scopes),
            Sight(Scope.PAYLOAD in token.scopes, self._hidden),
            gid_prefix=token.gid_prefix,
            destinations=token.destinations,
            refusals=self._refusals,
            meter=meter,
        )


def _renewed(known: Mapping[str, Caller], entries: Iterable[tuple[str, Caller]]) -> dict[str, Caller]:
    """Return the callers of the entries, by digest or by name.

    One that is known stays the same object, which requests under way hold; one without an entry is revoked.
    """
    callers: dict[str, Caller] = {}
    for key, entry in entries:
        callers[key] = known[key] if key in known else copy(entry)
        callers[key].become(entry)
    for key in known.keys() - callers.keys():
        known[key].revoke()
    return callers
