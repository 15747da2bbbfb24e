"""The routes that name a gid or list messages, asked by clients that own none.

Every such route is asked at every door, by every kind of client.

Another owner's gid is answered as an unknown one or, where the request would make or decide the message, as a taken
one, in the same words whatever its state is. No request of another changes a message. A route that is neither here nor
in `WITHOUT_GID` fails; those of queues' clients are in `test_queue_owner_matrix.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.integration.server.queue_requests import MATRIX as OF_QUEUES
from tests.integration.server.running import PATIENT, running
from tests.integration.server.test_identities import BASE_URL, GRPC_METHODS, HEADER, Api, body_of
from tests.support.fake_coordinator import Response, get
from tests.support.identities import bearer, token_of, write
from twophase.coordinator.view import MessageView
from twophase.core.errors import ContentConflict, Forbidden
from twophase.core.lifecycle import State
from twophase.server.identity.scopes import ROUTES, Scope, scopes_of

GRPC: Final = "gRPC metadata"
READS, LISTS, CLAIMS, ACTS, NEVER_SERVED = "reads", "lists", "claims", "acts", "is never served"


class Asked(NamedTuple):
    """A request that names a gid, or asks for messages; `{gid}` is the gid."""

    kind: str
    path: str
    body: str = ""
    verb: str = "POST"


def _message(**more: Any) -> str:
    return body_of("{gid}", **more).decode()


CONTRARY: Final = _message(payloads=['{"a":2}'])
WAITING: Final = _message(wait_result=True)
GID: Final = '{"gid":"{gid}"}'
LIST: Final = "/api/twophase/messages"
ONE: Final = f"{LIST}/{{gid}}"
DTM: Final = "/api/dtmsvr/"
OWN: Final = "/api/twophase/"
BRANCH: Final = {"url": "http://127.0.0.1:1/in", "payload": "eyJhIjoxfQ=="}
TAKEN: Final = json.dumps(
    {
        "never_taken": True,
        "messages": [
            {"gid": "{gid}", "state": "prepared", "created_ms": 0, "branches": [BRANCH]}
            | {"query_prepared": "http://127.0.0.1:1/check"}
        ],
    }
)
_MANY: Final = '{"messages":[%s]}'
MATRIX: Final[dict[str, tuple[Asked, ...]]] = {
    **{
        f"{DTM}{what}": tuple(Asked(CLAIMS, f"{DTM}{what}", body) for body in bodies)
        for what, bodies in {
            "prepare": (_message(), CONTRARY),
            "submit": (_message(), CONTRARY, WAITING),
            "abort": (GID,),
        }.items()
    },
    f"{DTM}query": (Asked(READS, f"{DTM}query?gid={{gid}}", verb="GET"),),
    f"{DTM}all": (
        Asked(READS, f"{DTM}all?gid={{gid}}", verb="GET"),
        Asked(LISTS, f"{DTM}all", verb="GET"),
        Asked(LISTS, f"{DTM}all?limit=1", verb="GET"),
        *(Asked(LISTS, f"{DTM}all?status={name}", verb="GET") for name in ("prepared", "submitted", "succeed")),
    ),
    f"{DTM}forceStop": (Asked(ACTS, f"{DTM}forceStop", GID),),
    f"{DTM}resetNextCronTime": (Asked(ACTS, f"{DTM}resetNextCronTime", GID),),
    f"{DTM}resetCronTime": (Asked(LISTS, f"{DTM}resetCronTime?timeout=1&limit=100", verb="GET"),),
    **{
        f"{DTM}{what}": (Asked(NEVER_SERVED, f"{DTM}{what}", GID),)
        for what in ("registerBranch", "registerTccBranch", "registerXaBranch", "prepareWorkflow")
    },
    **{f"json-rpc {what}": (Asked(CLAIMS, what, _message()),) for what in ("prepare", "abort")},
    "json-rpc submit": (Asked(CLAIMS, "submit", _message()), Asked(CLAIMS, "submit", WAITING)),
    "json-rpc registerBranch": (Asked(NEVER_SERVED, "registerBranch", GID),),
    f"{OWN}prepare-many": tuple(
        Asked(CLAIMS, f"{OWN}prepare-many", _MANY % message) for message in (_message(), CONTRARY)
    ),
    f"{OWN}submit-many": tuple(
        Asked(CLAIMS, f"{OWN}submit-many", body)
        for body in (_MANY % _message(), _MANY % CONTRARY, '{"gids":["{gid}"]}')
    ),
    LIST: (
        Asked(LISTS, LIST, verb="GET"),
        Asked(LISTS, f"{LIST}?limit=1", verb="GET"),
        Asked(LISTS, f"{LIST}?state=prepared,submitted&parked=false", verb="GET"),
        Asked(LISTS, f"{LIST}?destination=http://127.0.0.1:1/in", verb="GET"),
        Asked(LISTS, f"{LIST}?check=http://127.0.0.1:1/check", verb="GET"),
        Asked(READS, f"{LIST}?gid={{gid}}", verb="GET"),
    ),
    f"{LIST}/{{gid:path}}": (Asked(READS, ONE, verb="GET"), Asked(READS, f"{ONE}?payload=true", verb="GET")),
    f"{LIST}/{{gid:path}}/stop": (
        Asked(ACTS, f"{ONE}/stop"),
        Asked(ACTS, f"{ONE}/stop", '{"override":true}'),
    ),
    f"{LIST}/{{gid:path}}/park": (Asked(ACTS, f"{ONE}/park"),),
    f"{LIST}/{{gid:path}}/redrive": (Asked(ACTS, f"{ONE}/redrive"),),
    f"{LIST}/{{gid:path}}/retry-now": (Asked(ACTS, f"{ONE}/retry-now"),),
    f"{LIST}/{{gid:path}}/redirect": (
        Asked(ACTS, f"{ONE}/redirect", '{"to":"http://127.0.0.1:1/other"}'),
        Asked(ACTS, f"{ONE}/redirect", '{"to":"http://127.0.0.1:1/other","dry_run":true}'),
        Asked(ACTS, f"{ONE}/redirect", '{"to":"http://127.0.0.1:1/other","check":true}'),
    ),
    f"{OWN}import": (
        Asked(ACTS, f"{OWN}import", TAKEN),
        Asked(ACTS, f"{OWN}import", TAKEN.replace('"never_taken"', '"dry_run": true, "never_taken"')),
    ),
    f"{OWN}log": (
        Asked(READS, f"{OWN}log?gid={{gid}}", verb="GET"),
        Asked(LISTS, f"{OWN}log", verb="GET"),
    ),
    f"{OWN}places/{{gid:path}}": (Asked(READS, f"{OWN}places/{{gid}}", verb="GET"),),
    f"{OWN}log/chain": (Asked(LISTS, f"{OWN}log/chain", verb="GET"),),
    **{f"/dtmgimp.Dtm/{what}": (Asked(CLAIMS, f"/dtmgimp.Dtm/{what}"),) for what in ("Prepare", "Submit", "Abort")},
    **{
        f"/dtmgimp.Dtm/{what}": (Asked(NEVER_SERVED, f"/dtmgimp.Dtm/{what}"),)
        for what in ("RegisterBranch", "PrepareWorkflow")
    },
}
WITHOUT_GID: Final = {
    "/health/live",
    "/health/ready",
    "/api/ping",
    f"{DTM}version",
    "/metrics",
    "/api/metrics",
    f"{DTM}newGid",
    f"{DTM}subscribe",
    f"{DTM}unsubscribe",
    f"{DTM}topic/{{name}}",
    f"{DTM}scanKV",
    f"{DTM}queryKV",
    "/api/json-rpc",
    "json-rpc newGid",
    f"{OWN}horizon",
    f"{OWN}openapi.json",
    f"{OWN}status",
    f"{OWN}check-addresses",
    f"{OWN}check-addresses/probe",
    f"{OWN}queue-topics",
    f"{OWN}queue-topics/{{name:path}}",
    f"{OWN}queue-topics/{{name:path}}/define",
    f"{OWN}queue-topics/{{name:path}}/remove",
    f"{OWN}groups",
    f"{OWN}groups/{{name:path}}",
    f"{OWN}groups/{{name:path}}/define",
    f"{OWN}groups/{{name:path}}/remove",
    f"{OWN}groups/{{name:path}}/reset",
    f"GET {OWN}topics",
    f"GET {OWN}topics/{{name:path}}",
    f"DELETE {OWN}topics/{{name:path}}",
    f"{OWN}topics/subscribe",
    f"{OWN}topics/unsubscribe",
    "/dtmgimp.Dtm/NewGid",
    "/dtmgimp.Dtm/Subscribe",
    "/dtmgimp.Dtm/Unsubscribe",
    "/dtmgimp.Dtm/DeleteTopic",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}
"""Routes that name no gid and list no messages.

