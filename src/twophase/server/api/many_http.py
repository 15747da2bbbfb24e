"""The routes `POST /api/twophase/prepare-many` and `submit-many`.

They are for producers that have thousands of messages at once. All messages of a request go to the coordinator together
and share its flushes; each message has an outcome of its own, and is judged by the same table as one that arrives
alone. A `submit-many` that names gids begins nothing: an unknown gid is an outcome, so a coordinator whose store was
replaced never delivers an empty message in good faith. One that holds whole messages may begin them, as a submit may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec
from starlette.requests import Request

from twophase.coordinator.state.active_message import OnReply, Owner, Reply
from twophase.core.errors import ContraryDecision, InvalidRequest, StateConflict, TwophaseError, UnknownMessage
from twophase.core.gid import validate_gid
from twophase.core.lifecycle import State
from twophase.core.many import MESSAGES_MAX, PREPARE_PATH, SUBMIT_PATH, ManyReply, OneResult
from twophase.core.message import Message
from twophase.http_client.turns import LONG_BYTES
from twophase.server.api.operation import Operation, Served, caller_of
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import WIRE_STATES, Answer
from twophase.server.codecs.values import require_values
from twophase.server.codecs.wire import WireRequest
from twophase.server.identity.caller import Caller

Asked = TypeVar("Asked")
Send = Callable[[Message, OnReply, int | None, Owner | None], None]
_VALUES_MAX: Final = 400 * MESSAGES_MAX
"""More than 500 messages with 63 branches and 64 headers have."""
_DONE: Final = OneResult()
_encode = msgspec.json.Encoder().encode


class PrepareMany(msgspec.Struct):
    """The messages, each as `prepare` accepts one."""

    messages: list[WireRequest]


class SubmitMany(msgspec.Struct):
    """The messages, each as `submit` accepts one; or the gids of prepared ones."""

    messages: list[WireRequest] | None = None
    gids: tuple[str, ...] | None = None


PREPARE: Final = Operation(
    path=PREPARE_PATH,
    methods=("POST",),
    tag="many at once",
    summary="Prepare up to 500 messages",
    description="Each as in `prepare`, with its own outcome; `code` empty: done. May be repeated.",
    request=PrepareMany,
    answer=ManyReply,
)
SUBMIT: Final = Operation(
    path=SUBMIT_PATH,
    methods=("POST",),
    tag="many at once",
    summary="Submit up to 500 messages",
    description=(
        "Each as in `submit`, without `wait_result`; or the gids of prepared ones, of which an unknown one is"
        " answered TP-2004 and never begun. May be repeated."
    ),
    request=SubmitMany,
    answer=ManyReply,
)
_decode_prepare = msgspec.json.Decoder(PrepareMany).decode
_decode_submit = msgspec.json.Decoder(SubmitMany).decode


class Requests(Protocol):
    """The part of the coordinator that is used here."""

    def prepare(
        self, message: Message, on_reply: OnReply, created_ms: int | None = None, owner: Owner | None = None
    ) -> None: ...

    def submit(
        self, message: Message, on_reply: OnReply, created_ms: int | None = None, owner: Owner | None = None
    ) -> None: ...

    def confirm(self, gid: str, on_reply: OnReply, owner: Owner | None = None) -> None: ...


class _Outcomes:
    """The outcomes of one request, as they come."""

    def __init__(self, count: int) -> None:
        self.results = [_DONE] * count
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing = count
        if not count:
            self.complete.set_result(None)

    def set_result(self, index: int, result: OneResult) -> None:
        self.results[index] = result
        self._missing -= 1
        if not self._missing and not self.complete.done():
            self.complete.set_result(None)

    async def answer(self) -> Answer:
        """Wait for the last outcome, and return the answer."""
        await self.complete
        return Answer(200, _encode(ManyReply(tuple(self.results))))


class ManyApi:
    """Answers both requests.

    Arguments:
        requests: the coordinator.
        decoder: knows what may be called, and every limit.
        on_refused: hears the error code of each request, and of each message, that is refused here.
    """

    def __init__(self, requests: Requests, decoder: Decoder, on_refused: Callable[[str], None]) -> None:
        self._requests = requests
        self._decoder = decoder
        self._on_refused = on_refused

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [Served(PREPARE, self._prepare), Served(SUBMIT, self._submit)]

    async def _prepare(self, request: Request) -> Answer:
        asked = (await self._read(_decode_prepare, request)).messages
        return await self._each(caller_of(request), asked, self._requests.prepare, _Prepared)

    async def _submit(self, request: Request) -> Answer:
        asked = await self._read(_decode_submit, request)
        if (asked.gids is None) is (asked.messages is None):
            raise InvalidRequest("`messages` or `gids` is needed, but not both.")
        if asked.messages is not None:
            return await self._each(caller_of(request), asked.messages, self._submit_one, _Submitted)
        gids = _valid_gids(asked.gids or ())
        caller = caller_of(request)
        caller.count(max(0, len(gids) - 1), counted=1)
        outcomes = _Outcomes(len(gids))
        for index, gid in enumerate(gids):
            try:
                caller.require_gid(gid)
            except TwophaseError as error:
                self._on_refused(error.code)
                outcomes.set_result(index, _failed(error, State.ABSENT))
                continue
            self._requests.confirm(gid, _Confirmed(outcomes, index, gid, self._on_refused), caller.owner)
        return await outcomes.answer()

    async def _read(self, decode: Callable[[bytes], Asked], request: Request) -> Asked:
        body = await request.body()
        await self._decoder.turns.wait(len(body))
        if len(body) > LONG_BYTES:
            require_values(body, _VALUES_MAX)
        try:
            return decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"the request does not fit this path: {error}.") from error

    async def _each(
        self,
        caller: Caller,
        asked: list[WireRequest],
        send: Send,
        taker: Callable[[_Outcomes, int], OnReply],
    ) -> Answer:
        """Send each message to the coordinator, and answer when all have an outcome."""
        _require_distinct("messages", [one.gid for one in asked])
        caller.count(max(0, len(asked) - 1), counted=1)
        outcomes = _Outcomes(len(asked))
        for index, one in enumerate(asked):
            try:
                # Payloads are measured one by one where the request's length allows a large one.
                message = self._decoder.message_of(one, _size_bytes(one))
                caller.require_message(message)
                send(message, taker(outcomes, index), None, caller.owner)
            except TwophaseError as error:
                self._on_refused(error.code)
                outcomes.set_result(index, _failed(error, State.ABSENT))
        return await outcomes.answer()

    def _submit_one(self, message: Message, on_reply: OnReply, created_ms: int | None, owner: Owner | None) -> None:
        if message.options.wait_result:
            raise InvalidRequest("wait_result waits for branch calls; submit this message alone.", gid=message.gid)
        self._requests.submit(message, on_reply, created_ms, owner)


class _Prepared:
    """Takes the coordinator's reply to one prepare."""

    __slots__ = ("_index", "_outcomes")

    def __init__(self, outcomes: _Outcomes, index: int) -> None:
        self._outcomes = outcomes
        self._index = index

    def __call__(self, reply: Reply) -> None:
        self._outcomes.set_result(self._index, _DONE if reply.error is None else _failed(reply.error, reply.state))


