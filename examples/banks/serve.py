"""Serve one of the banks: `python -m examples.banks.serve MODULE:APP PORT`.

It prints a line when it listens.
"""

from __future__ import annotations

import importlib
import socket
import sys

import uvicorn


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            print(f"ready http://{host}:{port}", flush=True)


def main() -> None:
    """Import the application, listen, and serve until a signal."""
    module_name, _, attribute = sys.argv[1].partition(":")
    application = getattr(importlib.import_module(module_name), attribute)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    config = uvicorn.Config(application, log_level="error", timeout_graceful_shutdown=5)
    _Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