What they tell is that of all owners, as the threat model says.
"""
CELLS: Final = [
    (route, door)
    for route in MATRIX
    for door in ((GRPC,) if route in GRPC_METHODS else (HEADER, BASE_URL))
    if door != BASE_URL or Scope.PRODUCE in scopes_of(route)
]

OWNER, OPERATOR, PRODUCER = "owner", "operator", "another-producer"
STRANGERS: Final[dict[str, tuple[tuple[Scope, ...], str]]] = {
    PRODUCER: ((Scope.PRODUCE,), ""),
    "producer-with-a-prefix": ((Scope.PRODUCE,), "own-"),
    "observer": ((Scope.PRODUCE, Scope.OBSERVE, Scope.PAYLOAD, Scope.TOPICS), ""),
    "operator-with-a-prefix": (tuple(Scope), "own-"),
}
"""Clients that own no message here, with their scopes and their gid prefix."""
UNKNOWN: Final = "gid-unknown00"
WORDS: Final = ("prepared", "submitted", "failed", "succeed", "parked", "owner")
"""Words that would tell a state, or whose the message is."""
NOW: Final = r'"now_ms":[0-9]+'
STATES: Final = ("prepared", "submitted", "parked", "failed", "succeeded")


def _gid(state: str) -> str:
    return f"gid-{state:0<9}"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    write(tmp_path, OWNER, [Scope.PRODUCE, Scope.OBSERVE])
    for name, (scopes, prefix) in STRANGERS.items():
        write(tmp_path, name, scopes, gid_prefix=prefix)
    tokens = write(tmp_path, OPERATOR, list(Scope))
    async with running(
        tmp_path, grpc_port=0, tokens=tokens, timeout_to_fail_ms=86_400_000, **PATIENT | {"retry_cap_ms": 3_600_000}
    ) as server:
        yield Api(server)


async def _messages(api: Api, name: str = OWNER) -> dict[str, MessageView]:
    """Make a message in each state; return what is stored."""
    for state in STATES:
        gid = _gid(state)
        none: dict[str, Any] = {"steps": [], "payloads": []} if state == "succeeded" else {}
        what = "prepare" if state in {"prepared", "failed"} else "submit"
        response = await api.say(what, gid, name, **none)
        assert response.status == 200, response.body
        if state == "succeeded":
            await api.server.until(gid, State.SUCCEEDED)
        elif what == "submit":
            await api.server.until_logged(gid)
    assert (await api.say("abort", _gid("failed"), name)).status == 200
    parked = await _ask(api, MATRIX[f"{LIST}/{{gid:path}}/park"][0], HEADER, OPERATOR, _gid("parked"))
    assert parked.startswith("200 "), parked
    return await _stored(api)


async def _stored(api: Api) -> dict[str, MessageView]:
    return {state: await api.server.view(_gid(state)) for state in STATES}


async def _ask(api: Api, asked: Asked, door: str, name: str, gid: str) -> str:
    """Send a request; return all of the answer, without this gid and the time."""
    path, body = asked.path.replace("{gid}", gid), asked.body.replace("{gid}", gid)
    if door == GRPC:
        code, metadata = await api.grpc(path, gid, name)
        return f"{code} {sorted(metadata.items())}".replace(gid, "{gid}")
    if not path.startswith("/"):
        call = {"jsonrpc": "2.0", "id": "1", "method": path, "params": json.loads(body)}
        path, body = "/api/json-rpc", json.dumps(call)
    prefix = f"/t/{token_of(name)}" if door == BASE_URL else ""
    headers = bearer(name) if door == HEADER else ()
    lines = [f"{asked.verb} {prefix}{path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    response = await api.http("\r\n".join(lines).encode() + b"\r\n\r\n" + body.encode())
    return _text(response).replace(gid or UNKNOWN, "{gid}")


def _text(response: Response) -> str:
    headers = {name: value for name, value in response.headers.items() if name != "date"}
    return f"{response.status} {headers} {re.sub(NOW, '', response.body.decode())}"


def test_every_route_is_in_the_matrix_or_names_no_gid() -> None:
    assert MATRIX.keys() | WITHOUT_GID | OF_QUEUES.keys() == ROUTES.keys()
    assert not MATRIX.keys() & WITHOUT_GID
    assert not OF_QUEUES.keys() & (MATRIX.keys() | WITHOUT_GID)
    assert all(OF_QUEUES.values()), "a route has a request"


async def test_the_api_describes_no_other_route_that_names_a_gid(api: Api) -> None:
    """Look for gids in what each operation takes and answers.

    `newGid` answers one that is no message's yet.
    """
    document = json.loads((await api.http(get(f"{OWN}openapi.json"))).body)
    naming = set()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            names = {parameter["name"] for parameter in operation.get("parameters", ())}
            content = [operation.get("requestBody", {}), operation["responses"].get("200", {})]
            names |= {name for one in content for name in _properties(document, one, set())}
            if names & {"gid", "gids"}:
                naming.add(path.replace("{gid}", "{gid:path}").replace("{name}", "{name:path}"))
    assert naming - MATRIX.keys() - OF_QUEUES.keys() == {f"{DTM}newGid", "/api/json-rpc"}, (
        "whose methods are in the matrix"
    )


def _properties(document: dict[str, Any], value: Any, seen: set[str]) -> set[str]:
    """Return the names of all properties in a schema."""
    found: set[str] = set()
    if isinstance(value, dict):
        reference = value.get("$ref", "")
        if reference and reference not in seen:
            seen.add(reference)
            found |= _properties(document, document["components"]["schemas"][reference.rpartition("/")[2]], seen)
        found |= set(value["properties"]) if isinstance(value.get("properties"), dict) else set()
        for one in value.values():
            found |= _properties(document, one, seen)
    elif isinstance(value, list):
        for one in value:
            found |= _properties(document, one, seen)
    return found


@pytest.mark.parametrize(("route", "door"), CELLS, ids=lambda part: part)
async def test_a_strangers_request_is_answered_as_for_no_message_and_changes_none(
    api: Api, route: str, door: str
) -> None:
    strangers = [name for name, (scopes, _) in STRANGERS.items() if door != BASE_URL or scopes == (Scope.PRODUCE,)]
    named = [asked for asked in MATRIX[route] if asked.kind != LISTS]
    lists = [asked for asked in MATRIX[route] if asked.kind == LISTS]
    empty = {(name, asked): await _ask(api, asked, door, name, "") for name in strangers for asked in lists}
    before = await _messages(api)

    for name in strangers:
        for asked in lists:
            assert await _ask(api, asked, door, name, "") == empty[name, asked], f"{name}: {asked}"
        for asked in named:
            answers = {state: await _ask(api, asked, door, name, _gid(state)) for state in STATES}
            for other in STATES:
                assert answers[other] == answers["prepared"], f"{name}: {asked}: {other}"
            if asked.kind != CLAIMS:
                unknown = await _ask(api, asked, door, name, UNKNOWN)
                assert answers["prepared"] == unknown, f"{name}: {asked}"
            else:
                _require_taken(answers["prepared"], STRANGERS[name][1])
        assert await _stored(api) == before, name
    assert await api.server.server.coordinator.query(UNKNOWN) is None


def _require_taken(answer: str, prefix: str) -> None:
    """Demand the refusal of a gid that is taken, or is not one of the token."""
    assert (Forbidden.code if prefix else ContentConflict.code) in answer, answer
    told = answer.lower().replace("check the gid", "")
    assert not [word for word in WORDS if word in told], answer


@pytest.mark.parametrize(("route", "door"), CELLS, ids=lambda part: part)
async def test_the_same_request_of_who_may_send_it_finds_the_message(api: Api, route: str, door: str) -> None:
    """Prove the matrix: each of its requests finds the owner's message."""
    asked_ones = [asked for asked in MATRIX[route] if asked.kind != NEVER_SERVED]
    by_owner = bool({Scope.PRODUCE, Scope.OBSERVE} & scopes_of(route))
    names = {asked: OWNER if by_owner and "payload" not in asked.path else OPERATOR for asked in asked_ones}
    if door == BASE_URL:
        names = dict.fromkeys(asked_ones, PRODUCER)
    lists = {asked: await _ask(api, asked, door, names[asked], "") for asked in asked_ones if asked.kind == LISTS}
    await _messages(api, PRODUCER if door == BASE_URL else OWNER)

    for asked in asked_ones:
        if asked.kind == LISTS:
            assert await _ask(api, asked, door, names[asked], "") != lists[asked], asked
            continue
        answers = [await _ask(api, asked, door, names[asked], _gid(state)) for state in STATES]
        assert not [answer for answer in answers if "is taken" in answer or answer.startswith("403")], asked
        if asked.kind != CLAIMS:
            unknown = await _ask(api, asked, door, names[asked], UNKNOWN)
            assert [answer for answer in answers if answer != unknown], asked
