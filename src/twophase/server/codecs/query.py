"""The answer to a query: dtm's object, with twophase's own fields beside dtm's.

Strict clients parse it field by field. dtm's rules (dtm-wire §1.6): `id` is a number that fits 32 bits, times are RFC
3339, a field without a value is left out and never null, `status` spells `succeed`. twophase's own facts stand in
fields that dtm's clients ignore: who decided and why, the attempts, the recent failures.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from twophase.coordinator.view import MessageView
from twophase.core.lifecycle import State
from twophase.core.options import Options
from twophase.core.schedule import whole_seconds
from twophase.core.topic import expansion_of
from twophase.server.codecs.encode import WIRE_STATES, harmless
from twophase.server.codecs.sight import EVERYTHING, Sight

UNKNOWN: Final = b'{"branches":[],"transaction":null}'
_encoder = msgspec.json.Encoder()


class Branch(msgspec.Struct, omit_defaults=True):
    """One branch; times are RFC 3339."""

    id: int
    create_time: str
    update_time: str
    gid: str
    url: str = ""
    bin_data: str = ""
    branch_id: str = ""
    op: str = ""
    status: str = ""
    finish_time: str = ""


class Attempt(msgspec.Struct, omit_defaults=True):
    """One failed call, check-back without a verdict, or act of an operator."""

    at: str
    kind: str
    branch_id: str = ""
    target: str = ""
    status: int = 0
    latency_ms: int = 0
    result: str = ""
    error: str = ""


class Transaction(msgspec.Struct, omit_defaults=True):
    """A message, as dtm calls it."""

    id: int
    create_time: str
    update_time: str
    gid: str
    trans_type: str = ""
    status: str = ""
    query_prepared: str = ""
    protocol: str = ""
    finish_time: str = ""
    rollback_time: str = ""
    rollback_reason: str = ""
    options: str = ""
    custom_data: str = ""
    not_before: str = ""
    attempts_max: int = 0
    next_cron_time: str = ""
    wait_result: bool = False
    timeout_to_fail: int = 0
    request_timeout: int = 0
    retry_interval: int = 0
    branch_headers: dict[str, str] = {}
    concurrent: bool | None = None
    decided_by: str = ""
    decided_time: str = ""
    reason: str = ""
    attempts: int = 0
    parked: bool = False
    log: list[Attempt] = []


class ShownOptions(msgspec.Struct, omit_defaults=True):
    """The options of a message as dtm keeps them.

    They are a JSON text in `Transaction.options`.
    """

    wait_result: bool = False
    timeout_to_fail: int = 0
    request_timeout: int = 0
    retry_interval: int = 0
    branch_headers: dict[str, str] = {}
    concurrent: bool | None = None


class Queried(msgspec.Struct):
    """The answer to a query for a message that is known."""

    branches: list[Branch]
    transaction: Transaction


class Listed(msgspec.Struct):
    """A page of dtm's `all`; an empty `next_position` is the end."""

    next_position: str
    transactions: list[Transaction] | None


def query_body(view: MessageView | None, sight: Sight = EVERYTHING) -> bytes:
    """Return the body of a query's 200, for a message or for none.

    >>> query_body(None)
    b'{"branches":[],"transaction":null}'
    """
    if view is None:
        return UNKNOWN
    return harmless(_encoder.encode(Queried(_branches(view, sight), _transaction(view, sight))))


def all_body(views: Sequence[MessageView] | None, position: str, sight: Sight = EVERYTHING) -> bytes:
    """Return the body of dtm's `all`: a page, or None for an unknown gid.

    It is the answer to a request for that gid alone.

    >>> all_body([], "")
    b'{"next_position":"","transactions":[]}'
    """
    transactions = None if views is None else [_transaction(view, sight) for view in views]
    return harmless(_encoder.encode(Listed(position, transactions)))


def timestamp(milliseconds: int | None) -> str:
    """Return a time as RFC 3339 in UTC; empty for no time.

    >>> timestamp(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def small_id(gid: str) -> int:
    """Return a number for clients that insist on one.

    It is positive, has 31 bits, and is always the same for a gid.

    >>> 0 < small_id("order-17") < 2**31
    True
    """
    return zlib.crc32(gid.encode()) & 0x7FFF_FFFF or 1


def _last_change_ms(view: MessageView) -> int:
    return max(view.created_ms, view.decided_ms or 0, view.finished_ms or 0)


def _branches(view: MessageView, sight: Sight) -> list[Branch]:
    message = view.message
    expansion = expansion_of(message.branches)
    calls = message.branches if expansion is None else expansion.branches
    return [
        Branch(
            id=index + 1,
            create_time=timestamp(view.created_ms),
            update_time=timestamp(_last_change_ms(view)),
            gid=message.gid,
            url=sight.address(branch.url),
            bin_data=base64.b64encode(branch.payload).decode() if sight.payloads else "",
            branch_id=message.branch_id(index) if expansion is None else expansion.ids[index],
            op="action",
            status="succeed" if view.done >> index & 1 else "prepared",
            finish_time=timestamp(view.finished_ms) if view.done >> index & 1 else "",
        )
        for index, branch in enumerate(calls)
    ]


def _transaction(view: MessageView, sight: Sight) -> Transaction:
    message, options = view.message, view.message.options
    shown = _shown(options, sight)
    return Transaction(
        id=small_id(message.gid),
        create_time=timestamp(view.created_ms),
        update_time=timestamp(_last_change_ms(view)),
        gid=message.gid,
        trans_type="msg",
        status=WIRE_STATES[view.state],
        query_prepared=message.check_url,
        protocol=message.protocol,
        finish_time=timestamp(view.finished_ms) if view.state is State.SUCCEEDED else "",
        rollback_time=timestamp(view.finished_ms) if view.state is State.FAILED else "",
        rollback_reason=view.reason if view.state is State.FAILED else "",
        options=_encoder.encode(shown).decode(),
        custom_data=f'{{"delay":{options.delay_ms / 1000:g}}}' if options.delay_ms else "",
        not_before=timestamp(options.not_before_ms),
        attempts_max=options.attempts_max,
        next_cron_time=timestamp(view.due_ms),
        decided_by=view.decided_by,
        decided_time=timestamp(view.decided_ms),
        reason=view.reason,
        attempts=view.attempts,
        parked=view.parked,
        log=[
            Attempt(
                timestamp(one.at_ms),
                one.kind,
                one.branch_id,
                one.target,
                one.status,
                one.latency_ms,
                one.result,
                sight.error(one),
            )
            for one in view.log
        ],
        **msgspec.structs.asdict(shown),
    )


def _shown(options: Options, sight: Sight) -> ShownOptions:
    """Return dtm's column of options: those that the request named, and `concurrent`."""
    return ShownOptions(
        wait_result=options.wait_result,
        timeout_to_fail=whole_seconds(options.timeout_to_fail_ms),
        request_timeout=whole_seconds(options.request_timeout_ms),
        retry_interval=whole_seconds(options.retry_interval_ms),
        branch_headers=sight.headers(options.headers),
        concurrent=options.concurrent,
    )
