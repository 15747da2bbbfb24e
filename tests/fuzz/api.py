"""schemathesis on the document that the server publishes.

It tries every operation, with requests that fit and with others.
"""

from __future__ import annotations

from typing import Any, Final

import schemathesis
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz import messages, rules
from tests.fuzz.branches import Branches
from tests.fuzz.play import Target
from tests.fuzz.process import Fuzzed
from twophase.server.api.openapi import OPENAPI_PATH

_CHECKS: Final = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
Case = Any  # schemathesis.Case, with parameters that only schemathesis knows
_TIMEOUT_S: Final = 60.0
_ADDRESSES: Final = frozenset({"action", "query_prepared", "url"})


class Api:
    """The operations of one server."""

    def __init__(self, server: Fuzzed, branches: Branches) -> None:
        self._server = server
        self._branches = branches

    def targets(self) -> list[Target]:
        """Return one target for requests that fit the document, one for others."""
        schema = schemathesis.openapi.from_url(f"{self._server.url}{OPENAPI_PATH}")
        found: list[Any] = list(schema.get_all_operations())
        operations = [one.ok() for one in found]
        # An operation without input has no wrong input: one case in ten is enough for all of them.
        taking = [one for one in operations if one.body or one.query or one.path_parameters]
        plain = [one for one in operations if one not in taking]
        chosen = st.integers(0, 9).flatmap(lambda drawn: st.sampled_from(taking if drawn else plain))
        dice = st.integers(0, 2**20)

        def cases(mode: GenerationMode) -> st.SearchStrategy[tuple[Case, int]]:
            some = chosen.flatmap(lambda one: one.as_strategy(generation_mode=mode))
            return st.tuples(some, dice)

        return [
            Target("OpenAPI, requests that fit", cases(GenerationMode.POSITIVE), self.check),
            Target("OpenAPI, requests that do not", cases(GenerationMode.NEGATIVE), self.check),
        ]

    def check(self, case: tuple[Case, int]) -> None:
        """Check that the document names the answer, and that it is no 5xx of twophase's."""
        one, dice = case
        _keep_home(one, dice, self._branches)
        response = one.call(base_url=self._server.url, timeout=_TIMEOUT_S)
        one.validate_response(response, checks=_CHECKS)
        rules.require_ours(response.status_code, response.content, one.as_curl_command())


def _keep_home(case: Case, dice: int, branches: Branches) -> None:
    """Replace gids and topics by few ones, so that requests meet.

    Addresses are on this machine only.
    """
    for part in (case.body, case.query, case.path_parameters):
        _rewrite(part, dice, branches)


def _rewrite(value: Any, dice: int, branches: Branches) -> None:
    if isinstance(value, list):
        for number, inner in enumerate(value):
            _rewrite(inner, dice + number, branches)
    if not isinstance(value, dict):
        return
    if "client" in value and isinstance(value.get("wait_ms", 0), int):
        value["wait_ms"] = min(value.get("wait_ms", 0), dice % 4)  # a long poll of no message is no case of its own
    for name, inner in value.items():
        dice += 1
        if isinstance(inner, str):
            if name in _ADDRESSES and inner:
                value[name] = branches.url(dice) if dice % 8 else f"topic://{messages.TOPICS[dice % 2]}"
            elif name in {"gid", "topic", "name", "key"} and dice % 4:
                known = messages.GIDS if name == "gid" else messages.TOPICS
                value[name] = known[dice % len(known)]
        elif name == "gids" and isinstance(inner, list) and dice % 4:
            # One after the other, so that no gid is there twice.
            known = messages.GIDS
            value[name] = [known[(dice + number) % len(known)] for number in range(min(len(inner), len(known)))]
        elif name == "calls" and isinstance(inner, list):
            value[name] = [branches.url(dice + number) if one else one for number, one in enumerate(inner)]
        else:
            _rewrite(inner, dice, branches)
    steps = value.get("steps")
    if isinstance(steps, list) and isinstance(value.get("payloads"), list) and dice % 3:
        value["payloads"] = ["{}"] * len(steps)
