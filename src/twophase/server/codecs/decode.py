"""Decoding of a request body to a message within the limits.

Every node accepts a message that passes here. Nothing is stored, called or half-done before a body has passed; a
refusal names the field and the limit. Differences from dtm, all on the safe side: a missing or unprintable gid, fewer
payloads than steps, unreadable `custom_data` and unknown transaction types are refused here, where dtm stores the
message and then panics, truncates or never calls the branch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from twophase.core.address import TOPIC_PREFIX, refused_address, why_reserved
from twophase.core.errors import InvalidRequest, LimitExceeded, UnsupportedType
from twophase.core.gid import validate_gid
from twophase.core.headers import why_no_metadata
from twophase.core.limits import BRANCHES_MAX, PAYLOAD_BYTES_MAX, REQUEST_TIMEOUT_MS_MAX, URL_BYTES_MAX, Limit, require
from twophase.core.message import Branch, Message, scheme_of
from twophase.core.queue_message import (
    ANSWERS_NO_CHECK,
    GID_PREFIX,
    NOT_TO_BOTH,
    QUEUE_PREFIX,
    is_own_gid,
    is_to_both,
)
from twophase.core.redirect import CHECK_BACK_ID, Move
from twophase.core.topic import expansion_of, topic_in, validate_topic
from twophase.destinations.jsonrpc import why_no_params
from twophase.http_client.turns import BETWEEN_LONG, LONG_BYTES, Turns
from twophase.server.codecs.options import options_of, usual_options
from twophase.server.codecs.trace import Trace, TraceHeaders
from twophase.server.codecs.values import require_values
from twophase.server.codecs.wire import WireRequest, WireStep, decode_documented, parse_request

_PROTOCOLS: Final = frozenset({"http", "grpc", "json-rpc"})
_ADDRESSES_REMEMBERED_MAX: Final = 4096
PREPARED_MAX: Final = 4096
PREPARED_BYTES_MAX: Final = 4096
_NO_GID: Final = "gid is missing."
_QUEUES: Final = len(GID_PREFIX)
_GID_OF_A_QUEUE: Final = f"gid is reserved: {GID_PREFIX!r} and 32 hexadecimal digits name a message of a queue."
_ANOTHER_GID: Final = "Use another gid; nothing was stored."


class Decoder:
    """Turns bodies of prepare, submit and abort into what the coordinator takes.

    Arguments:
        check_address: None when some destination can call the address, else why not.
        now_ms: the coordinator's clock, which times that a request names are compared with; this machine's by default.
        trace: finds the trace headers of requests, which a message keeps.
        request_timeout_max_ms: the longest request_timeout that a message may ask for.
        check_askable: as `check_address`, for the address of a check-back; by default the same, but for queues.
    """

    def __init__(
        self,
        check_address: Callable[[str], str | None],
        now_ms: Callable[[], int] | None = None,
        trace: TraceHeaders | None = None,
        request_timeout_max_ms: int = REQUEST_TIMEOUT_MS_MAX.value,
        check_askable: Callable[[str], str | None] | None = None,
    ) -> None:
        self._check_address = check_address
        self._check_askable = check_askable or check_address
        self._now_ms = now_ms or _own_ms
        self.trace = trace or TraceHeaders()
        self._request_timeout_max_ms = request_timeout_max_ms
        self.turns = Turns(BETWEEN_LONG)
        """The turns in which long requests are decoded."""
        self._callable: set[str] = set()
        self._askable: set[str] = set()
        self._prepared: dict[bytes, Message] = {}
        """Messages by the bodies of their prepares; at most 4,096 bodies of at most 4 KiB."""

    def prepare(self, body: bytes | bytearray, trace: Trace = ()) -> Message:
        """Return the message of a prepare, and remember it for a submit in the same bytes.

        A body that names a time means another message later, so it is not remembered. Arguments and errors as
        `message`.
        """
        message = self.message(body, trace)
        if type(body) is bytes and not trace and len(body) <= PREPARED_BYTES_MAX and not message.options.not_before_ms:
            if len(self._prepared) >= PREPARED_MAX:
                self._prepared.clear()  # most of what stays long is never submitted in the same bytes
            self._prepared[body] = message
        return message

    def submit(self, body: bytes | bytearray, trace: Trace = ()) -> Message:
        """Return the message of a submit.

        It is that of its prepare, where the bytes are the same.

        Arguments and errors as `message`.

        >>> decoder = Decoder(lambda url: None)
        >>> body = b'{"gid":"g","trans_type":"msg","steps":[{"action":"http://b/in"}],"payloads":["{}"]}'
        >>> decoder.prepare(body) is decoder.submit(body)
        True
        """
        if type(body) is bytes and not trace:
            message = self._prepared.pop(body, None)
            if message is not None:
                return message
        return self.message(body, trace)

    def message(self, body: bytes | bytearray, trace: Trace = ()) -> Message:
        """Return the message of a prepare or submit.

        `trace`: headers of the request that the message keeps.

        Raises:
            InvalidRequest, LimitExceeded, UnsupportedType: as they say; nothing was stored.

        >>> decoder = Decoder(lambda url: None)
        >>> decoder.message(b'{"gid":"g","trans_type":"msg","steps":[{"action":"http://b/in"}],"payloads":["{}"]}')
        Message(gid='g', branches=(Branch(url='http://b/in', payload=b'{}', subscribers=None),), check_url='', ...)
        """
        size = len(body)
        if size > LONG_BYTES:
            require_values(body)
        try:
            request = decode_documented(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            request = parse_request(body)  # more tolerantly, or with the error to report
        return self.message_of(request, size, None, trace)

    def message_of(
        self, request: WireRequest, request_bytes: int, payloads: list[bytes] | None = None, trace: Trace = ()
    ) -> Message:
        """Return the message of a request of any wire format, `request_bytes` long.

        Arguments:
            payloads: where the format carries bytes, these, instead of the request's own.
            trace: as `message`.

        Raises: as `message`.
        """
        if request.gid is None:
            raise InvalidRequest(_NO_GID)
        gid = validate_gid(request.gid)
        if gid[:_QUEUES] == GID_PREFIX and is_own_gid(gid):
            raise InvalidRequest(_GID_OF_A_QUEUE, gid=gid, remedy=_ANOTHER_GID)
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
            sent = request.branch_headers
            headers = [(name, value or "") for name, value in sent.items()] if isinstance(sent, dict) else []
            urls = [request.query_prepared or "", *(branch.url for branch in branches)]
            _require_metadata(urls, headers, protocol, gid)
        check_url = request.query_prepared or ""
        if check_url:
            address = check_url if protocol == "http" else _address(check_url, protocol)
            if address not in self._askable:
                self._examine_check(address, gid)
        options = None if trace else usual_options(request)
        if options is None:
            options = options_of(request, check_url, gid, self._now_ms() if request.next_cron_time else 0, trace)
            if options.request_timeout_ms > self._request_timeout_max_ms:
                raise LimitExceeded(
                    f"request_timeout is {options.request_timeout_ms} ms, and this server's setting"
                    f" request_timeout_max_ms allows {self._request_timeout_max_ms}.",
                    gid=gid,
                )
            if (options.delay_ms or options.not_before_ms) and is_to_both(branch.url for branch in branches):
                raise InvalidRequest(NOT_TO_BOTH, gid=gid)
        return Message(gid, branches, check_url, options, protocol)

    def require_redirected(self, message: Message, moves: Sequence[Move]) -> None:
        """Refuse a redirected message that no prepare could have stored.

        The rules are the same.

        Arguments:
            message: as it would be.
            moves: what would change.

        Raises:
            InvalidRequest, LimitExceeded: an address cannot be called, or not with this message's payload or headers.
        """
        gid, protocol = message.gid, message.protocol
        for move in moves:
            address = _address(move.after, protocol)
            if not address or address.startswith(TOPIC_PREFIX):
                raise InvalidRequest("to: an address that can be called is needed, not a topic.", gid=gid)
            if move.branch_id == CHECK_BACK_ID:
                self._examine_check(address, gid)
            else:
                self._examine("to", address, gid)
        expansion = expansion_of(message.branches)
        calls = message.branches if expansion is None else expansion.branches
        if protocol == "json-rpc":
            _require_parameters(calls, gid)
        _require_metadata([message.check_url, *(call.url for call in calls)], message.options.headers, protocol, gid)

    def gid(self, body: bytes | bytearray) -> str:
        """Return the gid of an abort.

        The other fields do not matter, and the type may be missing.

        Raises:
            InvalidRequest, LimitExceeded, UnsupportedType: as they say.
        """
        return self.gid_of(parse_request(body))

    def gid_of(self, request: WireRequest) -> str:
        """Return the gid of an abort that came in any wire format."""
        if request.gid is None:
            raise InvalidRequest(_NO_GID)
        gid = validate_gid(request.gid)
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
            validate_topic(topic_in(url), field)  # the insert of the message checks that it exists
            return
        self._require(field, self._check_address(url) or why_reserved(url), gid)
        if not url.startswith(QUEUE_PREFIX):  # its topic may be removed or changed at any time
            _remember(self._callable, url)

    def _examine_check(self, url: str, gid: str) -> None:
        require(URL_BYTES_MAX, len(url.encode()), gid=gid)
        why_not = ANSWERS_NO_CHECK if url.startswith(QUEUE_PREFIX) else self._check_askable(url)
        self._require("query_prepared", why_not or why_reserved(url, identities_max=1), gid)
        _remember(self._askable, url)

    def _require(self, field: str, why_not: str, gid: str) -> None:
        if why_not:
            raise refused_address(f"{field}: ", why_not, gid)


def _remember(addresses: set[str], url: str) -> None:
    if len(addresses) >= _ADDRESSES_REMEMBERED_MAX:
        addresses.clear()
    addresses.add(url)


def _payloads_of_steps(
    steps: list[WireStep], payloads: Sequence[str | bytes | None], gid: str
) -> Sequence[str | bytes | None]:
    """Return payloads from the field that clients before dtm 1.10 use.

    Otherwise refuse their number.
    """
    if not payloads and any(step.data for step in steps):
        return [step.data for step in steps]
    raise InvalidRequest(f"payloads: there are {len(payloads)} for {len(steps)} steps, one each is needed.", gid=gid)


def _unsupported(trans_type: str | None, gid: str) -> UnsupportedType:
    if not trans_type:
        return UnsupportedType("trans_type is missing, 'msg' is needed.", gid=gid)
    return UnsupportedType(f"trans_type is {trans_type[:45]!r}, only 'msg' (2-phase message) is served here.", gid=gid)


def _address(url: str, protocol: str) -> str:
    """Return `url` with the scheme that dtm's clients leave to the protocol."""
    return f"grpc://{url}" if url and scheme_of(url, protocol) == "grpc" and "://" not in url else url


