"""The routes and messages that a token opens, over HTTP, JSON-RPC and gRPC.

A client has a token of one scope, in a header or in the base URL; `nobody` has none. The table of `identity.scopes`
says what each route needs, and these tests ask a real server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc.aio
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import Code, grpc_url, method
from tests.support.certificates import Certificates
from tests.support.fake_coordinator import Client, Response, get, post
from tests.support.identities import bearer, token_of, write
from twophase.core.errors import Forbidden, Unauthenticated
from twophase.grpc_wire.messages import Request, encode_request
from twophase.server.api.dtm_jsonrpc import METHODS
from twophase.server.app import Server
from twophase.server.http_port.parser import ROUTES as HOT_ROUTES
from twophase.server.identity.scopes import ROUTES, Scope, scopes_of
from twophase.server.settings import Settings

CLIENTS = (*Scope, None)
STATUSES = {Unauthenticated.code: 401, Forbidden.code: 403}
REFUSED = set(STATUSES)
HEADER, BASE_URL = DOORS = ("token in a header", "token in the base URL")


class HttpRoute(NamedTuple):
    """A method and a path of the HTTP port."""

    verb: str
    path: str


def _http_routes() -> list[HttpRoute]:
    server = Server(Settings(store="sqlite:////nonexistent/store.db", http_port=0))
    app = server.listener.config.app
    assert isinstance(app, Starlette)
    routes = [HttpRoute("POST", path.decode()) for path in HOT_ROUTES]
    for route in app.routes:
        assert isinstance(route, Route)
        routes += [HttpRoute(verb, route.path) for verb in sorted(route.methods or ())]
    return routes


HTTP_ROUTES = _http_routes()
GRPC_METHODS = [route for route in ROUTES if route.startswith("/dtmgimp.") or route.endswith("/Check")]


class Api:
    """A server whose clients have tokens, and requests of these clients."""

    def __init__(self, server: Running) -> None:
        self.server = server

    async def http(self, request: bytes) -> Response:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.server.port))
        try:
            return await client.ask(request)
        finally:
            client.close()

    async def say(self, what: str, gid: str, name: str | None, **more: Any) -> Response:
        """Post a prepare, submit or abort."""
        return await self.http(post(f"/api/dtmsvr/{what}", body_of(gid, **more), *bearer(name)))

    async def status(self, request: bytes) -> int:
        """Return the status of an answer, without reading a body: HEAD has none."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(request)
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    async def json_rpc(
        self, called: str, gid: str, name: str | None, door: str = HEADER, **more: Any
    ) -> dict[str, Any]:
        """Call a JSON-RPC method; return its error, empty for none."""
        call = {"jsonrpc": "2.0", "id": "1", "method": called, "params": json.loads(body_of(gid, **more))}
        response = await self.http(_request("POST", "/api/json-rpc", door, name, json.dumps(call).encode()))
        return json.loads(response.body)["error"] or {}

    async def grpc(
        self, path: str, gid: str, name: str | None, action: str = "127.0.0.1:1/bank.Bank/In", **more: Any
    ) -> tuple[Code, dict[str, str]]:
        """Call a gRPC method; return its code and metadata.

        The text of an error is `details` of the latter.
        """
        steps = msgspec.json.encode([{"action": action}]).decode()
        raw = encode_request(Request(gid=gid, trans_type="msg", steps=steps, payloads=[b"\x08\x1e"], **more))
        metadata = [] if name is None else [("authorization", f"Bearer {token_of(name)}")]
        async with grpc.aio.insecure_channel(grpc_url(self.server).removeprefix("grpc://")) as channel:
            call = method(channel, path)(raw if path.startswith("/dtmgimp") else b"", metadata=metadata, timeout=20)
            try:
                await call
            except grpc.aio.AioRpcError as error:
                return error.code(), _texts(error.trailing_metadata()) | {"details": error.details() or ""}
            return Code.OK, _texts(await call.trailing_metadata())


def _texts(metadata: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in metadata or ()}


def body_of(gid: str, **more: Any) -> bytes:
    fields = {"gid": gid, "trans_type": "msg", "steps": [{"action": "http://127.0.0.1:1/in"}], "payloads": ['{"a":1}']}
    return json.dumps(fields | {"query_prepared": "http://127.0.0.1:1/check"} | more).encode()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    for scope in Scope:
        tokens = write(tmp_path, str(scope), [scope])
    write(tmp_path, "other", [Scope.PRODUCE])
    write(tmp_path, "reader", [Scope.OBSERVE, Scope.PAYLOAD, Scope.OPERATE])
    async with running(tmp_path, grpc_port=0, tokens=tokens, timeout_to_fail_ms=86_400_000) as server:
        yield Api(server)


