"""The published document names what the server serves, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route

from tests.integration.server.running import running
from tests.support.fake_coordinator import Client, get
from twophase.server.api.dtm_http import HOT_OPERATIONS
from twophase.server.api.openapi import FIELDS, OPENAPI_PATH, document
from twophase.server.app import Server
from twophase.server.codecs.wire import WireRequest
from twophase.server.http_port.parser import ROUTES
from twophase.server.settings import Settings


def _server(folder: Path) -> Server:
    return Server(Settings(store=f"sqlite:///{folder / 'store.db'}", http_port=0))


def test_every_route_is_documented_and_everything_documented_is_served(tmp_path: Path) -> None:
    server = _server(tmp_path)
    app = server.listener.config.app
    assert isinstance(app, Starlette)
    served = {(path.decode(), "post") for path in ROUTES}
    for route in app.routes:
        assert isinstance(route, Route), f"{route}: the test reads plain routes only"
        # Starlette adds HEAD to every GET; the document says so once.
        served |= {(route.path_format, method.lower()) for method in (route.methods or set()) - {"HEAD"}}

    whole = document(server.openapi.operations)

    assert {(path, method) for path, methods in whole["paths"].items() for method in methods} == served


def test_the_routes_without_a_handler_are_those_of_the_hot_path() -> None:
    assert {operation.path.encode() for operation in HOT_OPERATIONS} == set(ROUTES)


def test_every_field_of_a_request_is_described() -> None:
    assert set(FIELDS) == set(WireRequest.__struct_fields__)


def test_every_reference_leads_somewhere(tmp_path: Path) -> None:
    whole = document(_server(tmp_path).openapi.operations)
    for reference in _references(whole):
        place: Any = whole
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def _references(place: Any) -> Iterator[str]:
    if isinstance(place, dict):
        if isinstance(place.get("$ref"), str):
            yield place["$ref"]
        place = list(place.values())
    if isinstance(place, list):
        for inner in place:
            yield from _references(inner)


def test_operation_ids_differ(tmp_path: Path) -> None:
    paths = document(_server(tmp_path).openapi.operations)["paths"].values()
    ids = [one["operationId"] for methods in paths for one in methods.values()]

    assert len(set(ids)) == len(ids)


async def test_the_server_publishes_the_document(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        response = await client.ask(get(OPENAPI_PATH))
        client.close()

    assert (response.status, response.headers["content-type"]) == (200, "application/json; charset=utf-8")
    assert msgspec.json.decode(response.body) == json.loads(json.dumps(document(server.server.openapi.operations)))
