"""The request object of the dtm HTTP API, as it is read from JSON.

It is tolerant where dtm's clients differ, strict elsewhere. Two ways lead to one struct. Requests whose keys are
written as documented take one msgspec call. Any other request (other case, unknown keys) is taken apart key by key:
Go's decoder, which dtm's clients were written against, matches keys without regard to case and ignores unknown ones,
and a key that was silently missed would be a branch silently lost. Source: dtm-wire §1.2.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twophase.core.errors import InvalidRequest
from twophase.core.limits import BRANCHES_MAX, require
from twophase.http_client.turns import LONG_BYTES
from twophase.server.codecs.options import RequestOptions
from twophase.server.codecs.values import require_values


class WireStep(msgspec.Struct, forbid_unknown_fields=True):
    """One branch; clients before dtm 1.10 put the payload into `data`."""

    action: str | None = None
    data: str | None = None


class WireRequest(RequestOptions, forbid_unknown_fields=True):
    """The fields of prepare, submit and abort; every field may be null.

    Times without a unit in their name are in seconds.
    """

    gid: str | None = None
    trans_type: str | None = None
    steps: list[WireStep] | None = None
    payloads: list[str | None] | None = None
    query_prepared: str | None = None
    protocol: str | None = None
    # accepted and without a meaning for a message: SAGA's, and what some clients always send along
    retry_limit: msgspec.Raw = msgspec.Raw()
    retry_count: msgspec.Raw = msgspec.Raw()
    rollback_reason: msgspec.Raw = msgspec.Raw()
    passthrough_headers: msgspec.Raw = msgspec.Raw()


_decoder = msgspec.json.Decoder(WireRequest)
decode_documented: Final = _decoder.decode
"""Decodes a request with documented keys; raises msgspec's errors."""
_pieces_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_steps_only_decoder: msgspec.json.Decoder[list[WireStep] | None] = msgspec.json.Decoder(list[WireStep] | None)
_countable_decoder = msgspec.json.Decoder(list[msgspec.Raw] | None)
_steps_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | None)
_encoder = msgspec.json.Encoder()
_REQUEST_KEYS = frozenset(WireRequest.__struct_fields__)
_STEP_KEYS = frozenset(WireStep.__struct_fields__)


def parse_request(body: bytes | bytearray) -> WireRequest:
    """Return the request in `body`.

    Raises:
        InvalidRequest: not JSON, no object, invalid UTF-8, nested too deeply, or a field of the wrong type, which
            the message names.
        LimitExceeded: more steps than a message may have, beside an unknown key; or too many values.

    >>> parse_request(b'{"GID": "g", "dtm": "", "Steps": [{"Action": "http://b/in"}]}').steps
    [WireStep(action='http://b/in', data=None)]
    """
    if len(body) > LONG_BYTES:
        require_values(body)
    try:
        return _decoder.decode(body)
    except (msgspec.ValidationError, RecursionError):
        # Perhaps only an unknown key: the second look decides, and its error is the one to report.
        pass
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(error) from error
    try:
        return _decoder.decode(_as_documented(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(error) from error


def parse_steps(text: str) -> list[WireStep] | None:
    """Return the steps that a gRPC request carries as JSON text.

    They are read as tolerantly as the whole request over HTTP.

    Raises:
        InvalidRequest, LimitExceeded: as `parse_request`.

    >>> parse_steps('[{"action":"bank-b:58080/bank.Bank/TransferIn"}]'), parse_steps("")
    ([WireStep(action='bank-b:58080/bank.Bank/TransferIn', data=None)], None)
    """
    if not text:
        return None
    raw = text.encode()
    if len(raw) > LONG_BYTES:
        require_values(raw)
    try:
        return _steps_only_decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        pass  # as in parse_request: unknown keys, or a real fault
    try:
        steps = _counted_steps(raw)
        return _steps_only_decoder.decode(_encoder.encode([_known(step, _STEP_KEYS) for step in steps or ()]))
    except (msgspec.MsgspecError, RecursionError) as error:
        refused = _unreadable(error)
        raise InvalidRequest(f"steps: {refused.message.replace('the request', 'the text')}") from error


def _as_documented(body: bytes | bytearray) -> bytes:
    """Return the same request with documented keys only."""
    pieces = _known(_pieces_decoder.decode(body), _REQUEST_KEYS)
    steps = pieces.get("steps")
    if steps is not None:
        try:
            parsed = _counted_steps(steps)
        except msgspec.ValidationError as error:
            # Positions are relative to the field here; the reader needs them relative to the request.
            what, _, where = str(error).partition(" - at `$")
            raise msgspec.ValidationError(f"{what} - at `$.steps{where.rstrip('`')}`") from error
        if parsed is not None:
            pieces["steps"] = msgspec.Raw(_encoder.encode([_known(step, _STEP_KEYS) for step in parsed]))
    return _encoder.encode(pieces)


def _counted_steps(raw: bytes | msgspec.Raw) -> list[dict[str, msgspec.Raw]] | None:
    """Return the steps, each by its keys.

    More steps than a message may have are counted and refused before any is taken apart.
    """
    countable = _countable_decoder.decode(raw)
    if countable is not None:
        require(BRANCHES_MAX, len(countable))
    steps: list[dict[str, msgspec.Raw]] | None = _steps_decoder.decode(raw)
    return steps


def _known(pieces: dict[str, msgspec.Raw], keys: frozenset[str]) -> dict[str, msgspec.Raw]:
    return {key: piece for name, piece in pieces.items() if (key := name if name in keys else name.lower()) in keys}


def _unreadable(error: Exception) -> InvalidRequest:
    if isinstance(error, RecursionError):
        return InvalidRequest("the request is nested too deeply.")
    if isinstance(error, UnicodeDecodeError):
        return InvalidRequest("the request is not valid UTF-8.")
    if not isinstance(error, msgspec.ValidationError):
        return InvalidRequest(f"the request is not JSON: {error}.")
    what, _, where = str(error).partition(" - at `$")
    field = where.rstrip("`").lstrip(".") or "the request"
    return InvalidRequest(f"{field}: {what[:1].lower()}{what[1:]}.")
