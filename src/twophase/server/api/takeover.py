"""The route `POST /api/twophase/import`: messages of another coordinator.

It takes unfinished messages over in the state that they have there, and keeps what makes a copy safe. A known gid is
never begun anew: the lifecycle's own prepare and submit do the work, and a message that exists here is compared first,
so that a repeated copy changes nothing and a contrary one is reported. And a branch that was called there keeps its
position here without a call: its step is stored with its address, and with an empty subscriber as the only one to call,
as if it were a topic whose subscriber has nothing to do.

A message keeps its birth: until it is finished, no barrier row that is as old as it is may be cleaned, and its
check-back names that time. While one of unknown birth is unfinished, no row of its kind may be removed.

History is not kept for ever, and another coordinator's gids do not say when they were made. So a message that is
unknown here, and was begun before the history horizon, may have been delivered and forgotten: it is refused
(correctness 15).

All messages of a request go to the coordinator at once, so a hundred messages share a flush.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from starlette.requests import Request

from twophase.coordinator.state.active_message import Audited, OnReply, Owner, Reply
from twophase.coordinator.state.acts import Acts
from twophase.coordinator.store_faults import as_store_error
from twophase.coordinator.view import MessageView
from twophase.core.audit_log import Actor, AuditEntry
from twophase.core.errors import (
    ContentConflict,
    ContraryDecision,
    ForgottenMessage,
    InvalidRequest,
    StoreError,
    TwophaseError,
    Unavailable,
)
from twophase.core.hooks import Clock
from twophase.core.lifecycle import State
from twophase.core.limits import PAYLOAD_BYTES_MAX, URL_BYTES_MAX, require
from twophase.core.message import Branch, Message
from twophase.core.options import Options
from twophase.core.takeover import (
    MESSAGES_MAX,
    PATH,
    Outcome,
    TakenBranch,
    TakenMessage,
    TakenResult,
    TakenState,
    TakeoverReply,
    TakeoverRequest,
)
from twophase.http_client.turns import LONG_BYTES
from twophase.server.api.operation import Operation, Served, actor_of, caller_of
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import WIRE_STATES, Answer
from twophase.server.codecs.values import require_values
from twophase.server.codecs.wire import WireRequest, WireStep
from twophase.server.identity.caller import Caller

CLOCKS_APART_MS: Final = 5 * 60_000
"""Bound on the difference between the other coordinator's clock and the store's."""
_VALUES_MAX: Final = 1_000 * MESSAGES_MAX
"""Twice what the limits of the messages allow."""
_OLDER_THAN_HISTORY: Final = (
    "It is older than this server's history: it may have been imported before and delivered. If it never was, use "
    "--never-imported."
)
IMPORT: Final = Operation(
    path=PATH,
    methods=("POST",),
    tag="moving over",
    summary="Take over unfinished messages of another coordinator",
    description="The answer has an outcome for each; messages that are here already are not changed.",
    request=TakeoverRequest,
    answer=TakeoverReply,
)
_decode = msgspec.json.Decoder(TakeoverRequest).decode
_encode = msgspec.json.Encoder().encode


class ImportTarget(Protocol):
    """The part of the coordinator that taking over uses."""

    clock: Clock

    acts: Acts

    def prepare(
        self,
        message: Message,
        on_reply: OnReply,
        created_ms: int | None = None,
        owner: Owner | None = None,
        audited: Audited | None = None,
    ) -> None: ...

    def submit(
        self,
        message: Message,
        on_reply: OnReply,
        created_ms: int | None = None,
        owner: Owner | None = None,
        audited: Audited | None = None,
    ) -> None: ...

    async def query(self, gid: str) -> MessageView | None: ...

    async def history_horizon_ms(self) -> int: ...

    async def note_takeover(self, *, again: bool) -> None: ...


class TakeoverApi:
    """Answers `POST /api/twophase/import`.

    Arguments:
        coordinator: takes the messages.
        decoder: knows what may be called, and every limit.
        on_refused: hears the error code of each request, and of each message, that is refused here.
    """

    def __init__(self, coordinator: ImportTarget, decoder: Decoder, on_refused: Callable[[str], None]) -> None:
        self._coordinator = coordinator
        self._decoder = decoder
        self._on_refused = on_refused

    def served(self) -> list[Served]:
        """Return the operation with its handler."""
        return [Served(IMPORT, self._answer)]

    async def _answer(self, request: Request) -> Answer:
        body = await request.body()
        await self._decoder.turns.wait(len(body))
        asked = _read(body)
        caller = caller_of(request)
        actor = actor_of(request)
        results = await asyncio.gather(*(self._take(message, asked, caller, actor) for message in asked.messages))
        if not asked.dry_run:
            await self._coordinator.note_takeover(again=any(one.outcome is Outcome.COPIED for one in results))
        return Answer(200, _encode(TakeoverReply(tuple(results))))

    async def _take(self, taken: TakenMessage, asked: TakeoverRequest, caller: Caller, actor: Actor) -> TakenResult:
        try:
            message = self._message(taken)
            caller.require_message(message)
            view = await self._coordinator.query(message.gid)
            if view is not None:
                known = _compared(taken, message, view)
                if known is not None:
                    return known
                # Prepared here, and submitted there meanwhile: the submit is the producer's decision. The stored
                # content counts.
                message = Message(message.gid, ())
            elif not asked.never_taken:
                await self._require_remembered(taken)
            if asked.dry_run:
                return TakenResult(taken.gid, Outcome.COPIED)
            reply = await self._hand_in(taken, message, actor)
            if reply.error is None:
                return TakenResult(taken.gid, Outcome.COPIED)
            return await self._refused(taken, message, reply.error)
        except TwophaseError as error:
            self._on_refused(error.code)
            return _failed(taken.gid, error)
        except Exception as error:  # noqa: BLE001 -- the store's library may raise anything; each message has an outcome
            return _failed(taken.gid, as_store_error(error))

    async def _require_remembered(self, taken: TakenMessage) -> None:
        horizon_ms = await self._coordinator.history_horizon_ms()
        if horizon_ms and taken.created_ms < horizon_ms + CLOCKS_APART_MS:
            raise ForgottenMessage(gid=taken.gid, remedy=_OLDER_THAN_HISTORY)

    async def _hand_in(self, taken: TakenMessage, message: Message, actor: Actor) -> Reply:
        hand_in = self._coordinator.prepare if taken.state is TakenState.PREPARED else self._coordinator.submit
        born_ms = self._birth_ms(taken)
        entry = AuditEntry(actor.who, actor.peer, "import", taken.gid)
        return await self._coordinator.acts.perform(
            entry, lambda on_reply, audited: hand_in(message, on_reply, born_ms, None, audited)
        )

    def _birth_ms(self, taken: TakenMessage) -> int:
        """Return a time before which nothing of the message happened; 0 when unknown.

        It holds by any clock concerned: its producer's barrier row has the time of the producer's clock, and dtm's that
        of its own.
        """
        if not taken.created_ms:
            return 0
        return max(0, min(taken.created_ms, self._coordinator.clock.now_ms()) - CLOCKS_APART_MS)

    async def _refused(self, taken: TakenMessage, message: Message, error: TwophaseError) -> TakenResult:
        """Compare after a refusal by the lifecycle: another request was faster.

        The stored message decides whether it is the same one.
        """
        view = await self._coordinator.query(message.gid)
        known = None if view is None or not message.branches else _compared(taken, message, view)
        return known or _failed(taken.gid, error)

    def _message(self, taken: TakenMessage) -> Message:
        """Return the message, by every rule that holds for one that arrives the usual way.

        Raises:
            InvalidRequest, LimitExceeded: as `Decoder.message`.
        """
        calls = [
            (branch, url)
            for branch in taken.branches
            for url in ((branch.url,) if branch.calls is None else branch.calls)
        ]
        request = WireRequest(
            gid=taken.gid,
            trans_type="msg",
            steps=[WireStep(url) for _, url in calls],
            query_prepared=taken.query_prepared,
            protocol=taken.protocol,
            branch_headers=dict(taken.branch_headers) or None,
            concurrent=taken.concurrent,
            delay_ms=taken.delay_ms,
            timeout_to_fail_ms=taken.timeout_to_fail_ms,
            request_timeout_ms=taken.request_timeout_ms,
            retry_interval_ms=taken.retry_interval_ms,
        )
        # The length decides only whether payloads must be measured one by one.
        read = self._decoder.message_of(request, PAYLOAD_BYTES_MAX.value + 1, [one.payload for one, _ in calls])
        branches = tuple(_branch(branch, taken.gid) for branch in taken.branches)
        return Message(read.gid, branches, read.check_url, self._from_now(read.options), read.protocol)

    def _from_now(self, options: Options) -> Options:
        """Return the options with the rest of the delay as a time.

        Here a delay counts from the birth.
        """
        if not options.delay_ms:
            return options
        at_ms = self._coordinator.clock.now_ms() + options.delay_ms
        return msgspec.structs.replace(options, delay_ms=0, not_before_ms=at_ms)


def _read(body: bytes) -> TakeoverRequest:
    if len(body) > LONG_BYTES:
        require_values(body, _VALUES_MAX)
    try:
        asked = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the request is not what {PATH} takes: {error}.") from error
    if len(asked.messages) > MESSAGES_MAX:
        raise InvalidRequest(f"messages: there are {len(asked.messages)}, at most {MESSAGES_MAX} are allowed.")
    if len({message.gid for message in asked.messages}) != len(asked.messages):
        raise InvalidRequest("messages: one gid occurs twice.")
    return asked


def _branch(taken: TakenBranch, gid: str) -> Branch:
    require(URL_BYTES_MAX, len(taken.url.encode()), gid=gid)
    if taken.calls is None:
        return Branch(taken.url, taken.payload)
    if not taken.calls:
        raise InvalidRequest("branches: calls is empty; leave it out, or name what is to be called.", gid=gid)
    return Branch(taken.url, taken.payload, taken.calls)


def _compared(taken: TakenMessage, message: Message, view: MessageView) -> TakenResult | None:
    """Return the result of a comparison with the stored message.

    None for the same message, prepared here and submitted there.
    """
    state = WIRE_STATES[view.state]
    if not _same(view.message, message):
        text = "another message has this gid here."
        return TakenResult(taken.gid, Outcome.CONFLICT, state, ContentConflict.code, text)
    if taken.state is TakenState.SUBMITTED and view.state is State.PREPARED:
        return None
    if taken.state is TakenState.SUBMITTED and view.state is State.FAILED:
        text = "it was submitted there, and has failed here: the opposite was decided."
        return TakenResult(taken.gid, Outcome.CONFLICT, state, ContraryDecision.code, text)
    return TakenResult(taken.gid, Outcome.PRESENT, state)


def _same(known: Message, taken: Message) -> bool:
    """Return True for equal steps or equal calls.

    A topic's name is lost where dtm has only its subscribers, so the calls count.
    """
    if [(branch.url, branch.payload) for branch in known.branches] == [
        (branch.url, branch.payload) for branch in taken.branches
    ]:
        return True
    return _calls(known, taken) == _calls(taken, known)


def _calls(message: Message, other: Message) -> list[tuple[str, bytes] | None]:
    """Return the calls in order.

    None for a call that has been made elsewhere, in this message or the other.
    """
    own = [(url, branch.payload) for branch in message.branches for url in _urls(branch)]
    theirs = [url for branch in other.branches for url in _urls(branch)]
    if len(own) != len(theirs):
        return list(own)
    return [None if not (call[0] and url) else call for call, url in zip(own, theirs, strict=True)]


def _urls(branch: Branch) -> tuple[str, ...]:
    return (branch.url,) if branch.subscribers is None else branch.subscribers


def _failed(gid: str, error: TwophaseError) -> TakenResult:
    outcome = Outcome.LATER if isinstance(error, Unavailable | StoreError) else Outcome.REFUSED
    return TakenResult(gid, outcome, code=error.code, message=error.message, remedy=error.remedy)
