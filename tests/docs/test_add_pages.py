"""The pages on adding twophase to a service, exactly as a reader copies them.

Their routes do what the pages say.
"""

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
from fastapi import FastAPI, Request
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

from tests.docs.pages import ROOT, examples
from tests.support.recording_coordinator import RecordingCoordinator
from twophase import Message
from twophase.barrier import install
from twophase.integrations.fastapi import branch, once
from twophase.testing import InProcessCoordinator, State

_PAGES = sorted((ROOT / "docs" / "how-to").glob("add-to-*.md"))
_CALL = {"gid": "g1", "branch_id": "01", "op": "action", "trans_type": "msg"}
_WISH = {"article": 7, "pieces": 2}


class Wish(BaseModel):
    """A model of the reader's application."""

    article: int
    pieces: int


class Shop:
    """The database of a service that is producer and consumer in one.

    It has the names that the pages suppose.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("create table orders (article integer, pieces integer default 1)")
            connection.execute("create table backorders (article integer, pieces integer default 1)")
            connection.execute("create table stock (article integer primary key, free integer)")
            connection.execute("insert into stock values (7, 10)")
        self.engine = sqlalchemy.create_engine(f"sqlite:///{file}")
        install(self.engine)

    def query(self, sql: str) -> list[Any]:
        """Return rows, read from outside."""
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            return connection.execute(sql).fetchall()

    def played(self, page: str, *names: str, **known: Any) -> dict[str, Any]:
        """Return the names that a page's examples have made, in the examples' order."""
        found = examples(ROOT / "docs" / "how-to" / page)
        space = {"engine": self.engine, **known}
        for name in names:
            exec(found[name], space)
        return space


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop with ten pieces of article 7."""
    shop = Shop(tmp_path / "shop.db")
    yield shop
    shop.engine.dispose()


@pytest.fixture
def coordinator() -> Iterator[RecordingCoordinator]:
    """The coordinator of the producers."""
    with RecordingCoordinator().running() as coordinator:
        yield coordinator


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_example_of_these_pages_is_run(page: Path) -> None:
    assert page.read_text().count("```python") == len(examples(page))


