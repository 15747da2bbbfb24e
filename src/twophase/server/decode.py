"""From a request body to a message within the limits: what passes here, every node accepts.

Nothing is stored, called or half-done before a body has passed; a refusal names the field and the limit.
Differences from dtm, all on the safe side: a missing or unprintable gid, fewer payloads than steps, unreadable
`custom_data` and unknown transaction types are refused here, where dtm stores the message and then panics,
truncates or never calls the branch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from twophase.core.errors import InvalidRequest, LimitExceeded, TopicNotFound, UnsupportedType
from twophase.core.gid import validate_gid
from twophase.core.limits import (
    BRANCHES_MAX,
    DELAY_MS_MAX,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    PAYLOAD_BYTES_MAX,
    REQUEST_TIMEOUT_MS_MAX,
    RETRY_INTERVAL_MS_MAX,
    TIMEOUT_TO_FAIL_MS_MAX,
    URL_BYTES_MAX,
    Limit,
    require,
)
from twophase.core.message import Branch, Durability, Message, Options, scheme_of
from twophase.server.wire import WireRequest, WireStep, parse_request

TOPIC_PREFIX: Final = "topic://"
_PROTOCOLS: Final = frozenset({"http", "grpc", "json-rpc"})
_ADDRESSES_REMEMBERED_MAX: Final = 4096
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_METADATA_NAME: Final = re.compile(r"[0-9A-Za-z_.-]+")
_FRAMING_HEADERS: Final = frozenset(
    {"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
_DURABILITIES: Final[Mapping[str, Durability]] = {"submit": Durability.SUBMIT, "check-back": Durability.CHECK_BACK}
_DEFAULT_OPTIONS: Final = Options()


class _CustomData(msgspec.Struct):
    """The part of dtm's `custom_data` that concerns a message."""

    delay: int | float | None = None


_custom_data_decoder = msgspec.json.Decoder(_CustomData | None)
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Decoder:
    """Turns bodies of prepare, submit and abort into what the coordinator takes.

    Arguments:
        check_address: None when some destination can call the address, else why not.
    """

    def __init__(self, check_address: Callable[[str], str | None]) -> None:
        self._check_address = check_address
        self._callable: set[str] = set()

    def message(self, body: bytes | bytearray) -> Message:
        """The message a prepare or submit speaks of.

        Raises:
            InvalidRequest, LimitExceeded, UnsupportedType, TopicNotFound: as they say; nothing was stored.

        >>> decoder = Decoder(lambda url: None)
        >>> decoder.message(b'{"gid":"g","trans_type":"msg","steps":[{"action":"http://b/in"}],"payloads":["{}"]}')
        Message(gid='g', branches=(Branch(url='http://b/in', payload=b'{}'),), check_url='', ...)
        """
        return self.message_of(parse_request(body), len(body))

    def message_of(self, request: WireRequest, request_bytes: int, payloads: list[bytes] | None = None) -> Message:
        """The message of a request that came in any wire format, `request_bytes` long.

        Arguments:
            payloads: where the format carries bytes, these, instead of the request's own.

        Raises: as `message`.
        """
        gid = _gid(request)
        if request.trans_type != "msg":
            raise _unsupported(request.trans_type, gid)
        protocol = request.protocol or "http"
        if protocol not in _PROTOCOLS:
            named = ", ".join(sorted(_PROTOCOLS))
            raise InvalidRequest(f"protocol is {protocol[:45]!r}, one of {named} is needed.", gid=gid)
        branches = self._branches(request, protocol, payloads, gid)
        if request_bytes > PAYLOAD_BYTES_MAX.value:
            for branch in branches:
                require(PAYLOAD_BYTES_MAX, len(branch.payload), gid=gid)
        if protocol == "json-rpc":
            _require_parameters(branches, gid)
        if request.branch_headers or not gid.isascii():
            _require_metadata(request, branches, protocol, gid)
        check_url = request.query_prepared or ""
        if check_url:
            address = check_url if protocol == "http" else _address(check_url, protocol)
            if address not in self._callable:
                self._examine("query_prepared", address, gid)
        return Message(gid, branches, check_url, _options(request, check_url, gid), protocol)

    def gid(self, body: bytes | bytearray) -> str:
        """The gid an abort names; its other fields do not matter, and its type may be missing.

        Raises:
            InvalidRequest, LimitExceeded, UnsupportedType: as they say.
        """
        return self.gid_of(parse_request(body))

    def gid_of(self, request: WireRequest) -> str:
        """`gid` of a request that came in any wire format."""
        gid = _gid(request)
        if request.trans_type not in {"msg", "", None}:
            raise _unsupported(request.trans_type, gid)
        return gid

    def _branches(
        self, request: WireRequest, protocol: str, binary: list[bytes] | None, gid: str
    ) -> tuple[Branch, ...]:
        steps = request.steps or []
        payloads: Sequence[str | bytes | None] = binary or request.payloads or []
        if len(steps) > BRANCHES_MAX.value:
            require(BRANCHES_MAX, len(steps), gid=gid)
        if len(payloads) != len(steps):
            payloads = _payloads_of_steps(steps, payloads, gid)
        known = self._callable
        branches: list[Branch] = []
        for step, payload in zip(steps, payloads, strict=True):
            url = step.action or ""
            address = url if protocol == "http" else _address(url, protocol)
            if address not in known:
                self._examine(f"steps[{len(branches)}].action", address, gid)
            if not payload:
                branches.append(Branch(url))
            else:
                branches.append(Branch(url, payload.encode() if isinstance(payload, str) else payload))
        return tuple(branches)

    def _examine(self, field: str, url: str, gid: str) -> None:
        require(URL_BYTES_MAX, len(url.encode()), gid=gid)
        if url.startswith(TOPIC_PREFIX):
            raise TopicNotFound(f"topic not found: {field} is {url!r}.", gid=gid)
        reason = self._check_address(url)
        if reason is not None:
            raise InvalidRequest(f"{field}: {reason}", gid=gid)
        if len(self._callable) >= _ADDRESSES_REMEMBERED_MAX:
            self._callable.clear()
        self._callable.add(url)


