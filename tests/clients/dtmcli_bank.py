"""The bank by Python's published dtmcli: its message, barrier and check-back.

MariaDB is the only database that it can use.

`python -m tests.clients.dtmcli_bank serve | transfer ORDER`; the database is in `BANK_MYSQL_URL`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pymysql
from dtmcli.barrier import BranchBarrier
from dtmcli.msg import Msg
from dtmcli.utils import DTMFailureError, gen_gid
from pymysql.cursors import Cursor

from tests.clients.branches import Behaviour, Refused, end_with_the_test, say
from tests.clients.orders import PAYEE, PAYER, Addresses, Holds, Order, Payload, Told

_INSERT = "insert into movement(gid, account, amount) values (%s, %s, %s)"


@contextmanager
def cursor() -> Iterator[Cursor]:
    """Open a connection of its own; dtmcli commits it."""
    at = urlsplit(os.environ["BANK_MYSQL_URL"])
    connection = pymysql.connect(
        host=at.hostname,
        port=at.port or 3306,
        user=at.username,
        password=at.password or "",
        database=at.path.removeprefix("/"),
    )
    try:
        yield connection.cursor()
    finally:
        if connection.open:
            connection.close()


def transfer(order: Order) -> Told:
    """Make one transfer, and return how it ended."""
    if not order.gid:
        order = msgspec.structs.replace(order, gid=gen_gid(order.server))
    message = Msg(order.server, order.gid)
    for step in order.steps:
        message.add(msgspec.to_builtins(step.payload), f"topic://{step.topic}" if step.topic else step.action)
    options: Any = message.trans_base  # for these it has no methods
    options.concurrent = order.concurrent
    options.timeout_to_fail = order.timeout_to_fail
    options.branch_headers = order.headers
    if order.delay:
        options.custom_data = msgspec.json.encode({"delay": order.delay}).decode()
    if order.wait_result:
        message.set_wait_result()
    try:
        with cursor() as own:
            message.do_and_submit(order.check, lambda barrier: _pay(own, barrier, order))
    except Exception as error:  # noqa: BLE001 -- it raises plain Exception; whatever it is, the test reads it
        return Told(order.gid, str(error) or type(error).__name__)
    return Told(order.gid)


def _pay(own: Cursor, barrier: BranchBarrier, order: Order) -> None:
    """Run the local transaction: it takes the money, and fails as ordered."""
    if order.ending == "asked first":
        try:
            barrier.query_prepared(own)
        except DTMFailureError:
            """So it must answer: rolled back."""

    def work(inside: Cursor) -> None:
        inside.execute(_INSERT, (order.gid, PAYER, -order.amount))
        match order.ending:
            case "business error":
                raise ValueError("there is no money")
            case "failure":
                raise DTMFailureError("FAILURE")
            case "hold before commit":
                _hold("before commit")
            case "commit fails":
                _sever(inside)

    barrier.call(own, work)
    if order.ending == "hold after commit":
        _hold("after commit")
    if order.ending == "error after commit":
        raise ValueError("the commit is said to have failed")


def _hold(where: str) -> None:
    say(Holds(where))
    end_with_the_test()


def _sever(inside: Cursor) -> None:
    """Let the database end this connection, so that its commit fails."""
    inside.execute("select connection_id()")
    row = inside.fetchone()
    assert row is not None
    with cursor() as other:
        other.execute(f"kill {int(row[0])}")


class _Handler(BaseHTTPRequestHandler):
    """The routes `/mysql/in` and `/mysql/check`."""

    protocol_version = "HTTP/1.1"
    behaviour = Behaviour()

    def do_GET(self) -> None:
        self._answer(lambda own, barrier: barrier.query_prepared(own))

    def do_POST(self) -> None:
        payload = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])), type=Payload)

        def take(own: Cursor, barrier: BranchBarrier) -> None:
            self.behaviour.follow(barrier.gid, barrier.branch_id, payload)
            barrier.call(own, lambda inside: inside.execute(_INSERT, (barrier.gid, PAYEE, payload.amount)))

        self._answer(take)

    def _answer(self, work: Any) -> None:
        said = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        barrier = BranchBarrier(said["trans_type"], said["gid"], said["branch_id"], said["op"])
        # A check-back of twophase's own client is answered by a header too: status and body could be a proxy's.
        explicit = "barrier" in said
        try:
            with cursor() as own:
                work(own, barrier)
        except (DTMFailureError, Refused):
            self._reply(409, b'{"dtm_result":"FAILURE"}', "rolled_back" if explicit else "")
        except Exception as error:  # noqa: BLE001 -- the coordinator comes again
            self._reply(500, str(error).encode())
        else:
            self._reply(200, b'{"dtm_result":"SUCCESS"}', "committed" if explicit else "")

    def _reply(self, status: int, body: bytes, verdict: str = "") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if verdict:
            self.send_header("x-twophase-verdict", verdict)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class's name
        """Log nothing."""


def serve() -> None:
    """Answer until the test has ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(Addresses(f"http://127.0.0.1:{server.server_address[1]}"))
    end_with_the_test()


def main() -> None:
    """Run the command line."""
    if sys.argv[1] == "serve":
        serve()
    else:
        say(transfer(msgspec.json.decode(sys.argv[2], type=Order)))


if __name__ == "__main__":
    main()
