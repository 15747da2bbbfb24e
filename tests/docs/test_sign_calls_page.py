"""The page on signed calls: its examples accept signed calls and no others."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import grpc
import httpx
import pytest
import sqlalchemy
from fastapi import FastAPI
from flask import Flask, request

from tests.docs.pages import ROOT, examples
from tests.docs.test_add_pages import Wish
from twophase.barrier import install
from twophase.core.signature import SIGNATURE_HEADER, http_text, key_of, signed

_PAGE = ROOT / "docs" / "how-to" / "sign-calls.md"
_SECRET = "0123456789abcdef0123456789abcdef"
_QUERY = urlencode({"branch_id": "01", "gid": "g", "op": "action", "trans_type": "msg"})
_TARGET = f"/reserve?{_QUERY}"
_BODY = b'{"article":7,"pieces":2}'


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the examples suppose."""
    monkeypatch.setenv("TWOPHASE_KEY", _SECRET)
    file = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("create table stock (article integer primary key, free integer)")
        connection.execute("insert into stock values (7, 10)")
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    install(engine)
    yield {"engine": engine, "os": os, "text": sqlalchemy.text, "Wish": Wish, "parse_qsl": parse_qsl}
    engine.dispose()


def _headers() -> dict[str, str]:
    now_ms = time.time_ns() // 1_000_000
    text = http_text(now_ms, "POST", _TARGET, "", _BODY)
    return {SIGNATURE_HEADER: signed(key_of("2026-11", _SECRET), now_ms, text), "content-type": "application/json"}


def _play(name: str, space: dict[str, Any]) -> None:
    exec(examples(_PAGE)[name], space)


def _rows(space: dict[str, Any]) -> list[Any]:
    with space["engine"].connect() as connection:
        return list(connection.execute(sqlalchemy.text("select free, (select count(*) from barrier) from stock")))


def test_every_example_of_the_page_is_run() -> None:
    assert set(examples(_PAGE)) == {"fastapi", "flask", "grpc", "plain"}


async def test_fastapi(space: dict[str, Any]) -> None:
    app = space["app"] = FastAPI()
    _play("fastapi", space)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        plain = {"content-type": "application/json"}
        assert (await client.post(_TARGET, content=_BODY, headers=plain)).status_code == 401
        assert (await client.get(f"/twophase/check?{_QUERY}")).status_code == 401
        assert _rows(space) == [(10, 0)]
        assert (await client.post(_TARGET, content=_BODY, headers=_headers())).status_code == 200
    assert _rows(space) == [(8, 1)]


def test_flask(space: dict[str, Any]) -> None:
    app = space["app"] = Flask("shop")
    _play("flask", space | {"request": request})
    client = app.test_client()
    assert client.post(_TARGET, data=_BODY, content_type="application/json").status_code == 401
    assert client.get(f"/twophase/check?{_QUERY}").status_code == 401
    assert _rows(space) == [(10, 0)]
    assert client.post(_TARGET, data=_BODY, headers=_headers()).status_code == 200
    assert _rows(space) == [(8, 1)]


def test_grpc(space: dict[str, Any]) -> None:
    _play("grpc", space | {"grpc": grpc, "ThreadPoolExecutor": ThreadPoolExecutor})


def test_another_framework(space: dict[str, Any]) -> None:
    space["KEYS"] = {"2026-11": _SECRET}
    _play("plain", space)
    status, why = space["reserve"]("POST", _TARGET, {}, _BODY)
    assert (status, "no signature" in why, _rows(space)) == (401, True, [(10, 0)])
    assert space["reserve"]("POST", _TARGET, _headers(), _BODY) == (200, "done")
    assert _rows(space) == [(10, 1)]
