"""The answers that are right whatever was sent: never a 5xx of twophase's.

dtm answers some refusals by a 500, and its clients look for that. These, and no others, are allowed, each by the code
that stands beside it; a fault of the server would have none of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

FAULT: Final = "TP-0000"
ALLOWED_500: Final[Mapping[str, str]] = {
    "TP-1000": "`query` without a gid, dtm's `no gid specified`; `all`, `resetCronTime`: dtm's `convert to int error`",
    "TP-1003": "a topic that does not exist: dtm's `topic not found`, `no such a topic`",
    "TP-1004": "a topic that stands otherwise: dtm's `empty topic`, `this url exists`, and others",
    "TP-2004": "`abort`, `forceStop`, `resetNextCronTime` of no message: dtm's `no TransGlobal with gid`",
    "TP-2006": "`wait_result`, and a branch failed: dtm's `wait result not return success`",
}
"""The refusals by 500 that are allowed, by the code in the body."""

ALLOWED_JSON_RPC: Final = frozenset({-32700, -32600, -32601, -32603, -32901})
_TEXTS_OF_1000: Final = ("no gid specified", "convert to int error")


def require_ours(status: int, body: bytes, sent: str) -> None:
    """Fail on a 5xx that is not one of dtm's refusals in twophase's words.

    An answer to HEAD has no body that could tell; a fault behind it is in the log.
    """
    if status < 500 or (status == 500 and not body and "HEAD " in sent):
        return
    try:
        said: Any = json.loads(body)
    except ValueError:
        said = None
    assert isinstance(said, dict), f"{status} without a refusal's body: {body[:200]!r}, to {sent}"
    assert status == 500, f"{status} {said}, to {sent}"
    code = said.get("code")
    assert code in ALLOWED_500, f"{status} {said}, to {sent}"
    assert code != "TP-1000" or str(said.get("message")).startswith(_TEXTS_OF_1000), f"{status} {said}, to {sent}"
