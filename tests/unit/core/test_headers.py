"""No API accepts a header that no call could carry.

Otherwise such a message would be called, and asked about, for ever.
"""

from __future__ import annotations

import pytest

from twophase.client.draft import checked_headers
from twophase.core.errors import ConfigurationError, InvalidRequest
from twophase.core.headers import CONNECTION_HEADERS, why_no_header, without_reserved
from twophase.destinations.http import HttpDestination
from twophase.http_client import request
from twophase.server.codecs.trace import names_of

IMPOSSIBLE = [("", "1"), ("x y", "1"), ("x:", "1"), ("ü", "1"), ("x", "a\r\ny: z"), ("x", "ü"), ("x", "\x7f")]
POSSIBLE = [("X-Tenant", ""), ("x", "a\tb ~"), ("Content-Type", "text/plain"), ("x.!#$%&'*+-^_`|~9", "1")]


def test_what_belongs_to_the_connection_is_what_the_http_client_sets_itself() -> None:
    assert request.CONNECTION_HEADERS == CONNECTION_HEADERS


@pytest.mark.parametrize("header", POSSIBLE)
def test_what_is_taken_can_be_sent(header: tuple[str, str]) -> None:
    assert why_no_header(*header) == ""
    assert HttpDestination().accepts_headers((header,)) is None


@pytest.mark.parametrize("header", [*IMPOSSIBLE, *((name.title(), "1") for name in sorted(CONNECTION_HEADERS))])
def test_what_cannot_be_sent_is_refused_by_name_and_not_repeated(header: tuple[str, str]) -> None:
    name, value = header
    why_not = why_no_header(name, value)
    assert repr(name) in why_not
    assert "y: z" not in why_not
    with pytest.raises(InvalidRequest, match="headers: "):
        checked_headers({name: value})


@pytest.mark.parametrize("name", ["x-twophase-oldest", "X-Twophase-Anything", "dtm-gid"])
def test_a_request_cannot_pass_on_what_the_coordinator_says(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is the coordinator's own"):
        names_of(name)


def test_a_call_sends_no_reserved_header() -> None:
    kept = ("x-tenant", "7")
    assert without_reserved(
        (("X_Twophase_Oldest", "9"), kept, ("METADATA-FLAVOR", "Google"), ("forwarded", "for=::1"))
    ) == (kept,)


def test_a_call_sends_no_header_by_which_services_know_a_page_and_a_message_may_hold_it() -> None:
    held = (("Origin", "https://shop.example"), ("sec-fetch-site", "cross-site"), ("Sec_Purpose", "prefetch"))
    assert without_reserved((*held, ("original", "7"))) == (("original", "7"),)
    assert not any(why_no_header(name, value) for name, value in held)


def test_a_request_cannot_pass_on_what_a_service_behind_a_proxy_believes() -> None:
    with pytest.raises(ConfigurationError, match="'x-forwarded-for' is reserved"):
        names_of("X-Forwarded-For")


@pytest.mark.parametrize("name", sorted(CONNECTION_HEADERS))
def test_a_request_cannot_pass_on_what_belongs_to_its_connection(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"trace_headers: '{name}' belongs to one request"):
        names_of(f"traceparent, {name.title()}")