def _payloads_of_steps(
    steps: list[WireStep], payloads: Sequence[str | bytes | None], gid: str
) -> Sequence[str | bytes | None]:
    """Payloads where clients before dtm 1.10 put them; their number is wrong otherwise."""
    if not payloads and any(step.data for step in steps):
        return [step.data for step in steps]
    raise InvalidRequest(f"payloads: there are {len(payloads)} for {len(steps)} steps, one each is needed.", gid=gid)


def _gid(request: WireRequest) -> str:
    if request.gid is None:
        raise InvalidRequest("gid is missing.")
    return validate_gid(request.gid)


def _unsupported(trans_type: str | None, gid: str) -> UnsupportedType:
    if not trans_type:
        return UnsupportedType("trans_type is missing, 'msg' is needed.", gid=gid)
    return UnsupportedType(f"trans_type is {trans_type[:45]!r}, only 'msg' (2-phase message) is served here.", gid=gid)


def _address(url: str, protocol: str) -> str:
    """`url` with the scheme that dtm's clients leave to the protocol."""
    return f"grpc://{url}" if url and scheme_of(url, protocol) == "grpc" and "://" not in url else url


def _require_parameters(branches: tuple[Branch, ...], gid: str) -> None:
    """A JSON-RPC branch's payload is its `params`, into which gid and branch id are put, so it must be an object."""
    for index, branch in enumerate(branches):
        if branch.payload and scheme_of(branch.url, "json-rpc") == "json-rpc":
            try:
                _object_decoder.decode(branch.payload)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise InvalidRequest(f"payloads[{index}]: a JSON-RPC branch needs a JSON object.", gid=gid) from error


def _require_metadata(request: WireRequest, branches: tuple[Branch, ...], protocol: str, gid: str) -> None:
    """What a gRPC call carries as metadata must be able to stand there."""
    urls = [request.query_prepared or "", *(branch.url for branch in branches)]
    if not any(url and scheme_of(url, protocol) in {"grpc", "grpcs"} for url in urls):
        return
    if not gid.isascii():
        raise InvalidRequest("gid has characters beyond ASCII, which a gRPC call's metadata cannot carry.", gid=gid)
    for name in request.branch_headers or ():
        if not _METADATA_NAME.fullmatch(str(name)):
            raise InvalidRequest(f"branch_headers: {str(name)[:45]!r} cannot be gRPC metadata.", gid=gid)


