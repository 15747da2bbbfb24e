"""The prefixes of addresses that may be called."""

from __future__ import annotations

import pytest

from twophase.destinations.allow_list import AllowList, Listed
from twophase.destinations.grpc import GrpcDestination
from twophase.destinations.http import HttpDestination
from twophase.destinations.jsonrpc import JsonRpcDestination

URLS = (
    "http://Bank-B/in",
    "https://bank-c:8443/",
    "grpc://ledger:58080",
    "grpcs://[::1]:7/bank.Bank",
    "http://bank-d/a/",
)
ALLOWED = AllowList([Listed(url) for url in URLS])
HTTP = HttpDestination(allowed=ALLOWED)
GRPC = GrpcDestination(allowed=ALLOWED)


@pytest.mark.parametrize(
    "url",
    [
        "http://bank-b/in",
        "HTTP://BANK-B:80/in?x=1",
        "http://bank-b/in/7",
        "http://bank-b/in/",
        "http://bank-b/in/a%20b",
        "https://bank-c:8443",
        "https://bank-c:8443/any/../thing",
        "http://bank-d/a",
        "http://bank-d/a/b",
    ],
)
def test_an_address_below_a_listed_one_may_be_called(url: str) -> None:
    assert HTTP.accepts(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://bank-b/",
        "http://bank-b/inner",
        "http://bank-b/IN",
        "http://bank-b:8080/in",
        "https://bank-b/in",
        "http://bank-b.example/in",
        "http://bank-b./in",
        "http://x/http://bank-b/in",
        "http://bank-b/in/../admin",
        "http://bank-b/in/%2e%2e/admin",
        "http://bank-b/in/%252e%252e/admin",
        "http://bank-b/in%2f..%2fadmin",
        "http://bank-b/in/..;x=1/admin",
        "http://bank-b/in/..\\admin",
        "http://bank-b/in/./x",
        "https://bank-c/",
    ],
)
def test_no_other_address_may_be_called(url: str) -> None:
    assert HTTP.accepts(url) == "destination_refused: it begins with no URL of the coordinator's setting destinations"


def test_grpc_and_json_rpc_addresses_are_judged_the_same() -> None:
    assert GRPC.accepts("ledger:58080/bank.Bank/In") is None
    assert GRPC.accepts("grpcs://[::1]:7/bank.Bank/In") is None
    assert "destination_refused" in str(GRPC.accepts("grpcs://[::1]:7/bank.BankTwo/In"))
    assert "destination_refused" in str(GRPC.accepts("grpcs://ledger:58080/bank.Bank/In"))
    assert JsonRpcDestination(HTTP).accepts("http://bank-b/in?method=pay") is None
    assert "destination_refused" in str(JsonRpcDestination(HTTP).accepts("http://bank-b/rpc?method=pay"))


def test_without_a_list_every_address_may_be_called() -> None:
    assert AllowList().why_not("http://anywhere:80", "/") == ""


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("bank-b/in", "no scheme"),
        ("ftp://bank-b/", "no scheme that can be called"),
        ("http://", "the host is missing"),
        ("http://127.1/", "is a number"),
        ("http://me:pw@bank-b/", "user names"),
        ("grpc://ledger", "no port"),
        ("http://bank-b/in?x=1", "a query"),
        ("http://bank-b/#top", "a fragment"),
        ("http://bank-b/a/../b", "'..'"),
    ],
)
def test_a_prefix_that_cannot_be_one_is_refused(url: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        AllowList([Listed(url)])


def test_the_entry_with_the_longest_path_counts() -> None:
    all_of_it, part, deep = Listed("http://b", in_flight=1), Listed("http://b/in"), Listed("http://b/in/deep")
    allowed = AllowList([part, all_of_it, deep])
    paths = ("/", "/inner", "/in", "/in/7", "/in/deep/er", "/in/deep/../x", "/in%2fdeep")
    found = [allowed.find("http://b:80", path) for path in paths]
    assert found == [all_of_it, all_of_it, part, part, deep, all_of_it, all_of_it]
    assert allowed.find("http://c:80", "/") is None
