"""The pages on adding twophase to a service, exactly as a reader copies them: their routes do what the pages say."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import sqlalchemy
from fastapi import FastAPI
from flask import Flask
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from sqlalchemy.ext.asyncio import create_async_engine

from tests.docs.pages import ROOT, examples
from tests.integration.client.coordinator import RecordingCoordinator
from twophase.barrier import install
from twophase.testing import InProcessCoordinator, State

_PAGES = sorted((ROOT / "docs" / "how-to").glob("add-to-*.md"))
_CALL = {"gid": "g1", "branch_id": "01", "op": "action", "trans_type": "msg"}
_WISH = {"article": 7, "pieces": 2}


class Shop:
    """The database of a service that is producer and consumer in one, and the names that the pages suppose."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("create table orders (article integer, pieces integer default 1)")
            connection.execute("create table stock (article integer primary key, free integer)")
            connection.execute("insert into stock values (7, 10)")
        self.engine = sqlalchemy.create_engine(f"sqlite:///{file}")
        install(self.engine)

    def query(self, sql: str) -> list[Any]:
        """What stands there, seen from outside."""
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            return connection.execute(sql).fetchall()

    def played(self, page: str, *names: str, **known: Any) -> dict[str, Any]:
        """The names that a page's examples have made, in the order that they stand in."""
        found = examples(ROOT / "docs" / "how-to" / page)
        space = {"engine": self.engine, **known}
        for name in names:
            exec(found[name], space)
        return space


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """With ten pieces of article 7."""
    shop = Shop(tmp_path / "shop.db")
    yield shop
    shop.engine.dispose()


@pytest.fixture
def coordinator() -> Iterator[RecordingCoordinator]:
    """What the producers talk to."""
    with RecordingCoordinator().running() as coordinator:
        yield coordinator


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_example_of_these_pages_is_run(page: Path) -> None:
    assert page.read_text().count("```python") == len(examples(page))


async def test_fastapi(shop: Shop, coordinator: RecordingCoordinator) -> None:
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{shop.file}")
    app = FastAPI()
    known = {"app": app, "COORDINATOR": coordinator.url, "STOCK": "http://stock", "OWN_URL": "http://shop"}
    known |= {"async_engine": async_engine, "engine_north": shop.engine, "engine_south": shop.engine}
    shop.played("add-to-fastapi.md", "check-back", "producer", "consumer", "async-consumer", "several", **known)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        gid = (await client.post("/orders", json=_WISH)).json()["gid"]
        question = _question(coordinator, gid)
        for path in ("/twophase/check", "/north/check", "/south/check"):
            assert (await client.get(path, params=question)).headers["x-twophase-verdict"] == "committed"
        for _ in range(2):
            assert (await client.post("/reserve", params=_CALL, json=_WISH)).status_code == 200
            assert shop.query("select free from stock") == [(8,)]
        for _ in range(2):
            released = await client.post("/release", params=_CALL | {"branch_id": "02"}, json=_WISH)
            assert (released.status_code, shop.query("select free from stock")) == (200, [(10,)])
    await async_engine.dispose()
    _expect_order(shop, coordinator, free=10)


def test_flask(shop: Shop, coordinator: RecordingCoordinator) -> None:
    app = Flask("shop")
    known = {"app": app, "COORDINATOR": coordinator.url, "STOCK": "http://stock", "OWN_URL": "http://shop"}
    shop.played("add-to-flask.md", "producer", "consumer", **known)
    client = app.test_client()
    answer = client.post("/orders", json=_WISH).get_json()
    checked = client.get("/twophase/check", query_string=_question(coordinator, answer["gid"]))
    assert checked.headers["x-twophase-verdict"] == "committed"
    assert [client.post("/reserve", query_string=_CALL, json=_WISH).status_code for _ in range(2)] == [200, 200]
    _expect_order(shop, coordinator, free=8)


def test_django(shop: Shop, coordinator: RecordingCoordinator, tmp_path: Path) -> None:
    found = examples(ROOT / "docs" / "how-to" / "add-to-django.md")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "urls.py").write_text(found["urls"])
    (tmp_path / "shop" / "views.py").write_text(found["producer"] + "\n" + found["consumer"])
    command = [sys.executable, "-W", "error", "-m", "tests.docs.django_project", str(shop.file), coordinator.url]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "200 committed 200 200\n"), done.stderr
    _expect_order(shop, coordinator, free=8)


def test_grpc(shop: Shop) -> None:
    made = _protoc()
    with InProcessCoordinator(grpc_port=0) as coordinator:
        known = {"COORDINATOR": coordinator.grpc_url, "OrdersServicer": object, "StockServicer": object, **made}
        space = shop.played("add-to-grpc.md", "producer", "consumer", **known)
        server: grpc.Server = space["server"]
        server.add_generic_rpc_handlers(
            (
                _service("shop.Orders", "Order", space["Orders"]().Order, made["OrderRequest"]),
                _service("stock.Stock", "Reserve", space["Stock"]().Reserve, made["ReserveRequest"]),
            )
        )
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        space["STOCK"] = space["OWN_HOST"] = f"grpc://{address}"
        server.start()
        with grpc.insecure_channel(address) as channel:
            order: Any = channel.unary_unary("/shop.Orders/Order", response_deserializer=made["OrderReply"].FromString)
            gid = order(made["OrderRequest"](item="7").SerializeToString(), timeout=20).gid
            assert coordinator.wait_final(gid) is State.SUCCEEDED
            question = [("dtm-gid", gid), ("dtm-op", "msg"), ("dtm-branch_id", "00"), ("dtm-trans_type", "msg")]
            identity = shop.query("select value from twophase_meta where name = 'identity'")[0][0]
            check: Any = channel.unary_unary("/twophase.Producer/Check")
            _, call = check.with_call(b"", metadata=[*question, ("twophase-barrier", identity)], timeout=20)
            assert ("x-twophase-verdict", "committed") in call.trailing_metadata()
        server.stop(None).wait()
    assert (shop.query("select article from orders"), shop.query("select free from stock")) == ([(7,)], [(9,)])


def _question(coordinator: RecordingCoordinator, gid: str) -> dict[str, str]:
    """What the coordinator would ask, by the check address it was given."""
    identity = coordinator.last("prepare")["query_prepared"].partition("barrier=")[2]
    return {"gid": gid, "trans_type": "msg", "branch_id": "00", "op": "msg", "barrier": identity}


def _expect_order(shop: Shop, coordinator: RecordingCoordinator, *, free: int) -> None:
    assert coordinator.operations == ["prepare", "submit"]
    assert coordinator.last("submit")["steps"] == [{"action": "http://stock/reserve"}]
    assert shop.query("select article, pieces from orders") == [(7, 2)]
    assert shop.query("select free from stock") == [(free,)]


def _protoc() -> dict[str, Any]:
    """The messages that the page's services would bring, without protoc."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    fields = {"OrderRequest": "item", "OrderReply": "gid", "ReserveRequest": "item"}
    for name, field in fields.items():
        text = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
        file.message_type.add(name=name).field.add(name=field, number=1, type=text, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in fields}


def _service(name: str, method: str, serve: Any, request: Any) -> grpc.GenericRpcHandler:
    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
        serve, request_deserializer=request.FromString, response_serializer=lambda reply: reply.SerializeToString()
    )
    return grpc.method_handlers_generic_handler(name, {method: handler})
