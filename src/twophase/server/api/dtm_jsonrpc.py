"""dtm's JSON-RPC 2.0 endpoint: newGid, prepare, submit and abort (dtm-wire §1.5).

All are methods of one URL. The coordinator and the reading of a request are the same as over HTTP; only the envelope
differs. What dtm's clients observe is kept: always HTTP 200 except for a body that cannot be parsed, an `id` that is
text, code -32901 for HTTP's 409, -32603 for any other error. In `data`, an error also carries code, state and remedy,
as every refusal of this server does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.requests import Request

from twophase.coordinator.state.active_message import Reply, answers
from twophase.core.errors import InvalidRequest, TwophaseError, UnsupportedType
from twophase.core.gid import fresh_gid
from twophase.core.hooks import Clock
from twophase.server.api.operation import Operation, Served, caller_of, peer_of
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import Answer, Failure, Route, refusal
from twophase.server.codecs.trace import Trace
from twophase.server.http_port.port import Requests
from twophase.server.identity.caller import Caller
from twophase.server.identity.scopes import scopes_of

PATH: Final = "/api/json-rpc"
PARSE_ERROR: Final = -32700
BAD_REQUEST: Final = -32600
UNKNOWN_METHOD: Final = -32601
FAILED: Final = -32603
REFUSED: Final = -32901
_VERSION: Final = "2.0"
METHODS: Final = ("newGid", "prepare", "submit", "abort", "registerBranch")
_SCOPES: Final = {method: scopes_of(f"json-rpc {method}") for method in METHODS}
_SHOWN_MAX: Final = 200
ID_CHARACTERS_MAX: Final = 1_000
"""The answer repeats the id, and no budget counts this answer."""


class RpcCall(msgspec.Struct):
    """A request; dtm's `id` is text. Its `params` are read when the method is known."""

    jsonrpc: str | None = None
    id: str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()


class RpcDetails(msgspec.Struct, omit_defaults=True):
    """Details of an error that dtm does not give: code, state and remedy."""

    code: str
    state: str = ""
    remedy: str = ""


class RpcError(msgspec.Struct, omit_defaults=True):
    """The reason why a call failed."""

    code: int
    message: str
    data: RpcDetails | None = None


class RpcReply(msgspec.Struct):
    """The answer to a call; `error` or `result` is null."""

    error: RpcError | None
    id: str
    result: dict[str, str] | None = None
    jsonrpc: str = _VERSION


CALL: Final = Operation(
    path=PATH,
    methods=("POST",),
    tag="messages",
    summary="newGid, prepare, submit and abort by JSON-RPC 2.0",
    description="An error is a 200 with `error`: -32901 for what HTTP answers with 409, -32603 for any other.",
    request=RpcCall,
    answer=RpcReply,
    shapes={400: (RpcReply, Failure)},
)
_decode_call = msgspec.json.Decoder(RpcCall).decode
_encode = msgspec.json.Encoder().encode


class JsonRpcApi:
    """Answers `POST /api/json-rpc`.

    Arguments:
        requests: the coordinator.
        decoder: turns params into messages.
        clock: gives new gids their birth time.
        on_refused: hears the error code of each request refused here.
    """

    def __init__(self, requests: Requests, decoder: Decoder, clock: Clock, on_refused: Callable[[str], None]) -> None:
        self._requests = requests
        self._decoder = decoder
        self._clock = clock
        self._on_refused = on_refused

    def served(self) -> list[Served]:
        """Return the operation with its handler."""
        return [Served(CALL, self._answer)]

    async def _answer(self, request: Request) -> Answer:
        body = await request.body()
        await self._decoder.turns.wait(len(body))
        try:
            call = _decode_call(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._on_refused(InvalidRequest.code)
            what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            return _response(RpcReply(RpcError(PARSE_ERROR, f"Parse json error: {what}"), ""), 400)
        trace = self._decoder.trace.among(request.headers.raw)
        return _response(await self._reply(call, trace, caller_of(request), peer_of(request)))

    async def _reply(self, call: RpcCall, trace: Trace, caller: Caller, peer: str) -> RpcReply:
        id_, method = call.id or "", call.method or ""
        if call.jsonrpc != _VERSION or not 0 < len(id_) <= ID_CHARACTERS_MAX:
            self._on_refused(InvalidRequest.code)
            wrong = f"id must be a text of 1 to {ID_CHARACTERS_MAX} characters"
            if call.jsonrpc != _VERSION:
                wrong = 'jsonrpc must be "2.0"'
            return RpcReply(RpcError(BAD_REQUEST, f"Bad json request: {wrong}"), id_[:ID_CHARACTERS_MAX])
        scopes = _SCOPES.get(method)
        if scopes is None:
            self._on_refused(InvalidRequest.code)
            return RpcReply(RpcError(UNKNOWN_METHOD, f"Method not found: {method[:_SHOWN_MAX]}"), id_)
        try:
            caller.require(scopes, f"json-rpc {method}", peer)
            if method == "newGid":
                return RpcReply(None, id_, {"gid": caller.gid_prefix + fresh_gid(self._clock.now_ms())})
            if method == "registerBranch":
                raise UnsupportedType("branches of SAGA and TCC transactions are not served here, only messages.")
            route, reply = await self._perform(method, bytes(call.params) or b"null", trace, caller)
        except TwophaseError as error:
            self._on_refused(error.code)
            await caller.noted()
            return RpcReply(_error(error, None, None), id_)
        return RpcReply(None if reply.error is None else _error(reply.error, route, reply), id_, _result(reply))

    async def _perform(self, method: str, params: bytes, trace: Trace, caller: Caller) -> tuple[Route, Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        on_reply = answers(future)
        if method == "abort":
            gid = self._decoder.gid(params)
            caller.require_gid(gid)
            self._requests.abort(gid, on_reply, caller.owner)
            return Route.ABORT, await future
        message = self._decoder.message(params, trace)
        caller.require_message(message)
        if method == "prepare":
            self._requests.prepare(message, on_reply, None, caller.owner)
            return Route.PREPARE, await future
        self._requests.submit(message, on_reply, None, caller.owner)
        return Route.SUBMIT, await future


def _error(error: TwophaseError, route: Route | None, reply: Reply | None) -> RpcError:
    if reply is None:
        refused = refusal(error, route=route)
    else:
        refused = refusal(error, route=route, state=reply.state, result=reply.result)
    return RpcError(
        REFUSED if refused.failed else FAILED, refused.message, RpcDetails(refused.code, refused.state, refused.remedy)
    )


def _result(reply: Reply) -> dict[str, str] | None:
    """Return dtm's result: null for success, an empty object beside a handler's error."""
    return None if reply.error is None else {}


def _response(reply: RpcReply, status: int = 200) -> Answer:
    return Answer(status, _encode(reply))
