"""Messages to a coordinator at https:// or grpcs://, with trust and without."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tests.support.certificates import Certificates
from tests.support.one_try import one_try
from twophase import AsyncClient, Client, RetryPolicy
from twophase.barrier import install
from twophase.errors import (
    ConfigurationError,
    CoordinatorUnreachable,
    Fate,
    NotPrepared,
    TlsFailed,
    TwophaseError,
)
from twophase.testing import InProcessCoordinator

ENDPOINTS = pytest.mark.parametrize("endpoint", [Client, AsyncClient])
SCHEMES = pytest.mark.parametrize("scheme", ["https", "grpcs"])


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWOPHASE_CA", "TWOPHASE_CLIENT_CERTIFICATE", "TWOPHASE_CLIENT_KEY"):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def _serving(certificates: Certificates, *, client_ca: bool = False) -> Iterator[InProcessCoordinator]:
    with InProcessCoordinator(grpc_port=0, **certificates.settings(client_ca=client_ca)) as coordinator:
        yield coordinator


def _url(coordinator: InProcessCoordinator, scheme: str) -> str:
    return coordinator.url if scheme == "https" else coordinator.grpc_url


def _submit(endpoint: Any, url: str, gid: str, *, tried_once: bool = False, **options: Any) -> None:
    client = one_try(endpoint(url, **options)) if tried_once else endpoint(url, **options)
    message = client.message(gid).add("http://127.0.0.1:1/in", {})
    if endpoint is Client:
        with client:
            message.submit()
        return

    async def submit() -> None:
        async with client:
            await message.submit()

    asyncio.run(submit())


def _refused(endpoint: Any, url: str, **options: Any) -> TwophaseError:
    with pytest.raises(TwophaseError) as raised:
        _submit(endpoint, url, "refused", **options)
    return raised.value


@SCHEMES
@ENDPOINTS
def test_a_private_authority_and_a_client_certificate_are_given_as_files(
    certificates: Certificates, endpoint: Any, scheme: str
) -> None:
    certificate, key = certificates.client("orders")
    with _serving(certificates, client_ca=True) as coordinator:
        url = _url(coordinator, scheme)
        assert url.startswith(f"{scheme}://")
        _submit(endpoint, url, "g1", ca=certificates.ca, client_certificate=certificate, client_key=key)
        assert coordinator.query("g1") is not None


@ENDPOINTS
def test_the_environment_names_the_files_as_well(
    certificates: Certificates, endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = certificates.client("orders")
    monkeypatch.setenv("TWOPHASE_CA", str(certificates.ca))
    monkeypatch.setenv("TWOPHASE_CLIENT_CERTIFICATE", str(certificate))
    monkeypatch.setenv("TWOPHASE_CLIENT_KEY", str(key))
    with _serving(certificates, client_ca=True) as coordinator:
        _submit(endpoint, coordinator.url, "g1")
        assert coordinator.query("g1") is not None


@SCHEMES
@ENDPOINTS
def test_an_unknown_authority_is_an_error_at_once_and_nothing_is_sent(
    certificates: Certificates, endpoint: Any, scheme: str
) -> None:
    with _serving(certificates) as coordinator:
        error = _refused(endpoint, _url(coordinator, scheme), retry=RetryPolicy(total=600))
        assert isinstance(error, TlsFailed)
        assert "submit was not sent" in error.message
        assert "the certificate is not trusted" in error.message
        assert "its authority is unknown" in error.message
        assert "ca=" in error.remedy
        assert error.fate is Fate.UNCHANGED
        assert coordinator.query("refused") is None


@SCHEMES
@ENDPOINTS
@pytest.mark.parametrize(
    ("issued", "words", "remedy"),
    [
        ({"names": ("other.example",)}, "it names another server", "Use a name that is in the server's certificate"),
        ({"names": ("127.0.0.1",), "expired": True}, "it has expired", "Renew the server's certificate"),
    ],
    ids=["other name", "expired"],
)
def test_another_name_and_an_expired_certificate_are_named(
    certificates: Certificates, endpoint: Any, scheme: str, issued: dict[str, Any], words: str, remedy: str
) -> None:
    certificates.issue(*issued["names"], expired=issued.get("expired", False))
    with _serving(certificates) as coordinator:
        error = _refused(endpoint, _url(coordinator, scheme), ca=certificates.ca)
        assert isinstance(error, TlsFailed)
        assert words in error.message
        assert remedy in error.remedy


@ENDPOINTS
def test_a_server_without_tls_behind_an_https_address_is_named(certificates: Certificates, endpoint: Any) -> None:
    with InProcessCoordinator() as coordinator:
        error = _refused(endpoint, coordinator.url.replace("http:", "https:"), ca=certificates.ca)
        assert isinstance(error, TlsFailed)
        assert "the server there speaks no TLS" in error.message
        assert "Write http://" in error.remedy


@ENDPOINTS
def test_a_server_without_tls_behind_a_grpcs_address_is_named(certificates: Certificates, endpoint: Any) -> None:
    with InProcessCoordinator(grpc_port=0) as coordinator:
        url = coordinator.grpc_url.replace("grpc:", "grpcs:")
        error = _refused(endpoint, url, ca=certificates.ca, tried_once=True)
        assert isinstance(error, CoordinatorUnreachable)
        assert "does the server speak TLS?" in error.message


@ENDPOINTS
def test_a_client_without_the_certificate_that_is_demanded_learns_why(
    certificates: Certificates, endpoint: Any
) -> None:
    with _serving(certificates, client_ca=True) as coordinator:
        error = _refused(endpoint, coordinator.url, ca=certificates.ca, tried_once=True)
        assert isinstance(error, CoordinatorUnreachable)
        assert "tls_client_ca" in error.message
        assert coordinator.query("refused") is None


@ENDPOINTS
def test_an_address_without_tls_of_a_server_with_tls_is_named(certificates: Certificates, endpoint: Any) -> None:
    with _serving(certificates) as coordinator:
        error = _refused(endpoint, coordinator.url.replace("https:", "http:"), tried_once=True)
        assert isinstance(error, CoordinatorUnreachable)
        assert "is it https?" in error.message


def test_the_local_transaction_does_not_begin_without_trust(certificates: Certificates, tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'bank.db'}")
    install(engine)
    began = False
    with _serving(certificates) as coordinator, Client(coordinator.url) as client:
        message = client.message().add("http://127.0.0.1:1/in", {})
        with pytest.raises(NotPrepared) as raised, message.transaction(engine, check="http://a/check"):
            began = True
    engine.dispose()
    assert not began
    assert raised.value.fate is Fate.NOT_STARTED
    assert "its authority is unknown" in raised.value.message
    assert "ca=" in raised.value.remedy
    assert "new message" in raised.value.remedy


def test_many_messages_are_each_told(certificates: Certificates) -> None:
    with _serving(certificates) as coordinator, Client(coordinator.url) as client:
        messages = [client.message(f"g{number}").add("http://127.0.0.1:1/in", {}) for number in range(2)]
        assert [type(outcome.error) for outcome in client.submit_many(messages)] == [TlsFailed, TlsFailed]


@ENDPOINTS
def test_files_that_cannot_be_meant_are_refused_where_the_client_is_made(
    certificates: Certificates, endpoint: Any
) -> None:
    with pytest.raises(ConfigurationError, match="need an https:// or grpcs:// url"):
        endpoint("http://pay", ca=certificates.ca)
    with pytest.raises(ConfigurationError, match="exclude each other"):
        endpoint("https://pay", ca=certificates.ca, ssl_context=certificates.context())
    for url in ("https://pay", "grpcs://pay"):
        with pytest.raises(ConfigurationError, match="ca: no-such-file cannot be used"):
            endpoint(url, ca="no-such-file")


def test_a_context_for_an_address_without_tls_is_not_used(certificates: Certificates) -> None:
    with InProcessCoordinator() as coordinator:
        _submit(Client, coordinator.url, "g1", ssl_context=certificates.context())
        assert coordinator.query("g1") is not None