def _options(request: WireRequest, check_url: str, gid: str) -> Options:
    if not (
        request.custom_data
        or request.wait_result
        or request.timeout_to_fail
        or request.request_timeout
        or request.retry_interval
        or request.branch_headers
        or request.concurrent
        or request.delay_ms
        or request.timeout_to_fail_ms
        or request.request_timeout_ms
        or request.retry_interval_ms
        or request.explicit_verdict
        or request.open
        or request.durability
    ):
        # One shared object for the usual case: a million waiting messages need not carry a million equal options.
        return _DEFAULT_OPTIONS
    return Options(
        concurrent=bool(request.concurrent),
        wait_result=bool(request.wait_result),
        delay_ms=_delay_ms(request, gid),
        timeout_to_fail_ms=_span_ms(TIMEOUT_TO_FAIL_MS_MAX, request.timeout_to_fail, request.timeout_to_fail_ms, gid),
        request_timeout_ms=_span_ms(REQUEST_TIMEOUT_MS_MAX, request.request_timeout, request.request_timeout_ms, gid),
        retry_interval_ms=_span_ms(RETRY_INTERVAL_MS_MAX, request.retry_interval, request.retry_interval_ms, gid),
        headers=_headers(request.branch_headers, gid) if request.branch_headers else (),
        explicit_verdict=bool(request.explicit_verdict),
        open=bool(request.open),
        durability=_durability(request.durability, check_url, gid) if request.durability else Durability.SUBMIT,
    )


def _span_ms(limit: Limit, seconds: float | None, milliseconds: int | None, gid: str) -> int:
    """A span of time given in seconds or, more exactly, in milliseconds; 0 stands for the default."""
    if milliseconds is None:
        if not seconds:
            return 0
        # Compared before it is multiplied: JSON numbers reach where floats overflow.
        milliseconds = round(seconds * 1000) if abs(seconds) <= limit.value else limit.value + 1
    if milliseconds < 0:
        raise InvalidRequest(f"{limit.name} is negative.", gid=gid)
    require(limit, milliseconds, gid=gid)
    return milliseconds


def _delay_ms(request: WireRequest, gid: str) -> int:
    seconds: float | None = None
    if request.custom_data:
        try:
            custom_data = _custom_data_decoder.decode(request.custom_data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidRequest('custom_data: only JSON such as {"delay": seconds} is understood.', gid=gid) from error
        seconds = custom_data.delay if custom_data is not None else None
    return _span_ms(DELAY_MS_MAX, seconds, request.delay_ms, gid)


def _headers(headers: dict[str, str | None] | list[msgspec.Raw], gid: str) -> tuple[tuple[str, str], ...]:
    if isinstance(headers, list):
        # PHP writes an empty map as an empty list; anything in it has no name.
        raise InvalidRequest("branch_headers: an object of names and values is needed.", gid=gid)
    require(HEADERS_MAX, len(headers), gid=gid)
    pairs = tuple((name, value or "") for name, value in headers.items())
    require(HEADER_BYTES_MAX, sum(len(name) + len(value) for name, value in pairs), gid=gid)
    for name, value in pairs:
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidRequest(
                f"branch_headers: {name[:45]!r} or its value has characters HTTP does not allow.", gid=gid
            )
        if name.lower() in _FRAMING_HEADERS:
            raise InvalidRequest(f"branch_headers: {name!r} belongs to the connection and cannot be set.", gid=gid)
    return pairs


def _durability(durability: str, check_url: str, gid: str) -> Durability:
    chosen = _DURABILITIES.get(durability)
    if chosen is None:
        raise InvalidRequest(f"durability is {durability[:45]!r}, 'submit' or 'check-back' is needed.", gid=gid)
    if chosen is Durability.CHECK_BACK and not check_url:
        raise InvalidRequest("durability 'check-back' needs query_prepared, the address to check back.", gid=gid)
    return chosen


def too_large(limit: Limit, size_bytes: int) -> LimitExceeded:
    """The refusal of something that is not even read to its end."""
    return LimitExceeded(f"{limit.name} is {size_bytes} {limit.unit} or more, at most {limit.value} are allowed.")
