"""Signatures of calls and of verdicts: what they cover, and what is refused."""

from __future__ import annotations

import binascii
import hmac
import itertools
from functools import partial
from typing import Any

import pytest

from twophase.core.errors import CallNotSigned, ConfigurationError
from twophase.core.signature import (
    TOLERANCE_MS,
    Signature,
    SigningKey,
    grpc_text,
    http_text,
    is_verdict_signed,
    key_of,
    known_keys,
    signed,
    verdict_signed,
    verify,
)

NEW = key_of("2026-11", "0123456789abcdef")
OLD = SigningKey("2026-05", b"fedcba9876543210")
NOW_MS = 1_795_000_000_000
CALL = {"method": "POST", "target": "/in?gid=g&op=action", "oldest": "1790000000000", "body": b'{"amount":30}'}
METADATA: list[tuple[str, str | bytes]] = [
    ("dtm-gid", "g"),
    ("dtm-branch_id", "01"),
    ("twophase-barrier", "7f"),
    ("x-twophase-oldest", "1790000000000"),
    ("tenant", "blue"),
]


def text_of(**changed: str | bytes) -> partial[bytes]:
    return partial(http_text, **{**CALL, **changed})  # type: ignore[arg-type]


def test_a_call_over_http_has_this_text_and_this_signature() -> None:
    text = text_of()(NOW_MS)
    assert text.decode().split("\n") == [
        "v1",
        "1795000000000",
        "POST",
        "/in?gid=g&op=action",
        "1790000000000",
        "97ef99d80ae5b14a5eed5157adde3480d3c51fbbd2cc3b80d26e98d9b063b7ab",
    ]
    assert signed(NEW, NOW_MS, text) == "v1,kid=2026-11,t=1795000000000,s=9+jtkzepm2b65SL0XaGlszISPIRC6u7ASRW/btwUNTc="


def test_a_call_over_grpc_has_this_text() -> None:
    assert grpc_text(NOW_MS, "/bank.Bank/In", METADATA, b"").decode().split("\n") == [
        "v1",
        "1795000000000",
        "gRPC",
        "/bank.Bank/In",
        "dtm-branch_id:01",
        "dtm-gid:g",
        "twophase-barrier:7f",
        "x-twophase-oldest:1790000000000",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ]


@pytest.mark.parametrize("length", [16, 63, 64, 65, 200])
def test_a_signature_is_an_hmac_of_sha256(length: int) -> None:
    secret = bytes(range(length))
    expected = hmac.digest(secret, b"text", "sha256")
    assert binascii.a2b_base64(SigningKey("k", secret).sign(b"text")) == expected


def test_keys_are_equal_by_id_and_secret() -> None:
    assert len({OLD, SigningKey(OLD.id, OLD.secret), SigningKey(OLD.id, NEW.secret), NEW}) == 3
    assert OLD.id != OLD


@pytest.mark.parametrize("key", [NEW, OLD])
def test_a_call_of_either_key_is_accepted(key: SigningKey) -> None:
    value = signed(key, NOW_MS, text_of()(NOW_MS))
    assert verify(value, (NEW, OLD), NOW_MS, text_of()) == Signature(key, NOW_MS)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "GET"},
        {"target": "/other?gid=g&op=action"},
        {"target": "/in?gid=h&op=action"},
        {"oldest": "1799999999999"},
        {"oldest": ""},
        {"oldest": "1790000000000,1799999999999"},
        {"body": b'{"amount":31}'},
        {"body": b""},
    ],
)
def test_a_call_that_was_changed_on_the_way_is_refused(changed: dict[str, str | bytes]) -> None:
    value = signed(NEW, NOW_MS, text_of()(NOW_MS))
    with pytest.raises(CallNotSigned, match="not what the key '2026-11' has signed"):
        verify(value, (NEW, OLD), NOW_MS, text_of(**changed))


@pytest.mark.parametrize(
    "metadata",
    [
        METADATA[1:],
        [*METADATA, ("dtm-gid", "h")],
        [("dtm-gid", "h"), *METADATA[1:]],
        [*METADATA, ("twophase-prepared_at", "1")],
        [*METADATA[:2], ("twophase-barrier", b"7f"), *METADATA[3:]],
    ],
)
def test_metadata_that_names_something_else_is_refused(metadata: list[tuple[str, str | bytes]]) -> None:
    value = signed(NEW, NOW_MS, grpc_text(NOW_MS, "/b.B/In", METADATA, b""))
    assert verify(value, (NEW,), NOW_MS, lambda ms: grpc_text(ms, "/b.B/In", METADATA[::-1], b""))
    for method, changed, body in (("/b.B/In", metadata, b""), ("/b.B/Out", METADATA, b""), ("/b.B/In", METADATA, b"1")):
        with pytest.raises(CallNotSigned):
            verify(value, (NEW,), NOW_MS, partial(grpc_text, method=method, metadata=changed, body=body))


