"""The JSON of a message for `/api/twophase/messages` (`core.operating`)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

import msgspec

from twophase.coordinator.view import MessageView
from twophase.core.address import TOPIC_PREFIX
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.core.operating import ShownAttempt, ShownBranch, ShownMessage
from twophase.core.topic import subscriber_ids
from twophase.server.codecs.encode import WIRE_STATES
from twophase.server.codecs.sight import EVERYTHING, Sight

Earliest = Callable[[State, Message, int], int]
"""From (state, message, created_ms): the earliest time of a try."""


def shown(
    view: MessageView,
    earliest: Earliest,
    attempts_max: int = 0,
    *,
    sight: Sight = EVERYTHING,
    with_payloads: bool = False,
) -> ShownMessage:
    """Return the message of a view.

    `attempts_max`: the coordinator's, for a message that names none. `with_payloads`: as the caller asks for, who is
    shown what `sight` has.
    """
    message = view.message
    live = view.state in (State.PREPARED, State.SUBMITTED)
    return ShownMessage(
        gid=message.gid,
        state=WIRE_STATES[view.state],
        created_ms=view.created_ms,
        parked=view.parked,
        decided_ms=view.decided_ms,
        decided_by=view.decided_by,
        finished_ms=view.finished_ms or 0,
        reason=view.reason,
        due_ms=view.due_ms or 0,
        earliest_ms=earliest(view.state, message, view.created_ms) if live else 0,
        attempts=view.attempts,
        attempts_max=(message.options.attempts_max or attempts_max) if live else 0,
        check_url=message.check_url,
        prepared_check_url=message.prepared_check_url,
        protocol=message.protocol,
        check_back_durability=bool(message.options.durability),
        branches=_branches(view, sight, with_payloads=with_payloads),
        log=[
            ShownAttempt(
                one.at_ms,
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
    )


def _branches(view: MessageView, sight: Sight, *, with_payloads: bool) -> list[ShownBranch]:
    message = view.message
    shown_ones: list[ShownBranch] = []
    for number, branch in enumerate(message.branches):
        urls = (branch.url,) if branch.subscribers is None else branch.subscribers
        ids = [message.branch_id(number)] if len(urls) == 1 else subscriber_ids(number + 1, len(urls))
        is_redirected = branch.subscribers is not None and not branch.url.startswith(TOPIC_PREFIX)
        for id_, url in zip(ids, urls, strict=True):
            one = ShownBranch(
                id_,
                sight.address(url),
                len(branch.payload),
                bool(view.done >> len(shown_ones) & 1),
                branch.url if is_redirected else "",
            )
            shown_ones.append(_with_payload(one, branch.payload) if with_payloads else one)
    return shown_ones


def _with_payload(one: ShownBranch, payload: bytes) -> ShownBranch:
    try:
        return msgspec.structs.replace(one, payload=payload.decode())
    except UnicodeDecodeError:
        return msgspec.structs.replace(one, payload_base64=b64encode(payload).decode())