def _request(verb: str, path: str, door: str, client: str | None, body: bytes = b"{}") -> bytes:
    """Return a request with the client's token where the door has it."""
    prefix = f"/t/{token_of(client)}" if door == BASE_URL and client else ""
    headers = bearer(client) if door == HEADER else ()
    lines = [f"{verb} {prefix}{path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _through(door: str, client: Scope | None) -> Scope | None:
    """Return who a client is at a door: in the base URL a token may only produce."""
    return client if door == HEADER or client is Scope.PRODUCE else None


def _expected(route: str, client: Scope | None, verb: str = "") -> str:
    """Return the code of the refusal that the table demands; empty for none."""
    scopes = scopes_of(route, verb)
    if not scopes or client in scopes:
        return ""
    return Unauthenticated.code if client is None else Forbidden.code


def test_every_route_is_in_the_table_and_nothing_else_is() -> None:
    http = {route.path for route in HTTP_ROUTES}
    table = {route.partition(" ")[2] if route.partition(" ")[0] in {"GET", "DELETE"} else route for route in ROUTES}
    other = {route for route in table if route.startswith(("json-rpc ", "/dtmgimp.", "/grpc.", "/apache."))}
    assert table - other == http
    assert {f"json-rpc {name}" for name in METHODS} == {route for route in other if route.startswith("json-rpc")}


async def test_every_grpc_method_that_is_served_is_in_the_table(api: Api) -> None:
    grpc_api = api.server.server._grpc._api
    assert grpc_api is not None
    assert grpc_api._listener._services is not None
    served = set(grpc_api._listener._services._methods)
    assert {route for route in ROUTES if route.startswith(("/dtmgimp.", "/grpc."))} == served


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("route", HTTP_ROUTES, ids=lambda route: f"{route.verb} {route.path}")
async def test_a_route_of_http_is_open_to_its_scopes_alone(api: Api, route: HttpRoute, door: str) -> None:
    path = route.path.replace("{gid:path}", "g").replace("{name:path}", "t").replace("{name}", "t")
    for client in CLIENTS:
        expected = _expected(route.path, _through(door, client), "GET" if route.verb == "HEAD" else route.verb)
        if route.verb == "HEAD":  # its answer has no body to read a code from
            status = await api.status(_request("HEAD", path, door, client))
            assert status == await api.status(_request("GET", path, door, client))
        else:
            response = await api.http(_request(route.verb, path, door, client))
            status, code = response.status, _code(response)
            assert (code if code in REFUSED else "") == expected, f"{client}: {status} {response.body!r}"
        assert status == STATUSES[expected] if expected else status not in STATUSES.values(), f"{client}: {status}"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("called", METHODS)
async def test_a_method_of_json_rpc_is_open_to_its_scopes_alone(api: Api, called: str, door: str) -> None:
    for client in CLIENTS:
        error = await api.json_rpc(called, f"g-{client}", client, door)
        code = error.get("data", {}).get("code", "")
        expected = _expected(f"json-rpc {called}", _through(door, client))
        assert (code if code in REFUSED else "") == expected, f"{client}: {error}"


@pytest.mark.parametrize("path", GRPC_METHODS)
async def test_a_method_of_grpc_is_open_to_its_scopes_alone(api: Api, path: str) -> None:
    codes = {Unauthenticated.code: Code.UNAUTHENTICATED, Forbidden.code: Code.PERMISSION_DENIED}
    for client in CLIENTS:
        code, metadata = await api.grpc(path, f"g-{client}", client)
        expected = _expected(path, client)
        assert (metadata.get("twophase-code") in REFUSED) is bool(expected), f"{client}: {code} {metadata}"
        if expected:
            assert (code, metadata["twophase-code"]) == (codes[expected], expected)


@pytest.mark.parametrize("state", ["prepared", "submitted", "aborted"])
@pytest.mark.parametrize("what", ["prepare", "submit", "abort"])
@pytest.mark.parametrize("wire", ["http", "json-rpc", "grpc"])
async def test_another_owners_message_is_refused_without_a_word_about_it(
    api: Api, wire: str, what: str, state: str
) -> None:
    await api.say("prepare", "g", "produce")
    if state != "prepared":
        await api.say("submit" if state == "submitted" else "abort", "g", "produce")
    before = await api.server.view("g")
    told = await _told(api, wire, what)
    assert "TP-2002" in told
    for word in ("prepared", "submitted", "failed", "produce", "check"):
        assert word not in told.lower().replace("check the gid", "")
    after = await api.server.view("g")
    assert (after.state, after.decided_by, after.owner) == (before.state, before.decided_by, "produce")


async def _told(api: Api, wire: str, what: str) -> str:
    match wire:
        case "http":
            response = await api.say(what, "g", "other")
            assert response.status == 409
            return response.body.decode()
        case "json-rpc":
            return json.dumps(await api.json_rpc(what, "g", "other"))
        case _:
            code, metadata = await api.grpc(f"/dtmgimp.Dtm/{what.capitalize()}", "g", "other")
            assert code is Code.ABORTED
            return json.dumps({key: value for key, value in metadata.items() if key != "twophase-remedy"})


async def test_many_messages_of_another_owner_are_refused_one_by_one(api: Api) -> None:
    await api.say("prepare", "g", "produce")
    body = json.dumps({"gids": ["g"]}).encode()
    refused = await api.http(post("/api/twophase/submit-many", body, *bearer("other")))
    assert json.loads(refused.body)["results"] == [{"code": "TP-2002", "message": "the gid is taken."}]
    assert (await api.server.view("g")).state.name == "PREPARED"


async def test_a_query_for_another_owners_gid_is_that_for_an_unknown_one(api: Api) -> None:
    await api.say("prepare", "g", "produce")
    unknown = await api.http(get("/api/dtmsvr/query?gid=nosuch", *bearer("other")))
    others = await api.http(get("/api/dtmsvr/query?gid=g", *bearer("other")))
    own = await api.http(get("/api/dtmsvr/query?gid=g", *bearer("produce")))
    assert others.body == unknown.body
    assert json.loads(own.body)["transaction"]["gid"] == "g"


async def test_who_observes_sees_own_messages_and_who_operates_all(api: Api) -> None:
    await api.say("prepare", "g", "produce")
    for path in ("/api/twophase/messages", "/api/dtmsvr/all"):
        assert b'"g"' not in (await api.http(get(path, *bearer("observe")))).body
        assert b'"g"' in (await api.http(get(path, *bearer("reader")))).body
    one = "/api/twophase/messages/g"
    assert (await api.http(get(one, *bearer("observe")))).status == 404
    assert (await api.http(get(one, *bearer("reader")))).status == 200


async def test_payloads_and_header_values_need_a_scope_and_some_are_hidden_from_all(api: Api) -> None:
    headers = {"Authorization": "Bearer of-a-service", "tenant": "seven"}
    await api.say("prepare", "g", "produce", branch_headers=headers)
    for client in ("produce", "reader"):
        for path in ("/api/dtmsvr/query?gid=g", "/api/dtmsvr/all"):
            response = await api.http(get(path, *bearer(client)))
            if response.status == 403:
                continue
            assert b"of-a-service" not in response.body
            assert (b"seven" in response.body) is (client == "reader")
    shown = json.loads((await api.http(get("/api/dtmsvr/query?gid=g", *bearer("reader")))).body)
    masked = json.loads((await api.http(get("/api/dtmsvr/query?gid=g", *bearer("produce")))).body)
    assert (shown["branches"][0]["bin_data"], masked["branches"][0].get("bin_data", "")) == ("eyJhIjoxfQ==", "")
    path = "/api/twophase/messages/g?payload=true"
    assert b'{\\"a\\":1}' in (await api.http(get(path, *bearer("reader")))).body


@pytest.mark.parametrize("with_tokens", [True, False], ids=["tokens", "anonymous"])
@pytest.mark.parametrize("between", [", ", "; ", " "])
async def test_the_headers_that_an_operator_names_are_shown_to_nobody(
    tmp_path: Path, with_tokens: bool, between: str
) -> None:
    settings: dict[str, Any] = {"hidden_headers": f"X-Secret{between}tenant"}
    if with_tokens:
        write(tmp_path, "produce", [Scope.PRODUCE])
        settings["tokens"] = write(tmp_path, "reader", [Scope.OBSERVE, Scope.PAYLOAD, Scope.OPERATE])
    headers = {"x-secret": "not-for-you", "Tenant": "nor-this", "plain": "for-all"}
    async with running(tmp_path, **settings) as server:
        api = Api(server)
        for gid in ("waiting", "finished"):
            await api.say("prepare", gid, "produce", branch_headers=headers)
        await api.say("abort", "finished", "produce")
        for gid in ("waiting", "finished"):
            for path in (f"/api/dtmsvr/query?gid={gid}", f"/api/dtmsvr/all?gid={gid}", "/api/dtmsvr/all"):
                body = (await api.http(get(path, *bearer("reader")))).body
                assert b"for-all" in body, path
                assert b"not-for-you" not in body, path
                assert b"nor-this" not in body, path
            body = (await api.http(get(f"/api/twophase/messages/{gid}?payload=true", *bearer("reader")))).body
            assert b"not-for-you" not in body
            assert b"nor-this" not in body


async def test_payloads_are_refused_to_who_may_only_observe(tmp_path: Path) -> None:
    tokens = write(tmp_path, "eve", [Scope.OBSERVE, Scope.OPERATE])
    write(tmp_path, "produce", [Scope.PRODUCE])
    async with running(tmp_path, tokens=tokens) as server:
        api = Api(server)
        await api.say("prepare", "g", "produce")
        refused = await api.http(get("/api/twophase/messages/g?payload=true", *bearer("eve")))
        shown = await api.http(get("/api/twophase/messages/g", *bearer("eve")))
    assert (refused.status, shown.status) == (403, 200)
    assert b'"a"' not in shown.body


async def test_an_operators_act_names_the_token(api: Api) -> None:
    await api.say("prepare", "g", "produce")
    act = json.dumps({"by": "eve", "reason": "a test"}).encode()
    assert (await api.http(post("/api/twophase/messages/g/park", act, *bearer("operate")))).status == 200
    assert (await api.server.view("g")).log[-1].error == "parked by eve with the token operate: a test"


@pytest.mark.parametrize("origin", ["", "http://127.0.0.1:{}", "HTTPS://LocalHost:{}"])
async def test_a_token_in_the_base_url_may_produce_and_is_nowhere_else(
    api: Api, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], origin: str
) -> None:
    """A client behind a forward proxy may send its whole URL in the request line."""
    token = token_of("produce")
    base = f"{origin.format(api.server.port)}/t/{token}"
    for path in ("prepare", "submit", "submit?x=1"):
        response = await api.http(post(f"{base}/api/dtmsvr/{path}", body_of("g")))
        assert response.status == 200, response.body
    assert (await api.server.view("g")).owner == "produce"
    queried = await api.http(get(f"{base}/api/dtmsvr/query?gid=g"))
    unknown = await api.http(get(f"{base}/nosuch"))
    broken = await api.http(post(f"{base}/api/dtmsvr/submit", b"{"))
    metrics = await api.http(get("/metrics", *bearer("observe")))
    assert json.loads(queried.body)["transaction"]["gid"] == "g"
    said = [
        queried.body,
        unknown.body,
        broken.body,
        metrics.body,
        caplog.text.encode(),
        *map(str.encode, capfd.readouterr()),
    ]
    assert all(token.encode() not in one for one in said)


