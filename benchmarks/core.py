"""The cost of the pure part a message.

It is a look-up in the lifecycle, the stored form, and the reading of a request.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from benchmarks.measure import Result, measure
from twophase.core.gid import make_gid, validate_gid
from twophase.core.lifecycle import Event, State, transition
from twophase.core.message import Branch, Message, decode, encode
from twophase.core.options import Options
from twophase.server.codecs.wire import parse_request

_GID = make_gid(1_700_000_000_000, bytes(10))
_MESSAGE = Message(
    _GID,
    (Branch("http://bank-b.internal:8080/transfer-in", b'{"account":"B","amount":30}'),),
    "http://bank-a.internal:8080/twophase/check?barrier=0123456789abcdef",
    Options(explicit_verdict=True),
)
_STORED = encode(_MESSAGE)
_REQUEST = msgspec.json.encode(
    {
        "gid": _GID,
        "trans_type": "msg",
        "steps": [{"action": "http://bank-b.internal:8080/transfer-in"}],
        "payloads": ['{"account":"B","amount":30}'],
        "query_prepared": "http://bank-a.internal:8080/twophase/check",
        "protocol": "http",
    }
)


def results() -> Iterator[Result]:
    """Yield all measurements of this module."""
    yield measure("core: transition", lambda: transition(State.PREPARED, Event.SUBMIT), operations=200_000)
    yield measure("core: validate_gid", lambda: validate_gid(_GID), operations=200_000)
    yield measure("core: encode a message", lambda: encode(_MESSAGE), operations=200_000)
    yield measure("core: decode a message", lambda: decode(_STORED), operations=100_000)
    yield measure("server: parse a prepare request", lambda: parse_request(_REQUEST), operations=100_000)
