"""Branches and check-backs as JSON-RPC 2.0 over HTTP (dtm-wire §3.1).

They are called as dtm calls them, at `http://host/path?method=NAME` in a message of protocol `json-rpc`: the payload's
fields are the `params`, with gid, branch id, op and type put among them. Promise: the documented codes have their
documented meaning (-32901 refused, -32902 not done yet), which dtm itself gets wrong, and an answer that is no JSON-RPC
response confirms nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from twophase.core.limits import REQUEST_VALUES_MAX
from twophase.core.message import method_of
from twophase.core.verdict import status_of_json_rpc
from twophase.destinations.base import Answer, Call, Destination
from twophase.http_client.turns import LONG_BYTES

_NO_RESPONSE = 502
NO_OBJECT: Final = "a JSON-RPC branch needs a JSON object."


class _Error(msgspec.Struct):
    code: int | float | None = None
    message: str = ""


class _Response(msgspec.Struct):
    jsonrpc: str = ""
    error: _Error | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Only a request has them: it was sent back as it came."""


class _Request(msgspec.Struct):
    id: str
    method: str
    params: msgspec.Raw
    jsonrpc: str = "2.0"


class _Own(msgspec.Struct, omit_defaults=True):
    """The members of a payload whose names are those that each call sets."""

    branch_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    gid: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    op: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    trans_type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_NONE: Final = _Own()
_decode_own = msgspec.json.Decoder(_Own).decode
_decode_params = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_response = msgspec.json.Decoder(_Response, strict=False).decode
_encode = msgspec.json.Encoder().encode


class JsonRpcDestination:
    """Calls HTTP addresses that name a `method`.

    It calls them through `http`, whose connections and limits it shares.

    Arguments:
        http: calls the address; stopped by this one.
        strict: an HTTP status other than 200 is no answer of a JSON-RPC service, whatever it means over HTTP: only a
            code says "refused" or "not done yet".
    """

    def __init__(self, http: Destination, *, strict: bool = False) -> None:
        self._http = http
        self._strict = strict

    def accepts(self, url: str) -> str | None:
        """Return None when `url` can be called; else why not."""
        if not method_of(url):
            return "bad_url: a JSON-RPC address names its method: http://host/path?method=NAME"
        return self._http.accepts(url)

    def key(self, url: str) -> str:
        """Return the key of the HTTP destination."""
        return self._http.key(url)

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        """POST the request object; the URL goes unchanged."""
        wrong = why_no_params(call.payload)
        if wrong:  # a branch that came with a check-back's answer
            asyncio.get_running_loop().call_soon(on_answer, Answer(0, error=f"bad_payload: {wrong}"))
            return
        body = request_body(call)
        request = Call(call.url, (), body, call.headers, call.timeout_ms, call.answer_bytes_max, call.query)
        self._http.call(request, partial(self._understood, on_answer))

    async def stop(self) -> None:
        """Stop the HTTP destination."""
        await self._http.stop()

    def _understood(self, on_answer: Callable[[Answer], None], answer: Answer) -> None:
        if answer.status == 200:
            on_answer(understood(answer))
        elif answer.status and self._strict:
            on_answer(_other(answer, _NO_RESPONSE, f"HTTP status {answer.status}, where JSON-RPC answers with 200"))
        else:
            on_answer(answer)


def why_no_params(payload: bytes) -> str:
    """Return why a payload cannot be the `params` of a call; empty when it can.

    Only one with members that the call sets is taken apart, so it may not have very many.

    >>> why_no_params(b'{"amount":30}'), why_no_params(b"[]")
    ('', 'a JSON-RPC branch needs a JSON object.')
    """
    try:
        if not payload or _decode_own(payload) == _NONE:
            return ""
    except (msgspec.MsgspecError, RecursionError):
        return NO_OBJECT
    most = REQUEST_VALUES_MAX.value
    if len(payload) > LONG_BYTES and payload.count(b":") > most:
        return f"it has more than {most} members, and one of gid, branch_id, op and trans_type, which each call sets."
    return ""


def request_body(call: Call) -> bytes:
    """Return the request object of a call.

    The fields that name the message override the payload's fields of the same names.

    Raises:
        msgspec.MsgspecError: the payload is no JSON object (`why_no_params`).

    >>> query = (("branch_id", "01"), ("gid", "g"), ("op", "action"), ("trans_type", "msg"))
    >>> request_body(Call("http://b/rpc?method=in", query, b'{"amount":30}', (), 3000)).decode()[:78]
    '{"id":"g-01","method":"in","params":{"amount":30,"branch_id":"01","gid":"g","o'
    """
    query = dict(call.query)
    own, others = _encode(query), _members_beside(query, call.payload)
    params = msgspec.Raw(b"{%b,%b" % (others, own[1:]) if others else own)
    return _encode(_Request(f"{query.get('gid', '')}-{query.get('branch_id', '')}", method_of(call.url), params))


def _members_beside(query: dict[str, str], payload: bytes) -> bytes:
    """Return the members of a payload that a call does not set, as they stand."""
    if not payload:
        return b""
    if _decode_own(payload) != _NONE:
        payload = _encode({name: value for name, value in _decode_params(payload).items() if name not in query})
    return payload.strip()[1:-1].strip()


def understood(answer: Answer) -> Answer:
    """Read an HTTP 200 by its response object: its code becomes an HTTP status.

    The status is the one that means the same.

    >>> understood(Answer(200, b'{"jsonrpc":"2.0","id":"g-01","error":{"code":-32902,"message":"wait"}}')).status
    425
    >>> understood(Answer(200, b"<html>welcome</html>")).status
    502
    """
    try:
        response = _decode_response(answer.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _other(answer, _NO_RESPONSE, "the answer is not a JSON-RPC response")
    if response.error is not None:
        code = response.error.code
        status = status_of_json_rpc(int(code)) if code is not None and abs(code) < 1e9 else 500
        return _other(answer, status, f"JSON-RPC error {code}: {response.error.message}")
    if response.result is msgspec.UNSET and not (response.jsonrpc and response.params is msgspec.UNSET):
        return _other(answer, _NO_RESPONSE, "the answer is not a JSON-RPC response")
    return answer


def _other(answer: Answer, status: int, error: str) -> Answer:
    return Answer(status, answer.body, answer.verdict_header, answer.latency_ms, error)
