"""Destinations with certificates of their own, and the coordinator with one."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import grpc
import pytest
import trustme

from tests.integration.server.running import running
from tests.integration.server.test_grpc_branches import Bank
from tests.support.scripted_server import OK, answering, serving
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.server.app import Server
from twophase.server.destinations import AllowedDestination
from twophase.server.settings import Settings


class Certificates:
    """Files of a private authority, and a certificate of the coordinator's."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        own = self.authority.issue_cert("coordinator@twophase.example")
        self.certificate, self.key = folder / "own.pem", folder / "own.key"
        own.cert_chain_pems[0].write_to_path(self.certificate)
        self.key.touch(0o600)
        own.private_key_pem.write_to_path(self.key)
        self.of_service = self.authority.issue_cert("127.0.0.1")

    def destination(self, url: str, *, named: bool) -> AllowedDestination:
        own = (str(self.certificate), str(self.key)) if named else ("", "")
        return AllowedDestination("bank", url, "", "", False, {}, 0, str(self.ca), *own)

    def context(self) -> ssl.SSLContext:
        """Return a service's, which demands a client certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        self.of_service.configure_cert(context)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """A private authority."""
    return Certificates(tmp_path)


async def _outcome(tmp_path: Path, destination: AllowedDestination, url: str) -> tuple[State, str]:
    async with running(tmp_path, destinations=(destination,), grpc_port="off") as one:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        one.server.coordinator.submit(Message("g", (Branch(url, b"{}"),)), future.set_result)
        await future
        async with asyncio.timeout(60):
            while True:
                view = await one.view("g")
                if view.log or view.state is State.SUCCEEDED:
                    return view.state, view.log[0].error if view.log else ""
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("named", [True, False])
async def test_https_calls_trust_the_destinations_authority_and_show_their_certificate(
    tmp_path: Path, certificates: Certificates, named: bool
) -> None:
    async with serving(answering(OK)).running(certificates.context()) as bank:
        state, error = await _outcome(tmp_path, certificates.destination(bank.url, named=named), f"{bank.url}/in")
        assert len(bank.requests) == int(named)
    assert (state is State.SUCCEEDED, bool(error)) == (named, not named)


def test_a_key_that_every_user_may_use_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    certificates.key.chmod(0o644)
    destination = certificates.destination("https://127.0.0.1:1", named=True)
    with pytest.raises(ConfigurationError, match=r"destinations: bank: client_key: .* every user of this machine"):
        Server(Settings(store=f"sqlite:///{tmp_path / 'store.db'}", destinations=(destination,)))


@pytest.mark.parametrize("named", [True, False])
async def test_grpc_calls_trust_the_destinations_authority_and_show_their_certificate(
    tmp_path: Path, certificates: Certificates, named: bool
) -> None:
    bank = Bank()
    chain = b"".join(blob.bytes() for blob in certificates.of_service.cert_chain_pems)
    pair = (certificates.of_service.private_key_pem.bytes(), chain)
    await bank.start(0, grpc.ssl_server_credentials([pair], certificates.ca.read_bytes(), require_client_auth=True))
    url = bank.url("In", "grpcs://")
    root = url.partition("/bank.Bank")[0]
    state, error = await _outcome(tmp_path, certificates.destination(root, named=named), url)
    await bank.stop()
    assert (state is State.SUCCEEDED, error.startswith("gRPC UNAVAILABLE")) == (named, not named)
    assert len(bank.calls) == int(named)


async def test_an_authority_of_another_destination_is_not_trusted(tmp_path: Path, certificates: Certificates) -> None:
    async with serving(answering(OK)).running(certificates.context()) as bank:
        other = certificates.destination("https://127.0.0.1:1", named=True)
        async with running(tmp_path, destinations=(other, AllowedDestination("b", bank.url)), grpc_port="off") as one:
            one.server.coordinator.submit(Message("g", (Branch(f"{bank.url}/in", b"{}"),)), lambda _: None)
            view = await one.until_logged("g")
        assert "the certificate is not trusted" in view.log[0].error
        assert bank.requests == []


@pytest.mark.parametrize("scheme", ["https", "grpcs"])
async def test_a_renewed_certificate_is_shown_after_the_files_were_read_again(
    tmp_path: Path, certificates: Certificates, scheme: str
) -> None:
    other, good = trustme.CA().issue_cert("coordinator@twophase.example"), certificates.certificate.read_bytes()
    good_key = certificates.key.read_bytes()
    other.cert_chain_pems[0].write_to_path(certificates.certificate)
    other.private_key_pem.write_to_path(certificates.key)
    bank = Bank()
    chain = b"".join(blob.bytes() for blob in certificates.of_service.cert_chain_pems)
    pair = (certificates.of_service.private_key_pem.bytes(), chain)
    await bank.start(0, grpc.ssl_server_credentials([pair], certificates.ca.read_bytes(), require_client_auth=True))
    async with serving(answering(OK)).running(certificates.context()) as http:
        url = f"{http.url}/in" if scheme == "https" else bank.url("In", "grpcs://")
        root = url.removesuffix("/in").removesuffix("/bank.Bank/In")
        listed = (certificates.destination(root, named=True),)
        async with running(tmp_path, destinations=listed, grpc_port="off") as one:
            one.server.coordinator.submit(Message("g", (Branch(url, b"{}"),)), lambda _: None)
            assert (await one.until_logged("g")).log[0].status == 0
            certificates.key.write_bytes(b"no key")
            one.server.reread()
            certificates.key.write_bytes(good_key)
            certificates.certificate.write_bytes(good)
            one.server.reread()
            async with asyncio.timeout(60):
                while (await one.view("g")).state is not State.SUCCEEDED:
                    one.advance(1_000)
                    await asyncio.sleep(0.02)
    await bank.stop()


@pytest.mark.parametrize("field", ["ca", "client_certificate"])
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_cannot_be_used_stops_the_start(
    tmp_path: Path, certificates: Certificates, field: str, content: str | None
) -> None:
    file = tmp_path / "wrong.pem"
    if content is not None:
        file.write_text(content)
        file.chmod(0o600)
    entry = AllowedDestination("bank", "grpcs://bank:1", **{field: str(file)})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=f"destinations: {field}.*wrong.pem cannot be used"):
        Server(Settings(store=f"sqlite:///{tmp_path / 'store.db'}", destinations=(entry,)))
