"""A coordinator that keeps nothing; `python -m benchmarks.load` compares with it.

It is the ceiling of this machine. It has the server's port, decoder and HTTP client, and nothing between them: it
answers prepare and submit at once, and calls every branch once, whatever the branch answers. The difference between
its speed and the server's is the price of the server's promises. It keeps none of them; run it for measuring only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import time
from collections.abc import Sequence

import uvloop
from starlette.types import Receive, Scope, Send

from twophase.coordinator.state.active_message import OnReply, Owner, Reply
from twophase.core.hooks import WallClock
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import Outcome
from twophase.server.codecs.decode import Decoder
from twophase.server.http_port.listener import Listener

_HEADERS = (("Content-Type", "application/json"),)
_TIMEOUT_MS = 3000
_SUBMITTED = Reply(None, State.SUBMITTED)
_ABORTED = Reply(None, State.FAILED)


class NullCoordinator:
    """The listener's `Requests`, all of them accepted."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def prepare(self, message: Message, on_reply: OnReply, *_: object, **__: object) -> None:  # noqa: ARG002
        """Reply that the message was prepared at this moment."""
        on_reply(Reply(None, State.PREPARED, time.time_ns() // 1_000_000))

    def submit(self, message: Message, on_reply: OnReply, *_: object, **__: object) -> None:
        """Call every branch, once."""
        on_reply(_SUBMITTED)
        for index, branch in enumerate(message.branches, 1):
            parameters = f"gid={message.gid}&trans_type=msg&branch_id={index:02}&op=action"
            self._client.request("POST", branch.url, _HEADERS, branch.payload, _TIMEOUT_MS, _ignore, 0, parameters)

    def abort(self, gid: str, on_reply: OnReply, owner: Owner | None = None) -> None:  # noqa: ARG002 -- the protocol's
        """Reply that the message is aborted; nothing was kept."""
        on_reply(_ABORTED)


def _ignore(_outcome: Outcome) -> None:
    """Ignore the outcome of a branch call."""


def _refused(_code: str) -> None:
    """Ignore the refusal; no counter of refusals exists here."""


async def _pong(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer every other route."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"msg":"pong"}'})


async def serve(host: str, port: int, grpc_port: int | None = None) -> None:
    """Serve until a signal arrives; over gRPC, too, when it has a port."""
    client = HttpClient(connections_per_host=256, connections_max=4096, queue_per_host=1 << 20)
    coordinator, decoder = NullCoordinator(client), Decoder(lambda _url: None)
    listener = Listener(coordinator, decoder, _pong, on_refused=_refused)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    urls = await listener.start(host, port)
    door = None
    if grpc_port is not None:
        from twophase.server.api.dtm_grpc import GrpcApi  # noqa: PLC0415 -- an extra, and only where it is requested

        door = GrpcApi(coordinator, decoder, WallClock(), on_refused=_refused)
        urls.append(await door.start(host, grpc_port))
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    print(f"twophase null server ready: {' '.join(urls)} (keeps nothing)", flush=True)
    await stop.wait()
    listener.stop()
    if door is not None:
        await door.stop()
    await client.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m benchmarks.servers.null`."""
    parser = argparse.ArgumentParser(description="Answer everything, keep nothing: the ceiling for benchmarks.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--http-port", type=int, default=0)
    parser.add_argument("--grpc-port", type=int)
    options = parser.parse_args(arguments)
    uvloop.run(serve(options.host, options.http_port, options.grpc_port))


if __name__ == "__main__":
    main()
