"""Every route of an operator leaves a row, and so does every refusal by scope.

The table of `identity.scopes` says which routes there are; one that is not here fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import grpc.aio
import msgspec
import pytest
from google.protobuf.message_factory import GetMessageClass

from tests.integration.server.running import running
from tests.integration.server.test_grpc import grpc_url, method
from tests.integration.server.test_identities import GRPC_METHODS, HTTP_ROUTES, Api, HttpRoute
from tests.support.fake_coordinator import get, post
from tests.support.identities import bearer, token_of, write
from twophase.coordinator.queues import QueueMessage
from twophase.core.audit_log import AuditEntry, AuditRow, TokensSeen
from twophase.core.takeover import PATH, TakenBranch, TakenMessage, TakenState, TakeoverRequest
from twophase.grpc_wire.messages import pool
from twophase.server.api.queues_http import GROUPS_PATH, QUEUES_PATH
from twophase.server.app import Server
from twophase.server.identity.scopes import Scope, scopes_of
from twophase.server.identity.tokens import changing, digest_of

CHANGING: Final = frozenset({Scope.OPERATE, Scope.TOPICS, Scope.ADMIN})
URL: Final = "http://127.0.0.1:1/in"
GRPC_URL: Final = "127.0.0.1:1/bank.Bank/In"


class Asked(NamedTuple):
    """A request that a route carries out, and the act that its row names."""

    act: str
    body: bytes = b""
    path: str = ""
    prepared: bool = False
    """The request needs a message `g` that waits."""
    subscribed: bool = False
    """The request needs a topic `rates`."""
    queued: bool = False
    """The request needs a queue `rates`."""
    consumed: bool = False
    """The request needs a group `rates` of the queue, and a dead letter of it."""


SUBSCRIPTION: Final = json.dumps({"topic": "rates", "url": URL}).encode()
TOPIC: Final = GetMessageClass(pool().FindMessageTypeByName("dtmgimp.DtmTopicRequest"))(
    Topic="rates", URL=GRPC_URL
).SerializeToString()
GID: Final = b'{"gid":"g","trans_type":"msg"}'
TAKEN: Final = msgspec.json.encode(
    TakeoverRequest((TakenMessage("taken", TakenState.SUBMITTED, (TakenBranch(URL, b"{}"),), delay_ms=86_400_000),))
)
ACTS: Final = {
    "/api/dtmsvr/forceStop": Asked("stop", GID, prepared=True),
    "/api/dtmsvr/resetNextCronTime": Asked("retry-now", GID, prepared=True),
    "/api/dtmsvr/subscribe": Asked("subscribe", path=f"?topic=rates&url={URL}"),
    "/api/dtmsvr/unsubscribe": Asked("unsubscribe", path=f"?topic=rates&url={URL}", subscribed=True),
    "/api/dtmsvr/topic/{name}": Asked("delete-topic", subscribed=True),
    "/api/twophase/check-addresses/probe": Asked("probe", json.dumps({"url": URL}).encode()),
    "/api/twophase/messages/{gid:path}/stop": Asked("stop", prepared=True),
    "/api/twophase/messages/{gid:path}/park": Asked("park", prepared=True),
    "/api/twophase/messages/{gid:path}/redrive": Asked("redrive", prepared=True),
    "/api/twophase/messages/{gid:path}/retry-now": Asked("retry-now", prepared=True),
    "/api/twophase/messages/{gid:path}/redirect": Asked(
        "redirect", json.dumps({"to": "http://127.0.0.1:2/in"}).encode(), prepared=True
    ),
    "/api/twophase/topics/subscribe": Asked("subscribe", SUBSCRIPTION),
    "/api/twophase/topics/unsubscribe": Asked("unsubscribe", SUBSCRIPTION, subscribed=True),
    "/api/twophase/topics/{name:path}": Asked("delete-topic", subscribed=True),
    f"{QUEUES_PATH}/{{name:path}}/define": Asked("define-topic", b'{"queues":2}'),
    f"{QUEUES_PATH}/{{name:path}}/remove": Asked("remove-topic", queued=True),
    f"{GROUPS_PATH}/{{name:path}}/define": Asked("define-group", b'{"attempts_max":2}'),
    f"{GROUPS_PATH}/{{name:path}}/remove": Asked("remove-group", b'{"override":true}', consumed=True),
    f"{GROUPS_PATH}/{{name:path}}/reset": Asked("reset-group", b'{"topic":"rates","to":"earliest"}', consumed=True),
    "/api/twophase/letters/{name:path}/redrive": Asked("redrive-letter", b'{"numbers":[0]}', consumed=True),
    PATH: Asked("import", TAKEN),
    "/dtmgimp.Dtm/Subscribe": Asked("subscribe"),
    "/dtmgimp.Dtm/Unsubscribe": Asked("unsubscribe", subscribed=True),
    "/dtmgimp.Dtm/DeleteTopic": Asked("delete-topic", subscribed=True),
}
MANY: Final = "/api/dtmsvr/resetCronTime"
"""Its messages have a row each; see the coordinator's tests."""
READING: Final = {
    "GET /api/dtmsvr/scanKV",
    "GET /api/dtmsvr/queryKV",
    "GET /api/twophase/topics",
    "GET /api/twophase/topics/{name:path}",
    f"GET {QUEUES_PATH}",
    f"GET {QUEUES_PATH}/{{name:path}}",
    f"GET {GROUPS_PATH}",
    f"GET {GROUPS_PATH}/{{name:path}}",
    "GET /api/twophase/letters/{name:path}",
    "GET /api/twophase/log",
    "GET /api/twophase/log/chain",
    f"GET {MANY}",
}
CHANGING_ROUTES: Final = [
    *(
        route
        for route in HTTP_ROUTES
        if route.verb != "HEAD"
        and scopes_of(route.path, route.verb) & CHANGING
        and f"{route.verb} {route.path}" not in READING
    ),
    *(HttpRoute("", path) for path in GRPC_METHODS if scopes_of(path) & CHANGING),
]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals wait for their rows, however slow the disk is."""
    monkeypatch.setattr("twophase.server.identity.refusals.WAIT_S_MAX", 60.0)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    write(tmp_path, "desk", [*Scope])
    tokens = write(tmp_path, "shop", [Scope.PRODUCE])
    async with running(tmp_path, grpc_port=0, tokens=tokens, timeout_to_fail_ms=86_400_000) as server:
        yield Api(server)


async def _rows(api: Api) -> list[AuditRow]:
    return [row for row in await api.server.server._store.audit_chain(0, 1_000) if row.act != "token"]


async def _consume_one(api: Api) -> None:
    """Let the group give up the only message of its queue."""
    queues = api.server.server.coordinator.queues
    await queues.send([QueueMessage("rates", "", "1", b"x")], None)
    (found,) = await queues.receive(
        "",
        "rates",
        "rates",
        expression="*",
        limit=1,
        invisible_ms=60_000,
        wait_ms=20_000,
        client_id="c",
        auto_renew=False,
    )
    await queues.dead_letter("", "rates", "rates", found.handle)


async def _call(api: Api, route: HttpRoute, asked: Asked, name: str | None) -> None:
    if not route.verb:
        metadata = [] if name is None else [("authorization", f"Bearer {token_of(name)}")]
        async with grpc.aio.insecure_channel(grpc_url(api.server).removeprefix("grpc://")) as channel:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await method(channel, route.path)(TOPIC, metadata=metadata, timeout=20)
        return
    path = route.path.replace("{gid:path}", "g").replace("{name}", "rates").replace("{name:path}", "rates") + asked.path
    request = post(path, asked.body, *bearer(name)) if route.verb != "GET" else get(path, *bearer(name))
    if route.verb == "DELETE":
        request = b"DELETE" + request.removeprefix(b"POST")
    await api.http(request)


def test_every_route_that_changes_something_is_here() -> None:
    assert {route.path for route in CHANGING_ROUTES} == ACTS.keys()


@pytest.mark.parametrize("route", CHANGING_ROUTES, ids=lambda route: f"{route.verb} {route.path}")
async def test_a_route_that_changes_something_leaves_a_row(
    api: Api, route: HttpRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ACTS[route.path]
    if asked.prepared:
        await api.say("submit", "g", "shop", delay_ms=86_400_000)
    if asked.subscribed:
        await api.server.server.coordinator.topics.subscribe("rates", URL if route.verb else GRPC_URL)
    if asked.queued:
        await api.server.server.coordinator.queues.topic("", "rates")
    if asked.consumed:
        await _consume_one(api)
        monkeypatch.setattr("twophase.coordinator.queues.changing.ASKED_MS", 0)  # as if it had stopped a minute ago
    before = len(await _rows(api))
    await _call(api, route, asked, "desk")
    rows = (await _rows(api))[before:]
    assert [(row.act, row.who, row.peer) for row in rows] == [(asked.act, "desk", "127.0.0.1")]


@pytest.mark.parametrize("name", ["shop", None])
@pytest.mark.parametrize("route", CHANGING_ROUTES, ids=lambda route: f"{route.verb} {route.path}")
async def test_a_refusal_by_scope_leaves_a_row(api: Api, route: HttpRoute, name: str | None) -> None:
    for _ in range(3):
        await _call(api, route, ACTS[route.path], name)
    (first,) = await _rows(api)
    await api.server.server._refusals.flush()
    for row in await _rows(api):
        assert (row.act, row.who, row.peer, row.target) == ("refused", name or "", "127.0.0.1", route.path)
    assert first.reason.endswith("is needed")
    assert row.reason == f"{first.reason}; refused 2 more times in this minute"


async def test_the_row_of_an_import_goes_with_its_message(api: Api) -> None:
    route = HttpRoute("POST", PATH)
    await _call(api, route, ACTS[PATH], "desk")
    await _call(api, route, ACTS[PATH], "desk")
    assert [(row.target, row.before, row.after) for row in await _rows(api)] == [("taken", "", "submitted")]


async def test_a_refusal_of_payloads_leaves_a_row(tmp_path: Path) -> None:
    write(tmp_path, "shop", [Scope.PRODUCE])
    async with running(tmp_path, tokens=write(tmp_path, "desk", [Scope.OBSERVE, Scope.OPERATE])) as server:
        api = Api(server)
        await api.say("submit", "g", "shop", delay_ms=86_400_000)
        await api.http(get("/api/twophase/messages/g?payload=true", *bearer("desk")))
        (row,) = await _rows(api)
        assert (row.act, row.who, row.target) == ("refused", "desk", "/api/twophase/messages/{gid:path}?payload")
        assert row.reason == "the scope payload is needed"


async def test_refusals_of_the_other_doors_leave_rows(tmp_path: Path) -> None:
    tokens = write(tmp_path, "desk", [Scope.OPERATE])
    async with running(tmp_path, tokens=tokens) as server:
        api = Api(server)
        await api.say("prepare", "g", "desk")
        await api.json_rpc("prepare", "g", "desk")
        rows = await server.server._store.audit_chain(0, 10)
        assert {row.target for row in rows if row.act == "refused"} == {
            "/api/dtmsvr/{prepare,submit,abort}",
            "json-rpc prepare",
        }


async def test_a_change_of_the_file_of_tokens_is_a_row_once_and_also_while_no_server_ran(tmp_path: Path) -> None:
    async def rows(server: Server) -> list[tuple[str, str, str]]:
        await server._token_changes.note()
        return [(row.target, row.before[:7], row.after[:7]) for row in await server._store.audit_chain(0, 100)]

    tokens = write(tmp_path, "desk", [Scope.OPERATE])
    async with running(tmp_path, tokens=tokens) as one:
        first = [("desk", "", "operate")]
        assert await rows(one.server) == first
        write(tmp_path, "shop", [Scope.PRODUCE])
        one.server.reread()
        second = [*first, ("shop", "", "produce")]
        assert await rows(one.server) == second
    with changing(Path(tokens)) as entries:
        entries[:] = [
            msgspec.structs.replace(entry, scopes=(Scope.TOPICS,)) for entry in entries if entry.name == "desk"
        ]
    async with running(tmp_path, tokens=tokens) as again:
        assert await rows(again.server) == [*second, ("desk", "operate", "topics,"), ("shop", "produce", "")]
        written = [row.after for row in await again.server._store.audit_chain(0, 100)]
        assert digest_of(token_of("desk"))[:16] in written[0]
        assert not any(digest_of(token_of("desk")) in one or token_of("desk") in one for one in written)


async def test_a_change_of_the_file_of_tokens_names_the_owner_of_the_file(tmp_path: Path) -> None:
    tokens = write(tmp_path, "desk", [Scope.OPERATE])
    async with running(tmp_path, tokens=tokens) as one:
        await one.server._token_changes.note()
        write(tmp_path, "shop", [Scope.PRODUCE])
        one.server.gate.reread()
        one.server.gate.owner_uid = 2**31 - 2
        await one.server._token_changes.note()
        rows = await one.server._store.audit_chain(0, 100)
        me = pwd.getpwuid(os.getuid()).pw_name
        assert [(row.target, row.who, row.peer) for row in rows] == [("desk", me, ""), ("shop", "2147483646", "")]
        assert all("which this user owns" in row.reason for row in rows)
    async with running(tmp_path) as without:
        await without.server._token_changes.note()
        gone = (await without.server._store.audit_chain(0, 100))[2:]
        assert [(row.target, row.who, row.reason) for row in gone] == [
            (name, "", "the server has no file of tokens") for name in ("desk", "shop")
        ]


async def test_sighup_writes_the_row_without_another_request(tmp_path: Path) -> None:
    tokens = write(tmp_path, "desk", [Scope.OPERATE])
    async with running(tmp_path, tokens=tokens) as one:
        store = one.server._store
        noted = asyncio.Event()
        note = store.note_tokens

        async def watched(known: TokensSeen, now: dict[str, str], entries: Sequence[AuditEntry]) -> bool:
            done = await note(known, now, entries)
            if "shop" in now:
                noted.set()
            return done

        store.note_tokens = watched  # type: ignore[method-assign]
        write(tmp_path, "shop", [Scope.PRODUCE])
        one.server.reread()
        await asyncio.wait_for(noted.wait(), 60)
        assert [row.target for row in await store.audit_chain(0, 100)] == ["desk", "shop"]
