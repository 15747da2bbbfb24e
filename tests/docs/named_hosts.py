"""A runner of a module with a name service of its own.

So documentation is executed exactly as it is printed.

`NAMED_HOSTS='{"bank-b:80": 40123}' python -m tests.docs.named_hosts MODULE ARGUMENTS…`: a connection to host `bank-b`,
port 80, reaches port 40123 of this machine. Each host gets a loopback address on which no server listens, so a program
that resolves first and connects to the address later is led there too. No fixed port is needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import socket
import sys
from typing import Any

import uvloop

PORTS: dict[str, int] = json.loads(os.environ.get("NAMED_HOSTS", "{}"))
_HOSTS = sorted({place.rpartition(":")[0] for place in PORTS})
_ADDRESSES = {host: f"127.77.0.{number}" for number, host in enumerate(_HOSTS, start=1)}
_REAL = {
    (alias, int(port)): real
    for (host, _, port), real in ((place.rpartition(":"), real) for place, real in PORTS.items())
    for alias in (host, _ADDRESSES[host])
}


def _place(host: Any, port: Any) -> tuple[Any, Any]:
    return ("127.0.0.1", _REAL[host, port]) if (host, port) in _REAL else (host, port)


def _name_in_loop(loop_class: Any) -> None:
    connect, resolve = loop_class.create_connection, loop_class.getaddrinfo

    async def create_connection(self: Any, factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        return await connect(self, factory, *_place(host, port), **more)

    async def getaddrinfo(self: Any, host: Any, port: Any, **more: Any) -> Any:
        return await resolve(self, _ADDRESSES.get(host, host), port, **more)

    loop_class.create_connection, loop_class.getaddrinfo = create_connection, getaddrinfo


def _name_in_sockets() -> None:
    connect_socket, resolve = socket.socket.connect, socket.getaddrinfo

    def connect(self: Any, address: Any) -> None:
        connect_socket(self, _place(*address) if self.family is socket.AF_INET else address)

    def getaddrinfo(host: Any, *more: Any, **named: Any) -> Any:
        return resolve(_ADDRESSES.get(host, host), *more, **named)

    socket.socket.connect, socket.getaddrinfo = connect, getaddrinfo  # type: ignore[method-assign]


if __name__ == "__main__":
    _name_in_sockets()
    _name_in_loop(asyncio.BaseEventLoop)
    _name_in_loop(uvloop.Loop)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
