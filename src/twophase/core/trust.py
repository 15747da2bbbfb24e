"""The certificates of a caller: whom it trusts, and its own.

The coordinator has them for a destination, a client for its coordinator. Promise: a file that cannot be used is an
error that names the file; no connection falls back to the system's certificate authorities, or goes without the client
certificate.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

import msgspec

from twophase.core.credentials import require_private
from twophase.core.errors import ConfigurationError

CA_VARIABLE: Final = "TWOPHASE_CA"
CERTIFICATE_VARIABLE: Final = "TWOPHASE_CLIENT_CERTIFICATE"
KEY_VARIABLE: Final = "TWOPHASE_CLIENT_KEY"
_TLS: Final = ("https://", "grpcs://")


class Trust(msgspec.Struct, frozen=True):
    """PEM files.

    Without `ca` the system's authorities count; the key may stand in the certificate's file.
    """

    ca: str = ""
    client_certificate: str = ""
    client_key: str = ""

    def context(self) -> ssl.SSLContext:
        """Read the files for HTTPS.

        Raises:
            ConfigurationError: one cannot be read or used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise _unusable("ca", self.ca, error) from error
        self._load_own(context)
        return context

    def reread(self, context: ssl.SSLContext) -> None:
        """Read the files again, into a context for the connections to come.

        An authority that is no longer in `ca` stays trusted until the process ends.

        Raises:
            ConfigurationError: one cannot be read or used.
        """
        try:
            if self.ca:
                context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            raise _unusable("ca", self.ca, error) from error
        self._load_own(context)

    def _load_own(self, context: ssl.SSLContext) -> None:
        if not self.client_certificate:
            return
        try:
            # The password: an encrypted key is refused, where OpenSSL would ask the terminal.
            context.load_cert_chain(self.client_certificate, self.client_key or None, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            files = " and ".join(filter(None, (self.client_certificate, self.client_key)))
            raise _unusable("client_certificate, client_key", files, error) from error

    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Read the files for gRPC: authorities, private key, certificate chain.

        Raises:
            ConfigurationError: one cannot be read.
        """
        key = self.client_key or self.client_certificate
        try:
            return _read(self.ca), _read(key), _read(self.client_certificate)
        except OSError as error:
            raise _unusable("ca, client_certificate, client_key", str(error.filename), error) from error


NO_FILES: Final = Trust()
File = str | os.PathLike[str]


def trust_of(ca: File | None = None, client_certificate: File | None = None, client_key: File | None = None) -> Trust:
    """Return a client's files: those given, else those of `TWOPHASE_CA` and its like.

    Raises:
        ConfigurationError: a key without a certificate, or one that every user of this machine may use.

    >>> trust_of(ca="ca.pem").ca
    'ca.pem'
    """
    if client_certificate is None:
        client_certificate = os.environ.get(CERTIFICATE_VARIABLE, "")
        client_key = client_key or os.environ.get(KEY_VARIABLE, "")
    trust = Trust(
        os.fspath(os.environ.get(CA_VARIABLE, "") if ca is None else ca),
        os.fspath(client_certificate),
        os.fspath(client_key or ""),
    )
    if trust.client_key and not trust.client_certificate:
        raise ConfigurationError("client_key needs client_certificate.", remedy="Name the certificate of the key, too.")
    key = trust.client_key or trust.client_certificate
    try:
        if key:
            require_private("client_key", Path(key))
    except OSError as error:
        raise _unusable("client_key", key, error) from error
    return trust


def context_of(url: str, trust: Trust | None = None) -> ssl.SSLContext | None:
    """Return the context for requests to a coordinator; None for the usual one.

    Arguments:
        url: its address; one without TLS needs no context.
        trust: the files; those of the environment by default.

    Raises:
        ConfigurationError: one of them cannot be read or used.

    >>> context_of("http://localhost:36789", Trust("no-such-file"))
    """
    if not is_tls(url):
        return None
    trust = trust_of() if trust is None else trust
    return None if trust == NO_FILES else trust.context()


def is_tls(url: str) -> bool:
    """Return True for an address that is called by TLS.

    >>> is_tls("HTTPS://pay"), is_tls("grpcs://pay"), is_tls("http://pay")
    (True, True, False)
    """
    return url.lower().startswith(_TLS)


def _read(file: str) -> bytes | None:
    return Path(file).read_bytes() if file else None


def _unusable(field: str, files: str, error: Exception) -> ConfigurationError:
    why = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
    return ConfigurationError(f"{field}: {files} cannot be used: {why}.", remedy="Name a PEM file that can be read.")
