"""No message names an address that carries a parameter of the coordinator's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twophase import Message
from twophase.cli.database_url import read_url
from twophase.client.cleaner import BarrierCleaner
from twophase.client.draft import check_url_with
from twophase.client.horizons import Frozen, agree
from twophase.client.transport.grpc_wire import GrpcTarget
from twophase.core.address import RESERVED_PARAMETERS, parameters_of, refused_address, why_no_scheme, why_reserved
from twophase.core.errors import ConfigurationError, InvalidRequest
from twophase.dtm_import.target import Target
from twophase.server.advertised import why_no_address, why_no_url
from twophase.server.browsers import BrowserGuard
from twophase.server.destinations import AllowedDestination, allow_list_of


@pytest.mark.parametrize("name", sorted(RESERVED_PARAMETERS))
@pytest.mark.parametrize(
    "address",
    [
        "http://b/in?{}=7",
        "http://b/in?{}",
        "http://b/in?tenant=7&{}=8",
        "http://b/in?tenant=7;{}=8",
        "b:58080/bank.Bank/In?{}=7",
    ],
)
def test_a_parameter_of_the_coordinator_is_refused_in_every_address(name: str, address: str) -> None:
    url = address.format(name)
    assert f"{name!r}" in why_reserved(url)
    assert f"{name!r}" in why_reserved(url, identities_max=1)


@pytest.mark.parametrize("url", ["http://b/in?%67id=7", "http://b/in?g%69%64=7", "http://b/in?branch%5Fid=7"])
def test_an_encoded_spelling_of_a_reserved_name_counts(url: str) -> None:
    assert why_reserved(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://b/in",
        "http://b/gid=7",
        "http://b/in?tenant=gid",
        "http://b/in?my_gid=7&operation=2",
        "http://b/in?x=1#gid=7",
        "topic://rates?gid=7",
    ],
)
def test_other_addresses_are_taken(url: str) -> None:
    assert why_reserved(url) == ""


def test_the_identity_stands_in_a_check_address_once_and_in_no_branch() -> None:
    assert why_reserved("http://a/check?barrier=7f", identities_max=1) == ""
    assert "twice" in why_reserved("http://a/check?barrier=7f&%62arrier=8a", identities_max=1)
    assert "'barrier'" in why_reserved("http://b/in?barrier=7f")


def test_a_producer_is_refused_a_reserved_parameter_where_it_writes_it() -> None:
    message = Message("http://127.0.0.1:1")
    with pytest.raises(InvalidRequest, match="url: its query has the parameter 'gid'"):
        message.add("http://b/in?gid=7")
    assert message.branches == ()
    message.add("http://b/in?tenant=7")
    with pytest.raises(InvalidRequest, match="check: its query has the parameter 'prepared_at'"):
        message.prepare("http://a/check?prepared_at=1")


@pytest.mark.parametrize("enter", [Message.transaction, lambda message, *rest: message.transaction(*rest)])
def test_a_check_address_that_names_its_database_already_is_refused_before_the_message_is_used(
    enter: Callable[..., Any],
) -> None:
    message = Message("http://127.0.0.1:1").add("http://b/in")
    with (
        pytest.raises(InvalidRequest, match="check: its query has the parameter 'barrier'"),
        enter(message, object(), "http://a/check?barrier=7f"),
    ):
        pass
    assert message.state.value == "new"


def test_a_named_database_is_not_named_again() -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        check_url_with("7f", "http://a/check?barrier=8a")


def test_parameters_are_read_as_a_server_reads_them() -> None:
    assert parameters_of("http://b/in?a=1&b+c=2&%64&e;f=#g=3") == ["a", "b c", "d", "e", "f"]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:1/in", "'localhost:1/in' has no scheme; write http://localhost:1/in"),
        ("[::1]:80", "'[::1]:80' has no scheme; write http://[::1]:80"),
        ("/in", "'/in' has no scheme and no host"),
        ("", "'' has no scheme and no host"),
    ],
)
def test_an_address_without_a_scheme_is_shown_as_it_is_probably_meant(url: str, told: str) -> None:
    assert why_no_scheme(url) == told


@pytest.mark.parametrize(
    ("why_not", "code"), [("destination_refused: not listed", "TP-1005"), ("bad_url: x", "TP-1000")]
)
def test_an_address_that_the_operator_does_not_allow_has_an_error_of_its_own(why_not: str, code: str) -> None:
    error = refused_address("url: ", why_not, "g")
    assert (error.code, error.message, error.gid) == (code, f"url: {why_not}", "g")


_WITH_A_LOGIN = [
    "eve:hunter2@bank/in",
    "http//eve:hunter2@bank/in",
    "http:/eve:hunter2@bank/in",
    "http:eve:hunter2@bank/in",
    "//eve:hunter2@bank/in",
    "eve:/hunter2@bank/in",
    "eve:a hunter2@bank/in",
    "eve:8080@hunter2@bank/in",
    f"eve:{'hunter2' * 100}@bank/in",
    "bank/in?password=hunter2",
]


@pytest.mark.parametrize("url", _WITH_A_LOGIN)
def test_an_address_without_a_scheme_is_shown_without_its_login(url: str) -> None:
    text = why_no_scheme(url)

    assert "hunter2" not in text
    assert "eve" not in text
    assert "bank/in" in text


@pytest.mark.parametrize("url", ["host:8080/in?mail=a@b", "[::1]:80/in?to=a@b", "host/in/a@b"])
def test_an_at_sign_behind_the_host_is_no_login(url: str) -> None:
    assert why_no_scheme(url) == f"{url!r} has no scheme; write http://{url}"


def _refuse(why_not: str | None) -> None:
    raise ConfigurationError(str(why_not))


@pytest.mark.parametrize(
    "refuse",
    [
        lambda: Message("http://localhost:1").add("http://eve:a hunter2@bank/in", {}),
        lambda: GrpcTarget("grpc://eve:hunter2@bank/in"),
        lambda: GrpcTarget("grpc://eve:hunter2@bank"),
        lambda: BarrierCleaner(object(), ["eve:hunter2@bank"]),
        lambda: Target("eve:hunter2@bank"),
        lambda: allow_list_of((AllowedDestination(name="bank", url="eve:hunter2@bank"),)),
        lambda: allow_list_of((AllowedDestination(name="bank", url="http://eve:hunter2@bank"),)),
        lambda: read_url("eve:hunter2@bank/in"),
        lambda: BrowserGuard(hosts=["eve:hunter2@bank"]),
        lambda: agree(["eve:hunter2@bank"], identity="", now_ms=0),
        lambda: _refuse(why_no_url("eve:hunter2@bank")),
        lambda: _refuse(why_no_address("eve:hunter2@bank")),
    ],
)
def test_no_refusal_of_an_address_shows_a_login(refuse: Callable[[], object]) -> None:
    with pytest.raises((InvalidRequest, ConfigurationError, Frozen)) as refused:
        refuse()

    assert "hunter2" not in str(refused.value)
