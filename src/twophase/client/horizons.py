"""The question to coordinators up to when all is decided and delivered.

It is asked before barrier rows are removed. It keeps I10: a coordinator that does not answer, or whose clock cannot be
believed, has not agreed to anything, so no row may be removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

import msgspec

from twophase.barrier.asking import CLOCK_SKEW_MS
from twophase.core.address import shown_address
from twophase.core.errors import TwophaseError
from twophase.core.trust import context_of
from twophase.http_client.address import parse_address
from twophase.http_client.blocking import BlockingClient
from twophase.http_client.outcome import HttpError

_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 * 1024


class Agreed(msgspec.Struct, frozen=True):
    """The time that every coordinator asked agrees to, in ms since 1970."""

    oldest_undecided_ms: int
    oldest_unfinished_ms: int


class _Answer(msgspec.Struct):
    oldest_undecided_ms: int
    oldest_unfinished_ms: int
    now_ms: int


class Frozen(Exception):
    """A coordinator has not agreed; the text says which, and why."""


def agree(
    servers: Sequence[str],
    *,
    identity: str,
    now_ms: int,
    check_prefix: str = "",
    authorization: str | None = None,
) -> Agreed:
    """Ask all of them.

    Arguments:
        servers: addresses such as `http://localhost:36789`; one node of each store is enough.
        identity: the database's name; messages that ask another one are not counted.
        now_ms: the database's clock, from which theirs may not differ by more than five minutes.
        check_prefix: count only messages whose check address begins so.
        authorization: sent as the `Authorization` header.

    Raises:
        Frozen: one of them does not answer, or its clock differs.
    """
    assert servers, "at least one coordinator must agree"
    answers = [_ask(server, check_prefix, identity, now_ms, authorization) for server in servers]
    return Agreed(
        min(answer.oldest_undecided_ms for answer in answers), min(answer.oldest_unfinished_ms for answer in answers)
    )


def _ask(server: str, check_prefix: str, identity: str, now_ms: int, authorization: str | None) -> _Answer:
    headers = () if authorization is None else (("authorization", authorization),)
    path = f"/api/twophase/horizon?{urlencode({'check': check_prefix, 'barrier': identity})}"
    try:
        client = BlockingClient(
            parse_address(server),
            answer_bytes_max=_ANSWER_BYTES_MAX,
            headers=headers,
            ssl_context=context_of(server),
        )
        with closing(client):
            response = client.request("GET", path, timeout_s=_TIMEOUT_S)
        if response.status != HTTPStatus.OK:
            raise Frozen(f"{server} answered {response.status}; is it a twophase server of this version?")
        answer = msgspec.json.decode(response.body, type=_Answer)
    except (HttpError, msgspec.DecodeError, TwophaseError) as error:
        advice = f" {error.remedy}" if isinstance(error, HttpError) and error.remedy else ""
        raise Frozen(f"{shown_address(server)} cannot be asked: {error}.{advice}") from error
    apart_ms = abs(answer.now_ms - now_ms)
    if apart_ms > CLOCK_SKEW_MS:
        raise Frozen(
            f"the clock of {server}'s store and this database's are {apart_ms // 1000} s apart, "
            f"at most {CLOCK_SKEW_MS // 1000} s are allowed."
        )
    return answer
