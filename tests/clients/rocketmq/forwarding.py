"""A proxy between an official client and the port, as meshes of services have one.

It passes every call on, remembers producers' calls with their answers, and does what networks do: it loses the answer
to a message that was sent, or sends the message again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final, Literal, NamedTuple

import grpc
import grpc.aio

from tests.clients.rocketmq.serving import Serving
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.descriptors import SERVICE, kind

_REMEMBERED: Final = frozenset({"SendMessage", "EndTransaction"})
_OWN: Final = ("grpc-", "user-agent")
"""The beginnings of the names that gRPC itself puts into a call's metadata."""

Fault = Literal["lose", "repeat"]


class Passed(NamedTuple):
    """A call that reached the server.

    `message_id`: of its first message. `code`: of the answer, also of one that the client did not get.
    """

    method: str
    message_id: str
    code: Code


class Forwarding(grpc.GenericRpcHandler):
    """The proxy, at `address`.

    `faults`: what happens to the next calls of SendMessage, one each.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.address = ""
        self.passed: list[Passed] = []
        self.faults: deque[Fault] = deque()
        self._channel = channel

    def sent(self) -> list[str]:
        """Return the ids of the messages that reached the server, in order."""
        return [one.message_id for one in self.passed if one.method == "SendMessage"]

    def ended(self, message_id: str) -> list[Code]:
        """Return the answers to the decisions about a message, in order."""
        return [one.code for one in self.passed if (one.method, one.message_id) == ("EndTransaction", message_id)]

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method; see gRPC."""
        path: str = handler_call_details.method
        method = path.removeprefix(f"/{SERVICE}/")
        if method == "Telemetry":
            return grpc.stream_stream_rpc_method_handler(self._streams(path))
        if method == "ReceiveMessage":
            return grpc.unary_stream_rpc_method_handler(self._streams(path, takes_many=False))
        return grpc.unary_unary_rpc_method_handler(self._call(path, method))

    def _streams(self, path: str, *, takes_many: bool = True) -> Any:
        call: Any = self._channel.stream_stream(path) if takes_many else self._channel.unary_stream(path)

        async def forward(asked: Any, context: Any) -> AsyncIterator[bytes]:
            async for part in call(asked, **_more(context)):
                yield part

        return forward

    def _call(self, path: str, method: str) -> Any:
        call: Any = self._channel.unary_unary(path)

        async def forward(asked: bytes, context: Any) -> bytes:
            fault = self.faults.popleft() if method == "SendMessage" and self.faults else None
            answer: bytes = await call(asked, **_more(context))
            self._remember(method, asked, answer)
            if fault == "lose":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was lost")
            if fault == "repeat":
                answer = await call(asked, **_more(context))
                self._remember(method, asked, answer)
            return answer

        return forward

    def _remember(self, method: str, asked: bytes, answer: bytes) -> None:
        if method in _REMEMBERED:
            request, code = kind(f"{method}Request").FromString(asked), kind(f"{method}Response").FromString(answer)
            is_send = method == "SendMessage"
            message_id = request.messages[0].system_properties.message_id if is_send else request.message_id
            self.passed.append(Passed(method, message_id, Code(code.status.code)))


def _more(context: Any) -> dict[str, Any]:
    metadata = tuple((name, value) for name, value in context.invocation_metadata() if not name.startswith(_OWN))
    return {"metadata": metadata, "timeout": context.time_remaining()}


@contextlib.asynccontextmanager
async def forwarding(server: Serving) -> AsyncIterator[Forwarding]:
    """Run a proxy in front of a server that has started, for the block's time."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        one = Forwarding(channel)
        proxy = grpc.aio.server()
        proxy.add_generic_rpc_handlers((one,))
        one.address = f"127.0.0.1:{proxy.add_insecure_port('127.0.0.1:0')}"
        await proxy.start()
        try:
            yield one
        finally:
            await proxy.stop(None)
