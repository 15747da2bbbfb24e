"""The comparison of an answer with the recorded one.

Everything recorded must be there and equal; more than that may be there. Not compared are times, numbers that a
database gave, random names and cursors, which differ from run to run; and what dtm keeps for its own scheduling
(`differences.GENERAL` names them).
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from tests.wire.transcripts import SinkCall

_VOLATILE: Final = frozenset(
    {"id", "create_time", "update_time", "finish_time", "rollback_time", "next_cron_time", "next_position", "version"}
)
_DTMS_OWN: Final = frozenset({"next_cron_interval", "owner", "retry_limit"})
_FINAL: Final = frozenset({"succeed", "failed"})
_RANDOM: Final = frozenset({"newGid", "jrpc_newGid", "jrpc_newGid_params_empty_string"})


def deviations(name: str, recorded: str, ours: str) -> list[str]:
    """Return the deviations from the recorded body, as sentences.

    They name what is missing or different; the result is empty when all is there.
    """
    try:
        wanted = msgspec.json.decode(recorded)
    except msgspec.DecodeError:
        return [] if recorded == ours else [f"{ours[:200]!r} instead of {recorded[:200]!r}"]
    try:
        found = msgspec.json.decode(ours)
    except msgspec.DecodeError:
        return [f"no JSON: {ours[:200]!r}"]
    return list(_compare("", wanted, found, loose=name in _RANDOM))


def _compare(place: str, wanted: Any, found: Any, *, loose: bool) -> list[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        said: list[str] = []
        for key, value in wanted.items():
            if key in _DTMS_OWN or _is_over(key, wanted, found):
                continue
            if key not in found:
                said.append(f"{place}{key} is missing, was {value!r}")
            elif key == "options":
                options = [msgspec.json.decode(one) for one in (value, found[key])]
                said += _compare(f"{place}options.", *options, loose=loose)
            elif key not in _VOLATILE and not (loose and key == "gid"):
                said += _compare(f"{place}{key}.", value, found[key], loose=loose)
        return said
    if isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            return [f"{place[:-1]} has {len(found)} elements instead of {len(wanted)}"]
        return [
            one
            for index, (left, right) in enumerate(zip(wanted, found, strict=True))
            for one in _compare(f"{place}{index}.", left, right, loose=loose)
        ]
    return [] if wanted == found else [f"{place[:-1]} is {found!r} instead of {wanted!r}"]


def _is_over(key: str, wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    """Return True for times that twophase does not report.

    They are the time of a next call when none is due, and a branch's time before its message is final.
    """
    if key == "next_cron_time":
        return found.get("status") in _FINAL
    return key == "finish_time" and "branch_id" in wanted


def same_call(recorded: SinkCall, ours: SinkCall) -> bool:
    """Return True when the branch service was called as recorded.

    twophase may send more in the query (`prepared_at`).
    """
    (path, _, query), (our_path, _, our_query) = recorded.path.partition("?"), ours.path.partition("?")
    if (recorded.method, path) != (ours.method, our_path) or not set(parse_qsl(query)) <= set(parse_qsl(our_query)):
        return False
    if recorded.body == ours.body:
        return True
    return bool(recorded.body and ours.body) and not deviations("", recorded.body, ours.body)
