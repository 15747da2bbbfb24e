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

from tests.integration.server.pretend import Client, get
from tests.integration.server.running import running
from twophase.server.app import Server
from twophase.server.formats.wire import WireRequest
from twophase.server.http_port.parser import ROUTES
from twophase.server.openapi import OPENAPI_PATH, document
from twophase.server.openapi.document import FIELDS
from twophase.server.settings import Settings


def _served(folder: Path) -> set[tuple[str, str]]:
    app = Server(Settings(store=f"sqlite:///{folder / 'store.db'}", http_port=0)).listener.config.app
    assert isinstance(app, Starlette)
    found = {(path.decode(), "POST") for path in ROUTES}
    for route in app.routes:
        assert isinstance(route, Route), f"{route}: the test reads plain routes only"
        # Starlette adds HEAD to every GET; the document says so once.
        found |= {(route.path_format, method) for method in (route.methods or set()) - {"HEAD"}}
    return found


def _documented() -> set[tuple[str, str]]:
    return {(path, method.upper()) for path, methods in document()["paths"].items() for method in methods}


def test_every_route_is_documented_and_everything_documented_is_served(tmp_path: Path) -> None:
    served, documented = _served(tmp_path), _documented()

    assert served - documented == set(), "missing in server/openapi"
    assert documented - served == set(), "in server/openapi, but not served"


def test_every_field_of_a_request_is_described() -> None:
    assert set(FIELDS) == set(WireRequest.__struct_fields__)


def test_every_reference_leads_somewhere() -> None:
    whole = document()
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


def test_operation_ids_differ() -> None:
    ids = [one["operationId"] for methods in document()["paths"].values() for one in methods.values()]

    assert len(set(ids)) == len(ids)


async def test_the_server_publishes_the_document(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        response = await client.ask(get(OPENAPI_PATH))
        client.close()

    assert (response.status, response.headers["content-type"]) == (200, "application/json; charset=utf-8")
    assert msgspec.json.decode(response.body) == json.loads(json.dumps(document()))