def _require_parameters(branches: tuple[Branch, ...], gid: str) -> None:
    """Refuse a JSON-RPC branch's payload that is not the `params` of a call."""
    for index, branch in enumerate(branches):
        # A topic's subscribers may be JSON-RPC addresses too.
        if branch.payload and scheme_of(branch.url, "json-rpc") in {"json-rpc", "topic"}:
            why_not = why_no_params(branch.payload)
            if why_not:
                raise InvalidRequest(f"payloads[{index}]: {why_not}", gid=gid)


def _require_metadata(urls: Sequence[str], headers: Sequence[tuple[str, str]], protocol: str, gid: str) -> None:
    """Refuse gRPC addresses where the gid or a header cannot be metadata."""
    if not any(url and scheme_of(url, protocol) in {"grpc", "grpcs"} for url in urls):
        return
    why_not = why_no_metadata(gid, headers)
    if why_not:
        raise InvalidRequest(why_not, gid=gid)


def too_large(limit: Limit, size_bytes: int) -> LimitExceeded:
    """Return the refusal of a request that is not even read to its end."""
    return LimitExceeded(f"{limit.name} is {size_bytes} {limit.unit} or more, at most {limit.value} are allowed.")


def _own_ms() -> int:
    return time.time_ns() // 1_000_000
