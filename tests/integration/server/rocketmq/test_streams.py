"""The stream of a client: questions, settings, and clients that take nothing."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from tests.support.rocketmq_port import Serving
from tests.support.rocketmq_wire import (
    HALF,
    PATIENCE_S,
    TOPIC,
    Wire,
    message,
    packed,
    settings_command,
)
from twophase.coordinator.background import end
from twophase.coordinator.queues import Question, QueueMessage
from twophase.rocketmq_wire.codes import ClientType, Code
from twophase.rocketmq_wire.descriptors import SERVICE, kind
from twophase.server.identity.caller import UNLIMITED
from twophase.server.rocketmq.caller import Client
from twophase.server.rocketmq.outbox import Outbox


async def test_a_question_goes_to_the_producer_and_has_the_body(wire: Wire) -> None:
    stream = await wire.settle()
    sent = await wire.ask("SendMessage", messages=[message(tag="paid", **HALF)])
    async with asyncio.timeout(PATIENCE_S):
        question = (await stream.read()).recover_orphaned_transaction_command
    assert question.transaction_id == sent.entries[0].transaction_id
    assert question.message.body == b"{}"
    assert question.message.system_properties.tag == "paid"
    assert question.message.system_properties.body_digest.checksum == hashlib.md5(b"{}").hexdigest().upper()
    assert question.message.user_properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_a_producer_may_name_its_group_and_others_of_it_are_asked(server: Serving, wire: Wire) -> None:
    properties = {"producer.group": "shop"}
    stream = await wire.settle(**properties)
    await wire.ask("SendMessage", messages=[message(**HALF)])
    stream.cancel()
    other = Wire(server, **{"x-mq-client-id": "other"})
    second = await other.settle(topics=(), **properties)
    async with asyncio.timeout(PATIENCE_S):
        assert (await second.read()).recover_orphaned_transaction_command.message.body == b"{}"
    await other.close()


async def test_wrong_settings_are_refused_and_the_stream_lives(wire: Wire) -> None:
    stream = wire.telemetry()
    wrong = {
        b"\xff\xff": Code.BAD_REQUEST,
        settings_command(client_type=0): Code.UNRECOGNIZED_CLIENT_TYPE,
        settings_command(client_type=ClientType.PUSH_CONSUMER): Code.BAD_REQUEST,
        settings_command(topics=("",)): Code.ILLEGAL_TOPIC,
    }
    async with asyncio.timeout(PATIENCE_S):
        for raw, code in wrong.items():
            await stream.write(raw)
            assert (await stream.read()).status.code == code
        await stream.write(settings_command())
        answer = await stream.read()
    assert answer.status.code == Code.OK
    assert answer.settings.publishing.max_body_size == 4 * 1024 * 1024


class _Deaf:
    """A stream of a client that sends settings and takes no answer."""

    def __init__(self) -> None:
        self.sent = 0
        self.answering = asyncio.Event()

    def __aiter__(self) -> _Deaf:
        return self

    async def __anext__(self) -> bytes:
        await asyncio.sleep(0)
        self.sent += 1
        return settings_command()

    def keep(self, _size: int) -> bool:
        return True

    async def send(self, _message: bytes) -> None:
        self.answering.set()
        await asyncio.Event().wait()


async def test_a_client_that_takes_no_answers_is_not_read_from(server: Serving) -> None:
    assert server.port is not None
    client = Client("me", b"JAVA", "", "", UNLIMITED, 0, "", server.port._sessions, server.port._peculiarities)
    call: Any = _Deaf()
    serving = asyncio.ensure_future(server.port._telemetry.serve(client, call, f"/{SERVICE}/Telemetry"))
    async with asyncio.timeout(PATIENCE_S):
        await call.answering.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert call.sent == 1
    await end(serving)
    assert server.queues.clients == []


class _Idle:
    """A call whose client sends commands without settings, and then no more."""

    def __init__(self, commands: int) -> None:
        self.left, self.odds = commands, 0

    def __aiter__(self) -> _Idle:
        return self

    async def __anext__(self) -> bytes:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return packed("TelemetryCommand")

    def odd(self) -> None:
        self.odds += 1

    def keep(self, _size: int) -> bool:
        return True


async def test_commands_without_settings_count_as_what_brings_nothing(server: Serving) -> None:
    assert server.port is not None
    client = Client("me", b"JAVA", "", "", UNLIMITED, 0, "", server.port._sessions, server.port._peculiarities)
    call: Any = _Idle(5)
    await asyncio.wait_for(server.port._telemetry.serve(client, call, f"/{SERVICE}/Telemetry"), PATIENCE_S)
    assert call.odds == 5


async def test_a_client_that_takes_no_questions_gets_no_more_bodies(server: Serving) -> None:
    assert server.port is not None
    session = server.port._sessions.of(UNLIMITED, "me")
    kept: list[int] = []

    def keep(size: int) -> bool:
        kept.append(size)
        return True

    stream = Outbox(keep)
    session.opened(stream)
    question = Question(QueueMessage(TOPIC, "", "1", bytes(1024 * 1024), kind="transaction"), "t", 0)
    assert [session.ask(question) for _ in range(8)] == [True] * 4 + [False] * 4

    async def taken(_: bytes) -> None:
        """The client reads."""

    writing = asyncio.ensure_future(stream.send_by(taken))
    await asyncio.wait_for(stream.empty(), PATIENCE_S)
    assert kept[-1] == 0
    assert session.ask(question)
    await end(writing)
    session.closed(stream)


async def test_a_question_that_the_budget_has_no_room_for_is_another_clients(server: Serving) -> None:
    question = Question(QueueMessage(TOPIC, "", "1", bytes(1024 * 1024), kind="transaction"), "t", 0)
    assert not Outbox(lambda size: size < 1024 * 1024).offer(question)
    assert Outbox(lambda size: size > 1024 * 1024).offer(question)


class _Talker:
    """A stream of a client that sends settings, and has room for 100 kB."""

    def __init__(self, *settings: bytes) -> None:
        self.settings, self.kept, self.most, self.heard = list(settings), 0, 0, list[bytes]()

    def __aiter__(self) -> _Talker:
        return self

    async def __anext__(self) -> bytes:
        if not self.settings:
            raise StopAsyncIteration
        return self.settings.pop(0)

    def keep(self, size: int) -> bool:
        if size < 100_000:
            self.kept = size
            self.most = max(self.most, size)
        return size < 100_000

    async def send(self, message: bytes) -> None:
        self.heard.append(message)


async def test_the_topics_of_a_producer_count_as_long_as_its_stream_lives(server: Serving) -> None:
    assert server.port is not None
    client = Client("me", b"JAVA", "", "", UNLIMITED, 0, "", server.port._sessions, server.port._peculiarities)
    few, many = (tuple(f"topic-{number}" for number in range(count)) for count in (100, 200))
    call: Any = _Talker(settings_command(few), settings_command(many), settings_command(few))
    await asyncio.wait_for(server.port._telemetry.serve(client, call, f"/{SERVICE}/Telemetry"), PATIENCE_S)
    codes = [kind("TelemetryCommand").FromString(raw).status.code for raw in call.heard]
    assert codes == [Code.OK, Code.TOO_MANY_REQUESTS, Code.OK]
    assert len(client.session.producers) == 100
    assert call.kept == 100 * 640


async def test_an_answer_to_settings_counts_until_it_is_read(server: Serving) -> None:
    assert server.port is not None
    client = Client("me", b"JAVA", "", "", UNLIMITED, 0, "", server.port._sessions, server.port._peculiarities)
    call: Any = _Talker(settings_command(x="y" * 100_000), settings_command(x="y" * 90_000))
    await asyncio.wait_for(server.port._telemetry.serve(client, call, f"/{SERVICE}/Telemetry"), PATIENCE_S)
    codes = [kind("TelemetryCommand").FromString(raw).status.code for raw in call.heard]
    assert codes == [Code.TOO_MANY_REQUESTS, Code.OK]
    assert call.most > 90_000