class _Submitted(_Prepared):
    """Takes the coordinator's reply to one submit."""

    __slots__ = ()

    def __call__(self, reply: Reply) -> None:
        if isinstance(reply.error, StateConflict) and reply.state is State.SUCCEEDED:
            self._outcomes.set_result(self._index, _DONE)  # delivered before
        else:
            super().__call__(reply)


class _Confirmed:
    """Takes the coordinator's reply to the submit of a gid."""

    __slots__ = ("_gid", "_index", "_on_refused", "_outcomes")

    def __init__(self, outcomes: _Outcomes, index: int, gid: str, on_refused: Callable[[str], None]) -> None:
        self._outcomes = outcomes
        self._index = index
        self._gid = gid
        self._on_refused = on_refused

    def __call__(self, reply: Reply) -> None:
        error = reply.error or self._contrary(reply.state)
        self._outcomes.set_result(self._index, _DONE if error is None else _failed(error, reply.state))

    def _contrary(self, state: State) -> TwophaseError | None:
        """Return the reason why a message in this state is not submitted."""
        error: TwophaseError | None = None
        if state <= State.FORGOTTEN:
            error = UnknownMessage(gid=self._gid)
        elif state is State.FAILED:
            error = ContraryDecision(gid=self._gid)
        if error is not None:
            self._on_refused(error.code)
        return error


def _failed(error: TwophaseError, state: State) -> OneResult:
    return OneResult(error.code, WIRE_STATES.get(state, ""), error.message)


def _size_bytes(request: WireRequest) -> int:
    return sum(4 * len(payload) for payload in request.payloads or () if payload)


def _valid_gids(gids: tuple[str, ...]) -> tuple[str, ...]:
    _require_distinct("gids", gids)
    for index, gid in enumerate(gids):
        try:
            validate_gid(gid)
        except InvalidRequest as error:
            raise type(error)(f"gids[{index}]: {error.message}") from error
    return gids


def _require_distinct(field: str, gids: Sequence[str | None]) -> None:
    if len(gids) > MESSAGES_MAX:
        raise InvalidRequest(f"{field}: there are {len(gids)}, at most {MESSAGES_MAX} are allowed.")
    if len(set(gids)) != len(gids):
        twice = next(gid for index, gid in enumerate(gids) if gid in gids[:index])
        raise InvalidRequest(f"{field}: {'a missing gid' if twice is None else repr(twice[:128])} occurs twice.")
