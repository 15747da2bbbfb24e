"""The certificate of the server's ports, and the authority of its clients.

Promise: a file that cannot be used stops the start, by an error that names the setting; at a later reading it changes
nothing. A new reading makes new contexts, so connections that are open keep the certificate that they began with, and
an authority that is no longer in its file is not trusted any more.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

from twophase.core.credentials import require_private
from twophase.core.errors import ConfigurationError

HTTP_1: Final = "http/1.1"
HTTP_2: Final = "h2"
_REMEDIES: Final = {
    "tls_certificate": "Name a PEM file with the server's certificate, followed by its intermediates.",
    "tls_key": "Name a PEM file with the certificate's private key, not encrypted, of mode 0600.",
    "tls_client_ca": "Name a PEM file with the certificates of the authority that signs those of clients.",
}


class ServerTls:
    """The contexts of both ports, by the protocol that they speak (ALPN).

    Arguments:
        certificate, key, client_ca: PEM files, as the settings of these names; `client_ca` may be empty.

    Raises:
        ConfigurationError: a file cannot be read or used; names the setting.
    """

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        self._files = (certificate, key, client_ca)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.reread()

    def context(self, protocol: str) -> ssl.SSLContext:
        """Return the context for new connections that speak `protocol`."""
        return self._contexts[protocol]

    def reread(self) -> None:
        """Read the files again; after an error the earlier contexts stay.

        Raises:
            ConfigurationError: as for the constructor.
        """
        self._contexts = {protocol: _context(*self._files, protocol) for protocol in (HTTP_1, HTTP_2)}


def tls_of(certificate: str, key: str, client_ca: str) -> ServerTls | None:
    """Return the ports' TLS; None for plain text, where no file is named.

    Raises:
        ConfigurationError: as `ServerTls`, and where one file needs another.
    """
    if bool(certificate) != bool(key):
        raise ConfigurationError("tls_certificate, tls_key: one needs the other.", remedy=_REMEDIES["tls_key"])
    if client_ca and not certificate:
        raise ConfigurationError(
            "tls_client_ca: needs tls_certificate and tls_key, too.", remedy=_REMEDIES["tls_certificate"]
        )
    return ServerTls(certificate, key, client_ca) if certificate else None


class _Tls(ssl.SSLObject):
    """TLS of one connection."""

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: FBT001, FBT002 -- the base class's
        """Return the client's certificate.

        Raises:
            ssl.SSLError: a name in it is no text. The base class's error would fill the log.
        """
        try:
            return super().getpeercert(binary_form)
        except UnicodeDecodeError as error:
            raise ssl.SSLError("a name in the certificate is no text") from error


def _context(certificate: str, key: str, authority: str, protocol: str) -> ssl.SSLContext:
    _require_pem("tls_certificate", certificate, b"CERTIFICATE-----")
    _require_pem("tls_key", key, b"PRIVATE KEY-----")
    require_private("tls_key", Path(key))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.sslobject_class = _Tls
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([protocol])
    try:
        # The password: an encrypted key is refused, where OpenSSL would ask the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise _refused("tls_key", f"{key} is not the key of the certificate in {certificate}.") from error
        raise _refused("tls_certificate, tls_key", f"{certificate} and {key} cannot be used: {_why(error)}.") from error
    if authority:
        _require_pem("tls_client_ca", authority, b"CERTIFICATE-----")
        try:
            context.load_verify_locations(authority)
        except (OSError, ssl.SSLError) as error:
            raise _refused("tls_client_ca", f"{authority} cannot be used: {_why(error)}.") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _require_pem(setting: str, file: str, what: bytes) -> None:
    """Refuse a file that OpenSSL cannot use; its own error names no file."""
    try:
        content = Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise _refused(setting, f"{file} cannot be read: {_why(error)}.") from error
    if what not in content:
        raise _refused(setting, f"{file} has no {what.decode().removesuffix('-----').lower()} in PEM form.")


def _why(error: Exception) -> str:
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return str(why).replace("_", " ").lower()


def _refused(setting: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{setting}: {why}", remedy=_REMEDIES.get(setting, _REMEDIES["tls_key"]))
