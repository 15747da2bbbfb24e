"""The three APIs of dtm's protocol behind one interface.

A request is the same for all, and so are the words for its end.
"""

from __future__ import annotations

import enum
import http.client
from typing import Any, Protocol

import grpc
import msgspec

from twophase.grpc_wire.messages import Request, encode_request
from twophase.testing import InProcessCoordinator

_TIMEOUT_S = 20


class End(enum.Enum):
    """The end of a request, for a client of dtm."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    ERROR = "error"


class Said(msgspec.Struct, frozen=True):
    """The end, and the text that came with it."""

    end: End
    text: str = ""


class Api(Protocol):
    """One wire format."""

    protocol: str

    def ask(self, what: str, gid: str, urls: list[str], **options: Any) -> Said:
        """Send prepare, submit or abort. `options` as dtm names them in JSON."""
        ...


class HttpApi:
    """The API on port 36789."""

    protocol = "http"

    def __init__(self, coordinator: InProcessCoordinator) -> None:
        self._address = coordinator.url.removeprefix("http://")

    def raw(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send any request; return the status, and the body as JSON where it is."""
        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT_S)
        try:
            sent = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
            connection.request(method, path, sent, {"content-type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        try:
            return response.status, msgspec.json.decode(text)
        except msgspec.DecodeError:
            return response.status, text.decode()

    def get(self, path: str) -> Any:
        """Send a query below /api/dtmsvr that must be answered."""
        status, body = self.raw("GET", f"/api/dtmsvr/{path}")
        assert status == 200, (path, status, body)
        return body

    def ask(self, what: str, gid: str, urls: list[str], **options: Any) -> Said:
        status, body = self.raw("POST", f"/api/dtmsvr/{what}", wire(gid, urls, options))
        if status == 200:
            assert body["dtm_result"] == "SUCCESS"
            return Said(End.SUCCESS)
        end = End.FAILURE if status == 409 else End.ERROR
        assert (body.get("dtm_result") == "FAILURE") is (end is End.FAILURE)
        return Said(end, body["message"])


class JsonRpcApi:
    """The API on the same port."""

    protocol = "http"

    def __init__(self, coordinator: InProcessCoordinator) -> None:
        self.http = HttpApi(coordinator)

    def call(self, method: str, params: Any, **fields: Any) -> Any:
        """Make one call; return the whole answer."""
        sent = {"jsonrpc": "2.0", "id": "17", "method": method, "params": params} | fields
        status, body = self.http.raw("POST", "/api/json-rpc", sent)
        assert status == 200, body
        return body

    def ask(self, what: str, gid: str, urls: list[str], **options: Any) -> Said:
        error = self.call(what, wire(gid, urls, options))["error"]
        if error is None:
            return Said(End.SUCCESS)
        return Said(End.FAILURE if error["code"] == -32901 else End.ERROR, error["message"])


class GrpcApi:
    """The API on port 36790."""

    protocol = "grpc"

    def __init__(self, coordinator: InProcessCoordinator) -> None:
        self._address = coordinator.grpc_url.removeprefix("grpc://")

    def call(self, name: str, body: bytes) -> tuple[grpc.StatusCode, str]:
        """Make one call of bytes; return how it ended."""
        with grpc.insecure_channel(self._address) as channel:
            method: Any = channel.unary_unary(f"/dtmgimp.Dtm/{name}")
            try:
                method(body, timeout=_TIMEOUT_S)
            except grpc.RpcError as error:
                ended: Any = error
                return ended.code(), ended.details()
        return grpc.StatusCode.OK, ""

    def ask(self, what: str, gid: str, urls: list[str], **options: Any) -> Said:
        steps = msgspec.json.encode([{"action": url} for url in urls]).decode()
        request = Request(gid=gid, trans_type="msg", steps=steps, payloads=[b"{}"] * len(urls), **options)
        code, text = self.call(what.capitalize(), encode_request(request))
        if code is grpc.StatusCode.OK:
            return Said(End.SUCCESS)
        return Said(End.FAILURE if code is grpc.StatusCode.ABORTED else End.ERROR, text)


def wire(gid: str, urls: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return a request's JSON."""
    steps = [{"action": url} for url in urls]
    return {"gid": gid, "trans_type": "msg", "steps": steps, "payloads": ["{}"] * len(urls)} | options