@pytest.mark.parametrize("late_ms", [-TOLERANCE_MS, 0, TOLERANCE_MS])
def test_a_signature_counts_for_five_minutes_either_way(late_ms: int) -> None:
    value = signed(NEW, NOW_MS, text_of()(NOW_MS))
    assert verify(value, (NEW,), NOW_MS + late_ms, text_of()).signed_ms == NOW_MS
    if late_ms:
        with pytest.raises(CallNotSigned, match="set the clocks"):
            verify(value, (NEW,), NOW_MS + late_ms + (1 if late_ms > 0 else -1), text_of())


def test_a_time_that_was_changed_is_refused() -> None:
    value = signed(NEW, NOW_MS, text_of()(NOW_MS)).replace(f"t={NOW_MS}", f"t={NOW_MS + 1}")
    with pytest.raises(CallNotSigned, match="not what the key"):
        verify(value, (NEW,), NOW_MS, text_of())


def test_an_unknown_key_and_another_secret_are_refused() -> None:
    value = signed(OLD, NOW_MS, text_of()(NOW_MS))
    with pytest.raises(CallNotSigned, match="'2026-05', which this service does not know"):
        verify(value, (NEW,), NOW_MS, text_of())
    with pytest.raises(CallNotSigned, match="not what the key"):
        verify(value, (SigningKey(OLD.id, NEW.secret),), NOW_MS, text_of())


def test_no_signature_and_one_of_another_form_are_refused() -> None:
    good = signed(NEW, NOW_MS, text_of()(NOW_MS))
    others = ("", f"{good},{good}", f"{good}, {good}", f"{good}\n", f" {good}", good.replace("v1", "v2"), good[:-1])
    mangled = (
        good.replace("t=1", "t=01"),
        good.replace("kid=", "kid=é"),
        good.replace("t=1", "t=١"),
        good[:-5] + "====",
    )
    for value in (*others, *mangled):
        with pytest.raises(CallNotSigned, match="not of the form"):
            verify(value, (NEW,), NOW_MS, text_of())
    with pytest.raises(CallNotSigned, match="carries no signature"):
        verify(None, (NEW,), NOW_MS, text_of())


def test_no_two_calls_have_one_text() -> None:
    parts = ("GET", "POST", "/a", "/a?b", "1", "")
    calls = itertools.product(("GET", "POST"), ("/a", "/a?b", "/a?1"), ("", "1", "11"), (b"", b"1"))
    texts = [http_text(1, *call) for call in calls]
    assert len(set(texts)) == len(texts) > len(parts)
    assert verdict_signed(Signature(NEW, 1), "g", "committed", b"") not in {signed(NEW, 1, text) for text in texts}


def test_a_verdict_is_of_one_question_and_one_body() -> None:
    question = Signature(NEW, NOW_MS)
    value = verdict_signed(question, "g", "committed", b"{}")
    assert is_verdict_signed(value, question, "g", "committed", b"{}")
    for other in (
        (Signature(OLD, NOW_MS), "g", "committed", b"{}"),
        (Signature(NEW, NOW_MS + 1), "g", "committed", b"{}"),
        (question, "h", "committed", b"{}"),
        (question, "g", "rolled_back", b"{}"),
        (question, "g", "committed", b""),
    ):
        assert not is_verdict_signed(value, *other)
    for wrong in (None, "", "é", f"{value},{value}"):
        assert not is_verdict_signed(wrong, question, "g", "committed", b"{}")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, "no key is given"),
        ({"k": "short"}, "5 bytes"),
        ({"k k": "0123456789abcdef"}, "the key id"),
        ({"": b"0" * 16}, "id"),
    ],
)
def test_keys_that_cannot_be_some_are_refused_and_not_shown(keys: dict[str, str | bytes], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        known_keys(keys)
    assert "short" not in str(raised.value)
    assert "0123456789abcdef" not in repr(known_keys({"k": "0123456789abcdef"}))
    assert known_keys(None) is None


@pytest.mark.parametrize("secret", [None, 32, ["0123456789abcdef"]])
def test_key_of_a_variable_that_is_not_set_is_refused_by_name(secret: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"the key 'now' is .* instead of text or bytes"):
        known_keys({"now": secret})