@pytest.fixture
def settings(shop: Shop, coordinator: RecordingCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment that the complete files read."""
    monkeypatch.setenv("DATABASE", f"sqlite:///{shop.file}")
    monkeypatch.setenv("COORDINATOR", coordinator.url)
    monkeypatch.setenv("STOCK", "http://stock")
    monkeypatch.setenv("OWN_URL", "http://shop")


@pytest.mark.usefixtures("settings")
async def test_fastapi(shop: Shop, coordinator: RecordingCoordinator) -> None:
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{shop.file}")
    known = {"async_engine": async_engine, "engine_north": shop.engine, "engine_south": shop.engine}
    space = shop.played("add-to-fastapi.md", "complete", "async-consumer", "once", "several", **known)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(space["app"]), base_url="http://shop") as client:
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
        assert (await client.post("/count", params=_CALL | {"branch_id": "03"})).status_code == 200
        much = await client.post("/reserve", params=_CALL | {"branch_id": "04"}, json=_WISH | {"pieces": 99})
        assert (much.status_code, shop.query("select * from backorders")) == (200, [(7, 99)])
    space["engine"].dispose()
    await async_engine.dispose()
    _expect_order(shop, coordinator, free=11)


@pytest.mark.usefixtures("settings")
def test_flask(shop: Shop, coordinator: RecordingCoordinator) -> None:
    known = {"__name__": "shop", "engine_north": shop.engine, "engine_south": shop.engine}
    known["async_engine"] = create_async_engine(f"sqlite+aiosqlite:///{shop.file}", poolclass=sqlalchemy.NullPool)
    space = shop.played("add-to-flask.md", "complete", "first-connection", "once", "several", **known)
    client = space["app"].test_client()
    answer = client.post("/orders", json=_WISH).get_json()
    for path in ("/twophase/check", "/north/check", "/south/check"):
        checked = client.get(path, query_string=_question(coordinator, answer["gid"]))
        assert checked.headers["x-twophase-verdict"] == "committed"
    assert [client.post("/reserve", query_string=_CALL, json=_WISH).status_code for _ in range(2)] == [200, 200]
    assert client.post("/count", query_string=_CALL | {"branch_id": "02"}).status_code == 200
    much = client.post("/reserve", query_string=_CALL | {"branch_id": "03"}, json=_WISH | {"pieces": 99})
    assert (much.status_code, shop.query("select * from backorders")) == (200, [(7, 99)])
    space["engine"].dispose()
    _expect_order(shop, coordinator, free=9)


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
        port = server.add_insecure_port("127.0.0.1:0")
        stock = _service("shop.Stock", "Reserve", space["Stock"]().Reserve, made["ReserveRequest"])
        server.add_generic_rpc_handlers((stock,))
        space |= {"LISTEN": f"127.0.0.1:{port}", "add_OrdersServicer_to_server": _add_orders(made)}
        exec(examples(ROOT / "docs" / "how-to" / "add-to-grpc.md")["serve"], space)
        address = f"127.0.0.1:{port}"
        space["STOCK"] = space["OWN_HOST"] = f"grpc://{address}"
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


def test_grpc_with_keys(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOPHASE_KEY", "of at least sixteen bytes")
    made = _protoc()
    known = {"COORDINATOR": "grpc://127.0.0.1:1", "OrdersServicer": object, "StockServicer": object, **made}
    space = shop.played("add-to-grpc.md", "producer", "consumer", "keys", **known)
    server: grpc.Server = space["server"]
    stock = _service("shop.Stock", "Reserve", space["Stock"]().Reserve, made["ReserveRequest"])
    server.add_generic_rpc_handlers((stock,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    call = [("dtm-gid", "g"), ("dtm-op", "action"), ("dtm-branch_id", "01"), ("dtm-trans_type", "msg")]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method in ("/shop.Stock/Reserve", "/twophase.Producer/Check"):
            unsigned: Any = channel.unary_unary(method)
            with pytest.raises(grpc.RpcError) as refused:
                unsigned(b"", metadata=call, timeout=20)
            error: Any = refused.value
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    server.stop(None).wait()
    assert (shop.query("select count(*) from barrier"), shop.query("select free from stock")) == ([(0,)], [(10,)])


def _question(coordinator: RecordingCoordinator, gid: str) -> dict[str, str]:
    """Return the coordinator's question, by the check address of the prepare."""
    identity = coordinator.last("prepare")["query_prepared"].partition("barrier=")[2]
    return {"gid": gid, "trans_type": "msg", "branch_id": "00", "op": "msg", "barrier": identity}


def _expect_order(shop: Shop, coordinator: RecordingCoordinator, *, free: int) -> None:
    assert coordinator.operations == ["prepare", "submit"]
    assert coordinator.last("submit")["steps"] == [{"action": "http://stock/reserve"}]
    assert shop.query("select article, pieces from orders") == [(7, 2)]
    assert shop.query("select free from stock") == [(free,)]


def _protoc() -> dict[str, Any]:
    """Return the messages that the page's services would bring, without protoc."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    fields = {"OrderRequest": "item", "OrderReply": "gid", "ReserveRequest": "item"}
    for name, field in fields.items():
        text = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
        file.message_type.add(name=name).field.add(name=field, number=1, type=text, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in fields}


def _add_orders(made: dict[str, Any]) -> Any:
    """Return protoc's function that registers the servicer of `shop.Orders`."""

    def add(servicer: Any, server: grpc.Server) -> None:
        server.add_generic_rpc_handlers((_service("shop.Orders", "Order", servicer.Order, made["OrderRequest"]),))

    return add


def _service(name: str, method: str, serve: Any, request: Any) -> grpc.GenericRpcHandler:
    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
        serve, request_deserializer=request.FromString, response_serializer=lambda reply: reply.SerializeToString()
    )
    return grpc.method_handlers_generic_handler(name, {method: handler})


async def test_when_the_consumer_cannot_accept(shop: Shop, coordinator: RecordingCoordinator) -> None:
    app, page = FastAPI(), "when-the-consumer-cannot-accept.md"
    with shop.engine.begin() as connection:
        connection.execute(sqlalchemy.text("create table refusals (gid text primary key, article integer)"))
    known = {"app": app, "Wish": Wish, "COORDINATOR": coordinator.url, "ORDERS": "http://orders", "Message": Message}
    known |= {"branch": branch, "once": once, "text": sqlalchemy.text, "Request": Request}
    shop.played(page, "backorder", "back", **known)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        much = _WISH | {"pieces": 99}
        for _ in range(2):
            assert (await client.post("/reserve", params=_CALL, json=much)).status_code == 200
            answer = await client.post("/reserve-or-cancel", params=_CALL | {"branch_id": "02"}, json=much)
            assert answer.status_code == 200
    assert shop.query("select * from backorders") == [(7, 99)]
    assert coordinator.last("submit")["steps"] == [{"action": "http://orders/cancel"}]
    assert {request.body["gid"] for request in coordinator.requests} == {"g1-cancelled"}
