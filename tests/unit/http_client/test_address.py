"""A URL's form on the wire, and the URLs that are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.http_client.address import AddressBook, encode_query, parse_address
from twophase.http_client.outcome import HttpError, HttpErrorKind


@pytest.mark.parametrize(
    ("url", "key", "host_header", "path"),
    [
        ("http://bank-b", "http://bank-b:80", "bank-b", "/"),
        ("http://bank-b:80/in", "http://bank-b:80", "bank-b", "/in"),
        ("http://bank-b:8080/in", "http://bank-b:8080", "bank-b:8080", "/in"),
        ("https://Bank-B.Example/In", "https://bank-b.example:443", "bank-b.example", "/In"),
        ("http://[::1]:81/", "http://[::1]:81", "[::1]:81", "/"),
        ("http://[0:0::1]/", "http://[::1]:80", "[::1]", "/"),
        ("http://bank-b:/x", "http://bank-b:80", "bank-b", "/x"),
        ("http://bank_b.svc.local./x", "http://bank_b.svc.local.:80", "bank_b.svc.local.", "/x"),
        ("http://bücher.de/ü/a b/%2F", "http://xn--bcher-kva.de:80", "xn--bcher-kva.de", "/%C3%BC/a%20b/%2F"),
        ("http://h/a;b=1/\\..//x", "http://h:80", "h", "/a;b=1/%5C..//x"),
    ],
)  # fmt: skip
def test_a_url_is_taken_apart(url: str, key: str, host_header: str, path: str) -> None:
    address = parse_address(url)
    assert (address.key, address.host_header, address.path) == (key, host_header, path)
    assert address.tls == url.startswith("https")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "bank-b/in",
        "//bank-b/in",
        "ftp://bank-b/",
        "file:///etc/passwd",
        "http:/bank-b",
        "http://",
        "http:///in",
        "http://:80/",
        "http://user@bank-b/",
        "http://user:secret@bank-b/",
        "http://@bank-b/",
        "http://bank-b:0/",
        "http://bank-b:65536/",
        "http://bank-b:8a/",
        "http://bank-b:-1/",
        "http://bank-b:80:80/",
        "http://bank-b:٣/",
        "http://-bank/",
        "http://bank b/",
        "http://bank-b\\.example/",
        "http://bank%2eb/",
        "http://a..b/",
        "http://" + "a" * 64 + "/",
        "http://" + ".".join(["abcdefg"] * 40) + "/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]x/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[127.0.0.1]/",
        "http://[v1.x]/",
        "http://bank-b/\r\nX: y",
        "http://bank-b/\x00",
        "http://bank-b/\x7f",
        "http://ba\tnk-b/",
        "ht\ntp://bank-b/",
        " http://bank-b/",
        "http://bank-b/\ud800",
        "http://bücher\u2100.example/",
    ],
)
def test_a_url_that_is_not_clearly_one_of_ours_is_refused(url: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_address(url)
    assert caught.value.kind is HttpErrorKind.BAD_URL
    assert "secret" not in str(caught.value)


@given(st.text(max_size=60))
def test_no_path_can_end_the_request_line(text: str) -> None:
    try:
        path = parse_address(f"http://bank-b/{text}").path
    except HttpError:
        return
    assert path.isascii()
    assert path.isprintable()
    assert " " not in path


@given(st.text(max_size=60))
def test_no_query_can_end_the_request_line(text: str) -> None:
    try:
        query = encode_query(text)
    except HttpError:
        return
    assert query.isascii()
    assert query.isprintable()
    assert " " not in query


@given(st.text(max_size=60))
def test_no_authority_leads_to_another_host_than_it_names(text: str) -> None:
    try:
        address = parse_address(f"http://{text}.bank.example/in")
    except HttpError:
        return
    outside = any(character in text for character in "/?#")  # then the rest is no part of the authority
    assert outside or address.host.endswith(".bank.example")
    assert "@" not in address.host


def test_what_is_encoded_already_stays_as_it_is() -> None:
    assert encode_query("a=%20%C3%BC&b=[1]") == "a=%20%C3%BC&b=[1]"


def test_the_book_forgets_rather_than_grow() -> None:
    book = AddressBook(entries_max=3)
    for number in range(10):
        assert book[f"http://h{number}/"].host == f"h{number}"
    assert book["http://h9/"] is book["http://h9/"]


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://b", "/?gid=1"),
        ("http://b/in", "/in?gid=1"),
        ("http://b/in?", "/in?gid=1"),
        ("http://b/in?a=1", "/in?a=1&gid=1"),
        ("http://b/in?a=1&", "/in?a=1&gid=1"),
        ("http://b/in?a=1?", "/in?a=1?gid=1"),
        ("http://b/in?a=x y#top", "/in?a=x%20y&gid=1"),
        ("http://b/in#top?a=1", "/in?gid=1"),
    ],
)
def test_parameters_follow_the_urls_own_query(url: str, target: str) -> None:
    book = AddressBook()
    for _ in range(2):
        assert f"{book[url].target}{book[url].joint}gid=1" == target
    assert book[url] == parse_address(url)
