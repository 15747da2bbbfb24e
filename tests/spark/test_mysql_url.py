"""The parameters of a MySQL URL: each takes effect, or is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql
import pytest
import trustme

from tests.servers.database import Address
from tests.servers.mariadb import MariadbServer
from tests.servers.plugin import running
from twophase.core.errors import CannotRead, ConfigurationError
from twophase_spark.locations import Role, parse_named
from twophase_spark.mysql_url import parameters_of
from twophase_spark.readers.database import open_database

pytestmark = pytest.mark.spark

MODES = {
    "": "",
    "ssl_mode=required": "REQUIRED",
    "ssl_mode=DISABLED": "DISABLED",
    "ssl_ca=ca.pem": "VERIFY_CA",
    "ssl_ca=ca.pem&ssl_verify_cert=true": "VERIFY_CA",
    "ssl_verify_cert=true": "VERIFY_CA",
    "ssl_verify_cert=false": "REQUIRED",
    "ssl_verify_identity=true": "VERIFY_IDENTITY",
    "ssl_verify_identity=false": "",
    "ssl_cert=own.pem&ssl_key=own.key": "REQUIRED",
    "ssl_mode=VERIFY_IDENTITY&ssl_ca=ca.pem": "VERIFY_IDENTITY",
    "charset=utf8mb4&unix_socket=%2Frun%2Fmysqld.sock": "",
}


@pytest.mark.parametrize(("query", "mode"), MODES.items())
def test_the_mode_follows_from_what_is_given(query: str, mode: str) -> None:
    assert parameters_of(f"mysql://me@db/bank?{query}").mode == mode


REFUSED = {
    "ssl_capath=/etc": "There is no option 'ssl_capath' of a MySQL URL. Did you mean ssl_ca",
    "local_infile=1": "Known: unix_socket, ssl_mode, ssl_ca, ssl_cert, ssl_key, ssl_verify_cert, ssl_verify_identity",
    "ssl_ca=a&ssl_ca=b": "Option ssl_ca is given 2 times",
    "ssl_ca=": "Option ssl_ca is empty",
    "ssl_mode=PREFERRED": "Option ssl_mode is one of DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY",
    "ssl_verify_cert=yes": "Option ssl_verify_cert is one of true, false",
    "charset=latin1": "Option charset is one of utf8mb4",
    "ssl_mode=REQUIRED&ssl_verify_cert=true": "give one of them",
    "ssl_verify_identity=true&ssl_verify_cert=false": "contradicts",
    "ssl_mode=REQUIRED&ssl_ca=ca.pem": "ssl_ca means nothing",
    "ssl_verify_cert=false&ssl_ca=ca.pem": "ssl_ca means nothing",
    "ssl_key=own.key": "ssl_key means nothing without ssl_cert",
    "ssl_mode=DISABLED&ssl_cert=own.pem": "ssl_cert means nothing",
}


@pytest.mark.parametrize(("query", "said"), REFUSED.items())
def test_what_would_do_nothing_is_refused_before_anything_is_opened(query: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_named(Role.CONSUMER, f"bank-b=mysql://me:tiger@db/bank?{query}#barrier")

    assert raised.value.message.startswith("--consumer bank-b: ")
    assert said in raised.value.message
    assert (raised.value.code, "tiger" in raised.value.message) == ("TP-7000", False)


@pytest.mark.parametrize("login", ["me:p?s3cr=x", "me:p?s3cr", "me:p?ssl_ca=s3cr", "me:p?ssl_mode=s3cr"])
def test_no_piece_of_a_password_with_a_question_mark_is_repeated(login: str) -> None:
    with pytest.raises(ConfigurationError, match="%3F") as raised:
        parse_named(Role.CONSUMER, f"b=mysql://{login}@db/bank")

    assert "s3cr" not in raised.value.message


class TlsMariadb(MariadbServer):
    """A MariaDB with a certificate, which also answers without TLS."""

    def __init__(self, certificate: trustme.LeafCert) -> None:
        super().__init__()
        self._certificate = certificate

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        super().make_data(directory, address, user)
        key, chain = directory / "server.key", directory / "server.pem"
        self._certificate.private_key_pem.write_to_path(key)
        chain.write_bytes(b"".join(pem.bytes() for pem in self._certificate.cert_chain_pems))
        owner = directory.stat()
        for file in (key, chain):
            os.chown(file, owner.st_uid, owner.st_gid)

    def command(self, directory: Path, address: Address) -> list[str]:
        files = [f"--ssl-cert={directory / 'server.pem'}", f"--ssl-key={directory / 'server.key'}"]
        return [*super().command(directory, address), *files]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_server(authority: trustme.CA) -> Iterator[MariadbServer]:
    """A server whose certificate names localhost, not 127.0.0.1."""
    with running(TlsMariadb(authority.issue_cert("localhost"))) as server:
        yield server


def cipher_of(url: str) -> str:
    """Return the cipher of the reader's connection; empty without TLS."""
    with open_database(parse_named(Role.CONSUMER, f"bank={url}")) as database:
        [(_, cipher)] = database.rows("show session status like 'Ssl_cipher'")
    return str(cipher)


@pytest.mark.mariadb
@pytest.mark.timeout(300)
def test_a_certificate_is_checked_as_the_url_says(
    tls_server: MariadbServer, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    trusted, stranger = (f"ssl_ca={quote(str(tmp_path / name))}" for name in ("ca.pem", "other.pem"))
    by_address = tls_server.url
    by_name = by_address.replace("127.0.0.1", "localhost")

    assert cipher_of(f"{by_address}?ssl_mode=DISABLED") == ""
    for url in (
        f"{by_address}?ssl_mode=REQUIRED",
        f"{by_address}?{trusted}",
        f"{by_address}?{trusted}&ssl_verify_cert=true",
        f"{by_name}?{trusted}&ssl_verify_identity=true",
    ):
        assert cipher_of(url)
    for url in (
        f"{by_address}?{stranger}",
        f"{by_address}?ssl_verify_cert=true",  # by the system's authorities
        f"{by_address}?{trusted}&ssl_verify_identity=true",
        f"{by_address}?{trusted}&ssl_mode=VERIFY_IDENTITY",
    ):
        with pytest.raises(CannotRead, match=r"(?i)certificate"):
            cipher_of(url)
    with pytest.raises(CannotRead, match=r"a file of ssl_ca, ssl_cert or ssl_key cannot be used"):
        cipher_of(f"{by_address}?ssl_ca={quote(str(tmp_path / 'none.pem'))}")


@pytest.mark.mariadb
@pytest.mark.timeout(300)
def test_a_server_without_tls_is_refused_where_tls_is_asked_for(mariadb_server: MariadbServer) -> None:
    with pytest.raises(CannotRead, match=r"(?i)ssl|encrypt"):
        cipher_of(f"{mariadb_server.url}?ssl_mode=REQUIRED")


@pytest.mark.mariadb
@pytest.mark.timeout(300)
def test_a_driver_that_goes_on_in_plain_text_is_refused(
    mariadb_server: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older PyMySQL does so where the server has no TLS."""
    connect = pymysql.connect

    def in_plain_text(**arguments: Any) -> Any:
        del arguments["ssl"]
        return connect(**arguments, ssl_disabled=True)

    monkeypatch.setattr(pymysql, "connect", in_plain_text)
    with pytest.raises(CannotRead, match="the connection is not encrypted"):
        cipher_of(f"{mariadb_server.url}?ssl_mode=REQUIRED")