@pytest.mark.parametrize("origin", ["", "http://127.0.0.1"])
@pytest.mark.parametrize("name", ["reader", "nosuch"])
async def test_a_token_in_the_base_url_that_may_do_more_is_refused(api: Api, name: str, origin: str) -> None:
    for request in (
        post(f"{origin}/t/{token_of(name)}/api/dtmsvr/submit", body_of("g")),
        get(f"{origin}/t/{token_of(name)}/api/twophase/messages"),
    ):
        response = await api.http(request)
        assert response.status == 401
        assert token_of(name).encode() not in response.body


@pytest.mark.parametrize("origin", ["", "http://127.0.0.1"])
async def test_a_header_beside_a_token_in_the_base_url_does_not_widen_it(api: Api, origin: str) -> None:
    path = f"{origin}/t/{token_of('produce')}/api/twophase/messages"
    assert (await api.http(get(path, *bearer("reader")))).status == 403


async def test_a_token_in_the_path_of_a_grpc_call_is_not_repeated(api: Api) -> None:
    async with grpc.aio.insecure_channel(grpc_url(api.server).removeprefix("grpc://")) as channel:
        call = method(channel, f"/t/{token_of('produce')}/dtmgimp.Dtm/NewGid")(b"", timeout=20)
        assert await call.code() is Code.UNIMPLEMENTED
        assert token_of("produce") not in f"{await call.details()}{await call.trailing_metadata()}"


