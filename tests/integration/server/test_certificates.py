"""The names of a client's certificate, and a token beside it."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import ssl
from pathlib import Path
from typing import Final

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import Code, grpc_url, method
from tests.support.certificates import Certificates
from tests.support.fake_coordinator import Client, post
from tests.support.identities import bearer, token_of, write
from twophase.server.identity.gate import Gate
from twophase.server.identity.scopes import Scope

_SAN: Final = x509.ObjectIdentifier("2.5.29.17")
_DNS: Final = 0x82
"""The tag of a DNS name."""


def _with_raw_name(certificates: Certificates, name: bytes) -> tuple[Path, Path]:
    """Write a certificate with a DNS name of any bytes, and its key."""
    signing = serialization.load_pem_private_key(certificates.authority.private_key_pem.bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(certificates.ca.read_bytes())
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    entry = bytes((_DNS, len(name))) + name
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pay")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.UnrecognizedExtension(_SAN, bytes((0x30, len(entry))) + entry), critical=False)
        .sign(signing, hashes.SHA256())
    )
    certificate, key_file = certificates.folder / "raw-cert.pem", certificates.folder / "raw-key.pem"
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_file.touch(0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, key_file


NAMES = {
    "its name": ([("DNS", "kube.internal")], "kube"),
    "in upper case": ([("DNS", "KUBE.Internal")], "kube"),
    "twice": ([("DNS", "kube.internal"), ("DNS", "Kube.internal")], "kube"),
    "two names of one client": ([("DNS", "kube.internal"), ("DNS", "kube2.internal")], "kube"),
    "beside unknown ones": ([("DNS", "x.internal"), ("IP Address", "10.0.0.1"), ("DNS", "kube.internal")], "kube"),
    "names of two clients": ([("DNS", "kube.internal"), ("DNS", "pay.internal")], ""),
    "a letter that is k in lower case": ([("DNS", "\u212aube.internal")], ""),
    "a dot behind it": ([("DNS", "kube.internal.")], ""),
    "a NUL behind it": ([("DNS", "kube.internal\0.evil.example")], ""),
    "a list": ([("DNS", "kube.internal,DNS:pay.internal")], ""),
    "a wildcard over it": ([("DNS", "*.internal")], ""),
    "an address": ([("IP Address", "10.0.0.1")], ""),
    "a name of another kind": ([("email", "kube.internal"), ("URI", "kube.internal")], ""),
    "no name": ([], ""),
}


@pytest.mark.parametrize(("names", "owner"), NAMES.values(), ids=NAMES)
def test_a_certificate_names_the_client_whose_dns_names_it_has(
    tmp_path: Path, names: list[tuple[str, str]], owner: str
) -> None:
    write(tmp_path, "kube", [Scope.PRODUCE], san=("kube.internal", "Kube2.internal"))
    tokens = write(tmp_path, "pay", [Scope.PRODUCE], san=("pay.internal", "10.0.0.2"))
    gate = Gate(tokens)
    found = gate.with_certificate({"subject": ((("commonName", "kube.internal"),),), "subjectAltName": names})
    assert found.name == owner
    assert (found is gate.unknown) is (owner == "")


async def _connect(one: Running, context: ssl.SSLContext) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", one.port, ssl=context))


async def _codes(one: Running, certificates: Certificates, *authorizations: str) -> tuple[int, Code]:
    """Send the same over HTTP and gRPC with the certificate of `pay`."""
    files = certificates.client("pay.internal")
    client = await _connect(one, certificates.context(files))
    headers = [f"Authorization: {value}" for value in authorizations]
    body = b'{"gid":"g","trans_type":"msg","steps":[],"payloads":[],"query_prepared":"http://127.0.0.1:1/"}'
    status = (await client.ask(post("/api/dtmsvr/prepare", body, *headers))).status
    client.writer.transport.abort()
    certificate, key = files
    credentials = grpc.ssl_channel_credentials(certificates.ca.read_bytes(), key.read_bytes(), certificate.read_bytes())
    async with grpc.aio.secure_channel(grpc_url(one).removeprefix("grpcs://"), credentials) as channel:
        metadata = [("authorization", value) for value in authorizations]
        call = method(channel, "/dtmgimp.Dtm/NewGid")(b"", timeout=20, metadata=metadata)
        return status, await call.code()


async def test_a_token_beside_a_certificate_counts_alone(tmp_path: Path) -> None:
    """One that was revoked must not act as the certificate's client."""
    certificates = Certificates(tmp_path)
    write(tmp_path, "pay", [Scope.PRODUCE], san=("pay.internal",))
    write(tmp_path, "reader", [Scope.OBSERVE])
    tokens = write(tmp_path, "orders", [Scope.PRODUCE])
    own = f"Bearer {token_of('orders')}"
    async with running(tmp_path, grpc_port=0, tokens=tokens, **certificates.settings(client_ca=True)) as one:
        assert await _codes(one, certificates) == (200, Code.OK)
        assert await _codes(one, certificates, "Basic dTpw") == (200, Code.OK)
        assert await _codes(one, certificates, f"Bearer {token_of('reader')}") == (403, Code.PERMISSION_DENIED)
        assert await _codes(one, certificates, "Bearer tp_revoked") == (401, Code.UNAUTHENTICATED)
        assert (await _codes(one, certificates, own, own))[1] == Code.UNAUTHENTICATED
        client = await _connect(one, certificates.context(certificates.client("pay.internal")))
        for token in ("tp_revoked", token_of("reader")):
            assert (await client.ask(post(f"/t/{token}/api/dtmsvr/prepare", b"{}", *bearer("orders")))).status == 401
        client.close()


@pytest.mark.parametrize("grpc", [False, True])
async def test_a_name_that_is_no_text_is_refused_without_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, grpc: bool
) -> None:
    certificates = Certificates(tmp_path)
    context = certificates.context(_with_raw_name(certificates, b"pay\xff.internal"))
    if grpc:
        context.set_alpn_protocols(["h2"])
    async with running(tmp_path, grpc_port=0, **certificates.settings(client_ca=True)) as one:
        port = int(grpc_url(one).rpartition(":")[2]) if grpc else one.port
        for _ in range(3):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                assert await reader.read() == b""
                writer.close()
            except (ConnectionError, ssl.SSLError):
                continue
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
