"""The bank by twophase's own client and barrier.

It uses the barrier table of services that use dtm's clients. With `BANK_KEYS`, JSON, it answers signed calls alone.

`python -m tests.clients.sdk_bank serve | transfer ORDER`; databases are in `BANK_MYSQL_URL` and `BANK_POSTGRES_URL`,
for SQLAlchemy.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent import futures
from typing import Any

import grpc
import msgspec
from flask import Flask, Response, request
from google.protobuf.wrappers_pb2 import StringValue
from sqlalchemy import Engine, create_engine, text
from werkzeug.serving import make_server

from tests.clients.branches import Behaviour, Refused, end_with_the_test, say
from tests.clients.orders import PAYEE, PAYER, TABLE, Addresses, Holds, Order, Payload, Told
from twophase import Message
from twophase.barrier.branch import BranchRefused
from twophase.integrations import flask as over_http
from twophase.integrations import grpc as over_grpc

_INSERT = text("insert into movement(gid, account, amount) values (:gid, :account, :amount)")
_behaviour = Behaviour()
KEYS: dict[str, str] | None = json.loads(os.environ["BANK_KEYS"]) if "BANK_KEYS" in os.environ else None


def engines() -> dict[str, Engine]:
    """Return the engines by their names in addresses."""
    found = {name: os.environ.get(f"BANK_{name.upper()}_URL") for name in ("mysql", "postgres")}
    return {name: create_engine(url) for name, url in found.items() if url}


def transfer(order: Order) -> Told:
    """Make one transfer, and return how it ended."""
    message = Message(
        order.server,
        order.gid,
        wait_result=order.wait_result,
        concurrent=order.concurrent,
        delay=order.delay,
        check_after=order.timeout_to_fail,
        headers=order.headers,
    )
    for step in order.steps:
        payload = msgspec.json.encode(step.payload)
        if order.protocol == "grpc":
            payload = StringValue(value=payload.decode()).SerializeToString()
        message.add(f"topic://{step.topic}" if step.topic else step.action, payload)
    try:
        with message.transaction(engines()[order.store], order.check, table=TABLE) as connection:
            connection.execute(_INSERT, {"gid": order.gid, "account": PAYER, "amount": -order.amount})
            if order.ending == "business error":
                raise ValueError("there is no money")
            if order.ending == "hold before commit":
                _hold("before commit")
    except Exception as error:  # noqa: BLE001 -- whatever it is, the test reads it
        return Told(order.gid, str(error) or type(error).__name__)
    return Told(order.gid)


def _hold(where: str) -> None:
    say(Holds(where))
    end_with_the_test()


def _take(connection: Any, gid: str, branch_id: str, payload: Payload) -> None:
    try:
        _behaviour.follow(gid, branch_id, payload)
    except Refused as refusal:
        raise BranchRefused from refusal
    connection.execute(_INSERT, {"gid": gid, "account": PAYEE, "amount": payload.amount})


def application(databases: dict[str, Engine]) -> Flask:
    """Make the routes `/STORE/in` and `/STORE/check`."""
    app = Flask("bank")
    for name, engine in databases.items():
        check = over_http.check_blueprint(engine, f"/{name}/check", table=TABLE, require_identity=False, keys=KEYS)
        app.register_blueprint(check, name=name)

    @app.post("/<store>/in")
    def take(store: str) -> Response:
        payload = msgspec.json.decode(request.get_data(), type=Payload)
        gid, branch_id = request.args["gid"], request.args["branch_id"]
        return over_http.once(
            databases[store], lambda connection: _take(connection, gid, branch_id, payload), table=TABLE, keys=KEYS
        )

    return app


class _Branch(grpc.GenericRpcHandler):
    """The method `/STORE.Bank/In`."""

    def __init__(self, databases: dict[str, Engine]) -> None:
        self._methods = {f"/{name}.Bank/In": engine for name, engine in databases.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        engine = self._methods.get(str(handler_call_details.method))
        if engine is None:
            return None

        def take(body: bytes, context: grpc.ServicerContext) -> bytes:
            payload = msgspec.json.decode(StringValue.FromString(body).value, type=Payload)
            said = over_grpc.parameters(context)

            def effect(connection: Any) -> None:
                _take(connection, said["gid"], said["branch_id"], payload)

            return over_grpc.once(engine, context, effect, b"", table=TABLE)

        return grpc.unary_unary_rpc_method_handler(take)


def serve() -> None:
    """Answer until the test has ended."""
    databases = engines()
    web = make_server("127.0.0.1", 0, application(databases), threaded=True)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    verifying = [] if KEYS is None else [over_grpc.signed_calls(KEYS, *(f"/{name}.Bank/In" for name in databases))]
    rpc = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)], interceptors=verifying)
    checks = [
        over_grpc.check_handler(engine, f"/{name}.Bank/Check", table=TABLE, require_identity=False, keys=KEYS)
        for name, engine in databases.items()
    ]
    rpc.add_generic_rpc_handlers((*checks, _Branch(databases)))
    port = rpc.add_insecure_port("127.0.0.1:0")
    rpc.start()
    say(Addresses(f"http://127.0.0.1:{web.server_port}", f"127.0.0.1:{port}"))
    end_with_the_test()
    rpc.stop(None)


def main() -> None:
    """Run the command line."""
    if sys.argv[1] == "serve":
        serve()
    else:
        say(transfer(msgspec.json.decode(sys.argv[2], type=Order)))


if __name__ == "__main__":
    main()
