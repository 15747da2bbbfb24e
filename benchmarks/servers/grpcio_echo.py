"""The same echo by grpcio, the gRPC library of Python.

It is the ceiling of a server that leaves gRPC to the usual library: its methods run in threads, which takes less of a
processor than its event loop.
"""

from __future__ import annotations

import signal
import threading
from concurrent import futures
from typing import Final

import grpc

from twophase.rocketmq_wire.descriptors import SERVICE

_THREADS: Final = 8


def _echo(message: bytes, _context: grpc.ServicerContext) -> bytes:
    return message


def serve() -> None:
    """Serve until a signal arrives."""
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS))
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(_echo) for name in ("SendMessage", "EndTransaction")
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
    bound = server.add_insecure_port("127.0.0.1:0")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    print(f"echo server ready: grpc://127.0.0.1:{bound} (keeps nothing)", flush=True)
    stop.wait()
    server.stop(None)


if __name__ == "__main__":
    serve()
