"""Credentials of RocketMQ's clients, and the cost of hostile ones."""

from __future__ import annotations

import hashlib
import hmac
import time
from pathlib import Path

import pytest

from tests.support.identities import token_of, write
from twophase.server.identity.gate import Gate
from twophase.server.identity.scopes import Scope
from twophase.server.rocketmq.credentials import _SIGNED, caller_of

_HOSTILE_BYTES = 64_000
_LONG_S = 0.1
"""Reading one of them took over a second."""


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(write(tmp_path, "shop", [Scope.PRODUCE]))


def _signed(credential: str, rest: str = "") -> bytes:
    signature = hmac.new(token_of("shop").encode(), b"", hashlib.sha1).hexdigest()
    return (
        f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time, Signature={signature}{rest}"
    ).encode()


@pytest.mark.parametrize("behind", ["", "/", "/region/RocketMQ", " ", " x"])
def test_the_access_key_is_the_token(gate: Gate, behind: str) -> None:
    assert caller_of([(b"authorization", _signed(token_of("shop") + behind))], gate).name == "shop"


@pytest.mark.parametrize("credential", ["a" * 1_000, token_of("shop") + "/" + "x" * 1_000])
def test_a_longer_authorization_than_any_client_sends_is_refused(gate: Gate, credential: str) -> None:
    assert caller_of([(b"authorization", _signed(credential))], gate) is gate.mistaken


@pytest.mark.parametrize("unit", ["a", "/", " ", "a/", ", ", "SignedHeaders="])
def test_hostile_credentials_are_read_in_no_time(gate: Gate, unit: str) -> None:
    value = b"MQv2-HMAC-SHA1 Credential=" + (unit * _HOSTILE_BYTES).encode()[:_HOSTILE_BYTES]
    began = time.process_time()
    caller = caller_of([(b"authorization", value)], gate)
    assert _SIGNED.fullmatch(value) is None, "the pattern is linear also without the bound"
    assert caller is gate.mistaken
    assert time.process_time() - began < _LONG_S
