"""A private authority, and the files of the certificates that it signs."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import trustme


class Certificates:
    """The authority's `ca.pem`, and the server's `cert.pem` and `key.pem`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.certificate, self.key = self.issue("127.0.0.1")

    def issue(
        self,
        *names: str,
        file: str = "cert",
        key_file: str = "key",
        authority: trustme.CA | None = None,
        expired: bool = False,
    ) -> tuple[Path, Path]:
        """Write a certificate of these names, and its key; return the files."""
        ends = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1) if expired else None
        begins = None if ends is None else ends - dt.timedelta(days=1)
        issued = (authority or self.authority).issue_cert(*names, not_before=begins, not_after=ends)
        certificate, key = self.folder / f"{file}.pem", self.folder / f"{key_file}.pem"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.touch(0o600)
        key.write_bytes(issued.private_key_pem.bytes())
        return certificate, key

    def client(self, name: str, authority: trustme.CA | None = None) -> tuple[Path, Path]:
        """Write a client's certificate and key; return the files."""
        return self.issue(name, file=f"{name}-cert", key_file=f"{name}-key", authority=authority)

    def settings(self, *, client_ca: bool = False) -> dict[str, str]:
        """Return the server's settings."""
        files = {"tls_certificate": str(self.certificate), "tls_key": str(self.key)}
        return files | ({"tls_client_ca": str(self.ca)} if client_ca else {})

    def arguments(self, *, client_ca: bool = False) -> list[str]:
        """Return the same for a command line."""
        return [
            part for name, file in self.settings(client_ca=client_ca).items() for part in ("--set", f"{name}={file}")
        ]

    def context(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return a client's context, which trusts the authority alone."""
        context = ssl.create_default_context(cafile=self.ca)
        if client is not None:
            context.load_cert_chain(*client)
        return context