async def test_two_authorizations_are_none(api: Api) -> None:
    two = (*bearer("produce"), f"authorization: Bearer {token_of('other')}")
    assert (await api.http(post("/api/dtmsvr/submit", body_of("g"), *two))).status == 401


async def test_gids_and_addresses_stay_within_the_token(tmp_path: Path) -> None:
    tokens = write(
        tmp_path, "shop", [Scope.PRODUCE, Scope.TOPICS], gid_prefix="shop-", destinations=("http://127.0.0.1:1/in",)
    )
    write(tmp_path, "eve", [Scope.OPERATE], gid_prefix="bank-", destinations=("http://127.0.0.1:1/in",))
    async with running(tmp_path, tokens=tokens) as server:
        api = Api(server)
        inside = {"query_prepared": ""}
        outside = {"steps": [{"action": "http://127.0.0.1:1/other"}]}
        statuses = [
            (await api.say("submit", gid, "shop", **more)).status
            for gid, more in (
                ("shop-1", inside),
                ("other-1", inside),
                ("shop-2", inside | outside),
                ("shop-3", {"query_prepared": "http://127.0.0.1:2/check"}),
            )
        ]
        gid = json.loads((await api.http(get("/api/dtmsvr/newGid", *bearer("shop")))).body)["gid"]
        topic = json.dumps({"topic": "t", "url": "http://evil/in"}).encode()
        subscribed = await api.http(post("/api/twophase/topics/subscribe", topic, *bearer("shop")))
        parked = await api.http(post("/api/twophase/messages/shop-1/park", b"", *bearer("eve")))
        elsewhere = json.dumps({"url": "http://127.0.0.1:1/check"}).encode()
        probed = await api.http(post("/api/twophase/check-addresses/probe", elsewhere, *bearer("eve")))
    assert statuses == [200, 403, 403, 403]
    assert gid.startswith("shop-tp")
    assert (subscribed.status, parked.status, probed.status) == (403, 404, 403)


