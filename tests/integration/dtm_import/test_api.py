"""`POST /api/twophase/import`: what it refuses."""

from __future__ import annotations

import base64
import urllib.request
from typing import Any
from urllib.error import HTTPError

import msgspec

from twophase.testing import InProcessCoordinator


def test_the_api_refuses_nonsense(coordinator: InProcessCoordinator) -> None:
    def ask(body: bytes) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"{coordinator.url}/api/twophase/import", body, method="POST")
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, msgspec.json.decode(response.read())
        except HTTPError as error:
            with error:
                return error.code, msgspec.json.decode(error.read())

    def one(**changes: Any) -> bytes:
        return msgspec.json.encode({"messages": [{"gid": "g", "state": "submitted", **changes}]})

    def refused(body: bytes) -> str:
        status, said = ask(body)
        assert status == 200
        assert said["results"][0]["outcome"] == "refused", said
        return str(said["results"][0]["message"])

    assert ask(b"{")[0] == ask(b"null")[0] == ask(one(state="aborting"))[0] == 400
    many = [{"gid": str(number), "state": "submitted"} for number in range(101)]
    assert "at most 100" in ask(msgspec.json.encode({"messages": many}))[1]["message"]
    assert "twice" in ask(msgspec.json.encode({"messages": many[:1] * 2}))[1]["message"]
    assert "128" in refused(one(gid="x" * 129))
    assert "calls is empty" in refused(one(branches=[{"url": "http://b/in", "calls": []}]))
    assert "no destination" in refused(one(branches=[{"url": "http://b/in", "calls": ["ftp://b"]}]))
    assert "url is" in refused(one(branches=[{"url": "h" * 2049, "calls": [""]}]))
    large = base64.b64encode(bytes(1024 * 1024 + 1)).decode()
    assert "payload is" in refused(one(branches=[{"url": "http://b/in", "payload": large}]))
    assert coordinator.query("g") is None
