"""The certificates of a client: which files count, and what is refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.support.certificates import Certificates
from twophase.core.errors import ConfigurationError
from twophase.core.trust import NO_FILES, Trust, context_of, trust_of

HTTPS = "https://pay:36789"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWOPHASE_CA", "TWOPHASE_CLIENT_CERTIFICATE", "TWOPHASE_CLIENT_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_without_files_the_usual_context_counts() -> None:
    assert trust_of() == NO_FILES
    assert context_of(HTTPS) is None


def test_files_that_are_given_count_before_those_of_the_environment(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = certificates.client("orders")
    monkeypatch.setenv("TWOPHASE_CA", "environment.pem")
    monkeypatch.setenv("TWOPHASE_CLIENT_CERTIFICATE", str(certificate))
    monkeypatch.setenv("TWOPHASE_CLIENT_KEY", str(key))
    assert trust_of() == Trust("environment.pem", str(certificate), str(key))
    assert trust_of(ca=certificates.ca) == Trust(str(certificates.ca), str(certificate), str(key))
    both = certificates.folder / "both.pem"
    both.touch(0o600)
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    assert trust_of("", both) == Trust("", str(both), "")


def test_an_address_without_tls_needs_no_context(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOPHASE_CA", "no-such-file")
    assert context_of("http://pay:36789") is None
    context = context_of(HTTPS, Trust(str(certificates.ca)))
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_the_files_are_read_again_into_a_context(certificates: Certificates) -> None:
    certificate, key = certificates.client("orders")
    trust = Trust(str(certificates.ca), str(certificate), str(key))
    context = trust.context()
    other = Certificates(certificates.folder / "..").ca
    Trust(str(other)).reread(context)
    assert len(context.get_ca_certs()) == 2
    Trust().reread(context)
    assert trust.pem() == (certificates.ca.read_bytes(), key.read_bytes(), certificate.read_bytes())
    assert Trust(client_certificate=str(certificate)).pem()[1] == certificate.read_bytes()


@pytest.mark.parametrize("field", ["ca", "client_certificate"])
def test_a_file_that_cannot_be_used_is_named(certificates: Certificates, field: str) -> None:
    trust = Trust(**{field: "no-such-file"})
    with pytest.raises(ConfigurationError, match=f"{field}.*: no-such-file cannot be used: No such file"):
        trust.context()
    with pytest.raises(ConfigurationError, match="no-such-file cannot be used"):
        trust.reread(ssl.create_default_context())
    with pytest.raises(ConfigurationError, match="no-such-file cannot be used"):
        trust.pem()


def test_a_key_alone_a_missing_one_or_one_for_every_user_is_refused(certificates: Certificates) -> None:
    certificate, key = certificates.client("orders")
    with pytest.raises(ConfigurationError, match="client_key needs client_certificate"):
        trust_of(client_key=key)
    with pytest.raises(ConfigurationError, match="client_key: no-such-file cannot be used"):
        trust_of(client_certificate=certificate, client_key="no-such-file")
    key.chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"client_key: .*every user of this machine may use the file"):
        trust_of(client_certificate=certificate, client_key=key)