async def test_who_gives_no_token_is_told_the_way_to_give_one(api: Api) -> None:
    for request in (post("/api/dtmsvr/submit", body_of("g")), get("/api/dtmsvr/all")):
        refused = await api.http(request)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    forbidden = await api.http(get("/metrics", *bearer("produce")))
    assert "www-authenticate" not in forbidden.headers


async def test_a_message_from_before_is_decided_by_who_may_produce(tmp_path: Path) -> None:
    async with running(tmp_path, timeout_to_fail_ms=86_400_000) as server:
        await Api(server).say("prepare", "g", None)
        assert (await server.view("g")).owner == ""
    tokens = write(tmp_path, "produce", [Scope.PRODUCE])
    async with running(tmp_path, tokens=tokens) as server:
        assert (await Api(server).say("submit", "g", "produce")).status == 200


async def test_a_message_keeps_its_owner_in_history_and_over_a_restart(tmp_path: Path) -> None:
    tokens = write(tmp_path, "produce", [Scope.PRODUCE])
    write(tmp_path, "other", [Scope.PRODUCE])
    async with running(tmp_path, tokens=tokens) as server:
        await Api(server).say("prepare", "g", "produce")
        await Api(server).say("abort", "g", "produce")
    async with running(tmp_path, tokens=tokens) as server:
        assert (await server.view("g")).owner == "produce"
        refused = await Api(server).say("prepare", "g", "other")
    assert (refused.status, json.loads(refused.body).get("state", "")) == (409, "")


def _code(response: Response) -> str:
    try:
        body = json.loads(response.body)
    except ValueError:
        return ""
    return str(body.get("code", "")) if isinstance(body, dict) else ""


async def test_a_certificate_stands_for_a_token_on_grpc(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tokens = write(tmp_path, "pay", [Scope.PRODUCE], san=("pay.internal",))
    async with running(tmp_path, grpc_port=0, tokens=tokens, **certificates.settings(client_ca=True)) as server:
        target = grpc_url(server).removeprefix("grpcs://")
        codes = []
        for name in ("pay.internal", "stranger.internal"):
            certificate, key = certificates.client(name)
            credentials = grpc.ssl_channel_credentials(
                certificates.ca.read_bytes(), key.read_bytes(), certificate.read_bytes()
            )
            async with grpc.aio.secure_channel(target, credentials) as channel:
                codes.append(await _grpc_code(channel, f"g-{name}"))
        assert codes == [Code.OK, Code.UNAUTHENTICATED]
        assert (await server.view("g-pay.internal")).owner == "pay"


async def _grpc_code(channel: grpc.aio.Channel, gid: str) -> Code:
    raw = encode_request(Request(gid=gid, trans_type="msg", steps="[]", query_prepared="127.0.0.1:1/a.A/Check"))
    try:
        await method(channel, "/dtmgimp.Dtm/Prepare")(raw, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return Code.OK
