"""The certificates of a destination: its authority, and the coordinator's own.

Promise: a file that cannot be used stops the start, by an error that names the file; no call falls back to the system's
certificate authorities, or goes without the client certificate.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from twophase.core.errors import ConfigurationError


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


def _read(file: str) -> bytes | None:
    return Path(file).read_bytes() if file else None


def _unusable(field: str, files: str, error: Exception) -> ConfigurationError:
    why = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
    return ConfigurationError(f"destinations: {field}: {files} cannot be used: {why}.")
