"""A program around the official Python client of RocketMQ.

It reads commands as lines of JSON, answers each by a line with the command's number, and reports messages and questions
by lines of their own. The programs in other languages do the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq import (  # type: ignore[import-untyped]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

_OUT = threading.Lock()
_RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


def say(**line: Any) -> None:
    """Print a line."""
    with _OUT:
        print(json.dumps(line), flush=True)


def code_of(error: Exception) -> int:
    """Return RocketMQ's code of an error; -1 for none."""
    code = getattr(error, "code", None)
    return code if isinstance(code, int) else -1


def shown(message: Any) -> dict[str, Any]:
    """Return a message as lines have it."""
    return {
        "body": message.body.decode(),
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": message.properties,
        "group": message.message_group,
        "attempt": message.delivery_attempt,
        "corrupted": message.corrupted,
    }


class Checker(TransactionChecker):  # type: ignore[misc]
    """Answers every question with its `answer`; with `hold`, when it has another one."""

    def __init__(self, name: str, answer: str) -> None:
        self.name = name
        self._answer = answer
        self._changed = threading.Condition()

    def answer_with(self, answer: str) -> None:
        with self._changed:
            self._answer = answer
            self._changed.notify_all()

    def check(self, message: Any) -> Any:
        say(event="asked", name=self.name, answer=self._answer, **shown(message))
        with self._changed:
            self._changed.wait_for(lambda: self._answer != "hold")
            return _RESOLUTIONS[self._answer]


class Listener(MessageListener):  # type: ignore[misc]
    """Reports each message; fails as often as `failures` has for its body."""

    def __init__(self, name: str, failures: dict[str, int]) -> None:
        self.name = name
        self.failures = failures

    def consume(self, message: Any) -> Any:
        body = message.body.decode()
        fails = self.failures.get(body, 0) > 0
        if fails:
            self.failures[body] -= 1
        say(event="consumed", name=self.name, fails=fails, **shown(message))
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


class Program:
    """The clients of this process, by name."""

    def __init__(self, endpoints: str, key: str, secret: str) -> None:
        self.configuration = ClientConfiguration(endpoints, Credentials(key, secret), request_timeout=30)
        self.clients: dict[str, Any] = {}
        self.checkers: dict[str, Checker] = {}
        self.received: dict[str, Any] = {}
        self.transactions: dict[str, Any] = {}

    def producer(self, name: str, topics: list[str], answer: str = "commit") -> None:
        self.checkers[name] = Checker(name, answer)
        self.clients[name] = Producer(self.configuration, topics, checker=self.checkers[name])
        self.clients[name].startup()

    def answer(self, name: str, answer: str) -> None:
        self.checkers[name].answer_with(answer)

    def simple(self, name: str, group: str, topic: str, expression: str = "*", wait_s: int = 5) -> None:
        consumer = SimpleConsumer(self.configuration, group, {topic: FilterExpression(expression)}, wait_s)
        self.clients[name] = consumer
        consumer.startup()

    def push(self, name: str, group: str, topic: str, expression: str = "*", failures: Any = None) -> None:
        listener = Listener(name, failures or {})
        consumer = PushConsumer(self.configuration, group, listener, {topic: FilterExpression(expression)})
        self.clients[name] = consumer
        consumer.startup()

    def _message(self, topic: str, body: str, more: dict[str, Any]) -> Any:
        message = Message()
        message.topic = topic
        message.body = body.encode()
        if tag := more.get("tag"):
            message.tag = tag
        if keys := more.get("keys"):
            message.keys = keys
        for key, value in more.get("properties", {}).items():
            message.add_property(key, value)
        if group := more.get("group"):
            message.message_group = group
        if delay_ms := more.get("delay_ms"):
            # Seconds: the client puts the number there, though its text says milliseconds.
            message.delivery_timestamp = int(time.time() + delay_ms / 1000)
        return message

    def send(self, name: str, topic: str, body: str, **more: Any) -> dict[str, Any]:
        receipt = self.clients[name].send(self._message(topic, body, more))
        return {"message_id": receipt.message_id, "recall_handle": receipt.recall_handle}

    def recall(self, name: str, topic: str, handle: str) -> dict[str, Any]:
        return {"message_id": self.clients[name].recall_message(topic, handle)}

    def transact(self, name: str, topic: str, body: str, end: list[str], **more: Any) -> dict[str, Any]:
        """Send a half message, and end it by each of `end`; what fails is in the answer."""
        transaction = self.clients[name].begin_transaction()
        receipt = self.clients[name].send(self._message(topic, body, more), transaction)
        self.transactions[receipt.message_id] = transaction
        ended = self.finish(name, receipt.message_id, end)
        return {"message_id": receipt.message_id, "transaction_id": receipt.transaction_id, **ended}

    def finish(self, name: str, message_id: str, end: list[str]) -> dict[str, Any]:
        """End a transaction by each of `end`; an answer other than OK is a code."""
        errors = []
        for one in end:
            try:
                getattr(self.transactions[message_id], one)()
                errors.append(0)
            except Exception as error:  # noqa: BLE001 -- the test judges it
                errors.append(code_of(error))
        return {"errors": errors}

    def receive(self, name: str, limit: int = 16, invisible_s: int = 10) -> dict[str, Any]:
        found = self.clients[name].receive(limit, invisible_s)
        for message in found:  # as it was given out last, and as it was each time
            self.received[message.message_id] = message
            self.received[f"{message.message_id}/{message.delivery_attempt}"] = message
        return {"messages": [shown(message) for message in found]}

    def ack(self, name: str, message_id: str) -> None:
        self.clients[name].ack(self.received[message_id])

    def extend(self, name: str, message_id: str, invisible_s: int) -> None:
        self.clients[name].change_invisible_duration(self.received[message_id], invisible_s)

    def stop(self, name: str) -> None:
        self.clients.pop(name).shutdown()


def main() -> None:
    """Obey until standard input ends."""
    program = Program(*sys.argv[1:4])
    say(event="ready", name="")
    for line in sys.stdin:
        command = json.loads(line)
        threading.Thread(target=obey, args=(program, command), daemon=True).start()
    os._exit(0)  # clients that were not stopped would keep the process


def obey(program: Program, command: dict[str, Any]) -> None:
    """Carry out one command, and say how it ended.

    Where the route comes before the client waits for it, the client opens its stream in this thread, and asks for the
    thread's event loop. Only a main thread has one by itself.
    """
    asyncio.set_event_loop(asyncio.new_event_loop())
    number, what = command.pop("number"), command.pop("do")
    try:
        say(number=number, done=getattr(program, what)(**command) or {})
    except Exception as error:  # noqa: BLE001 -- the test judges it
        say(number=number, error=f"{type(error).__name__}: {error}", code=code_of(error))


if __name__ == "__main__":
    main()
