"""Requests of queues' clients over HTTP, as any program may send them."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tests.support.identities import token_of
from twophase.core import queue_api
from twophase.http_client.client import HttpClient

PATIENCE_S = 60


class QueueApi:
    """One client of a server's HTTP port.

    Arguments:
        port: of the server.
        client: its name for itself.
        token: the name of its token.
    """

    def __init__(self, port: int, client: str = "me", token: str = "") -> None:
        self.client = client
        self._base = f"http://127.0.0.1:{port}"
        self._http = HttpClient(response_bytes_max=32 << 20)
        self._headers = [("content-type", "application/json")]
        if token:
            self._headers.append(("authorization", f"Bearer {token_of(token)}"))

    async def ask(self, path: str, **fields: Any) -> tuple[int, Any]:
        """Return status and answer."""
        answer = await self._http.fetch(
            "POST", f"{self._base}{path}", self._headers, msgspec.json.encode(fields), timeout_ms=PATIENCE_S * 1000
        )
        return answer.status, msgspec.json.decode(answer.body)

    async def done(self, path: str, **fields: Any) -> Any:
        """Return the answer to a request that is carried out."""
        status, answer = await self.ask(path, **fields)
        assert status == 200, answer
        return answer

    async def refusal(self, path: str, **fields: Any) -> tuple[int, str]:
        """Return status and code of a request that is refused."""
        status, answer = await self.ask(path, **fields)
        return status, answer.get("code", "")

    async def send(self, address: str, body: str = "{}", gid: str = "") -> None:
        """Submit a plain message with one branch."""
        fields = {"gid": gid or address, "trans_type": "msg", "steps": [{"action": address}], "payloads": [body]}
        await self.done("/api/dtmsvr/submit", **fields)

    async def receive(self, **fields: Any) -> list[Any]:
        """Take messages of `orders` for `billing`."""
        wanted = {"group": "billing", "topic": "orders", "client": self.client, "limit": 32, **fields}
        return list((await self.done(queue_api.RECEIVE_PATH, **wanted))["messages"])

    async def of(self, path: str, receipt: str, **fields: Any) -> tuple[int, str]:
        """Ask about one delivery; return status and code."""
        wanted = {"group": "billing", "topic": "orders", "receipt": receipt, **fields}
        return await self.refusal(path, **wanted)

    async def outcomes(self, path: str, *receipts: str, **fields: Any) -> list[str]:
        """Ask about several deliveries; return the code of each."""
        wanted = {"group": "billing", "topic": "orders", "receipts": receipts, **fields}
        return [one["code"] for one in (await self.done(path, **wanted))["results"]]

    async def half(self, address: str = "queue://orders?id=1", body: str = "{}", **fields: Any) -> str:
        """Send a half message; return its transaction id."""
        wanted = {"group": "shop", "client": self.client, "address": address, "body": encoded(body), **fields}
        return str((await self.done(queue_api.HALF_PATH, **wanted))["transaction_id"])

    async def decide(self, transaction_id: str, decision: str, **fields: Any) -> tuple[int, str]:
        """Decide about a half message; return status and code."""
        wanted = {"transaction_id": transaction_id, "decision": decision, "client": self.client, **fields}
        return await self.refusal(queue_api.DECIDE_PATH, **wanted)

    async def questions(self, **fields: Any) -> list[Any]:
        """Wait for questions to the producers `shop`."""
        wanted = {"group": "shop", "client": self.client, **fields}
        return list((await self.done(queue_api.QUESTIONS_PATH, **wanted))["questions"])

    async def close(self) -> None:
        """Close its connections, and with them what is under way."""
        await self._http.close()


def encoded(body: str) -> str:
    """Return a body as the wire has it."""
    return b64encode(body.encode()).decode()


@contextlib.asynccontextmanager
async def queue_api_of(port: int, client: str = "me", token: str = "") -> AsyncIterator[QueueApi]:
    """A client for the block's time."""
    api = QueueApi(port, client, token)
    try:
        yield api
    finally:
        await api.close()
