"""The blocking transport on real sockets.

The tests show kept connections, broken ones, bad answers, threads and forks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.recording_coordinator import CUT, RecordingCoordinator, unused_url
from twophase.client.transport.sync import SyncTransport
from twophase.client.transport.wire import HttpAnswer, Operation, TransportFailure
from twophase.http_client import blocking

Talk = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class ScriptedServer:
    """A server whose connections run the scripts in turn; the bytes read are kept."""

    def __init__(self, *talks: Talk) -> None:
        self._talks = talks
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for talk in self._talks:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the client did not wait for the rest
                return
            with connection, contextlib.suppress(OSError):  # a client may close before the end
                connection.settimeout(60)
                talk(connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def start(*talks: Talk) -> ScriptedServer:
        servers.append(ScriptedServer(*talks))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def answering(*parts: bytes) -> Talk:
    """Read one request, answer in these pieces, close."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)

    return talk


def send(transport: SyncTransport, timeout_ms: int = 60_000) -> HttpAnswer:
    return transport.send(Operation.SUBMIT, b'{"gid":"g"}', timeout_ms)


def ask(server: ScriptedServer, timeout_ms: int = 60_000) -> HttpAnswer:
    transport = SyncTransport(server.url)
    try:
        return send(transport, timeout_ms)
    finally:
        transport.close()


def test_one_connection_serves_many_requests(coordinator: RecordingCoordinator) -> None:
    transport = SyncTransport(coordinator.url)
    for _ in range(3):
        assert send(transport).status == 200
    transport.close()
    assert coordinator.connections == 1
    assert coordinator.requests[0].path == "/api/dtmsvr/submit"


def test_kept_connection_that_was_closed_is_replaced_unnoticed(serve: Callable[..., ScriptedServer]) -> None:
    server = serve(answering(OK), answering(OK))
    transport = SyncTransport(server.url)
    assert send(transport).body == b"{}"
    assert send(transport).body == b"{}"
    transport.close()


def test_kept_connections_are_all_given_up_when_one_of_them_says_nothing(coordinator: RecordingCoordinator) -> None:
    transport, released = SyncTransport(coordinator.url), threading.Event()
    _keep(transport, coordinator, 3)
    coordinator.before_answer = lambda _: _wait(released, 60)
    with pytest.raises(TransportFailure, match="timed out"):
        send(transport, timeout_ms=200)
    released.set()
    assert send(transport).status == 200
    transport.close()
    assert coordinator.connections == 4, "the host may be gone, and each of the others would wait as long"


def test_connections_that_were_idle_for_long_are_not_used_again(
    coordinator: RecordingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = SyncTransport(coordinator.url)
    _keep(transport, coordinator, 3)
    monkeypatch.setattr(blocking, "_IDLE_S_MAX", -1.0)
    assert send(transport).status == 200
    monkeypatch.undo()
    _keep(transport, coordinator, 2)
    transport.close()
    assert coordinator.connections == 5, "the new one was used again, and the older ones were not"


def test_answer_in_many_pieces_is_one_answer(serve: Callable[..., ScriptedServer]) -> None:
    answer = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\ncontent-length: 2\r\n\r\n{}"
    server = serve(answering(*(answer[index : index + 1] for index in range(len(answer)))))
    assert ask(server) == HttpAnswer(503, b"{}", "7")


def test_chunked_answer_is_put_together(serve: Callable[..., ScriptedServer]) -> None:
    server = serve(answering(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"))
    assert ask(server).body == b"{}"


def test_interim_answer_is_passed_over(serve: Callable[..., ScriptedServer]) -> None:
    server = serve(answering(b"HTTP/1.1 103 Early Hints\r\nretry-after: 9\r\n\r\n", OK))
    assert ask(server) == HttpAnswer(200, b"{}")


def test_answer_that_says_close_is_the_last_on_its_connection(serve: Callable[..., ScriptedServer]) -> None:
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
    server = serve(answering(closing), answering(OK))
    transport = SyncTransport(server.url)
    send(transport)
    send(transport)
    transport.close()


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{", b"SSH-2.0-OpenSSH\r\n", b"\xff" * 100],
    ids=["nothing", "half", "another protocol", "rubbish"],
)
def test_answer_that_is_none_is_a_failure(serve: Callable[..., ScriptedServer], answer: bytes) -> None:
    with pytest.raises(TransportFailure):
        ask(serve(answering(answer)))


def test_answer_without_end_is_cut_off(serve: Callable[..., ScriptedServer]) -> None:
    def flood(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n")
        try:
            while True:
                connection.sendall(b"x" * 65536)
        except OSError:
            return

    with pytest.raises(TransportFailure, match="more than"):
        ask(serve(flood))


def test_silent_coordinator_is_given_up_in_time(serve: Callable[..., ScriptedServer]) -> None:
    released = threading.Event()
    server = serve(lambda _: released.wait(60) and None)
    began = time.monotonic()
    with pytest.raises(TransportFailure, match="timed out"):
        ask(server, timeout_ms=200)
    assert time.monotonic() - began < 50, "the server says nothing for 60 s"
    released.set()


def test_trickling_coordinator_is_given_up_in_time(serve: Callable[..., ScriptedServer]) -> None:
    released = threading.Event()

    def trickle(connection: socket.socket) -> None:
        try:
            while not released.wait(0.02):
                connection.sendall(b"x: y\r\n")
        except OSError:
            return

    def talk(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        trickle(connection)

    with pytest.raises(TransportFailure, match="timed out"):
        ask(serve(talk), timeout_ms=200)
    released.set()


@pytest.fixture
def swallowing() -> Iterator[tuple[str, int]]:
    """Return an address that answers no attempt to connect, because its queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as opened:
        address = listener.getsockname()
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address


def _resolve(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> SyncTransport:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    return SyncTransport("http://several.example:1")


def test_an_address_that_swallows_packets_uses_its_share_of_the_time(
    coordinator: RecordingCoordinator, swallowing: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = urlsplit(coordinator.url)
    coordinator.before_answer = lambda _: _wait(threading.Event(), 0.2)  # what it takes must be left
    transport = _resolve(monkeypatch, swallowing, (answers.hostname or "", answers.port or 0))
    assert send(transport, timeout_ms=3000).status == 200
    transport.close()


def test_a_name_with_many_addresses_that_swallow_packets_is_given_up_in_time(
    swallowing: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    with pytest.raises(TransportFailure, match="timed out"):
        send(_resolve(monkeypatch, *[swallowing] * 20), timeout_ms=300)
    assert time.monotonic() - began < 3, "each of 20 addresses had the whole time"


def test_an_address_of_a_family_that_this_machine_has_not_is_passed_over(
    coordinator: RecordingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = urlsplit(coordinator.url)
    known = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (answers.hostname or "", answers.port or 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_UNSPEC, *known[1:]), known])
    transport = SyncTransport("http://several.example:1")
    assert send(transport).status == 200
    transport.close()


def test_no_listener_is_a_failure() -> None:
    with pytest.raises(TransportFailure, match="cannot connect"):
        send(SyncTransport(unused_url()))


def test_answer_cut_on_a_fresh_connection_is_a_failure(coordinator: RecordingCoordinator) -> None:
    coordinator.tell("submit", CUT)
    transport = SyncTransport(coordinator.url)
    with pytest.raises(TransportFailure):
        send(transport)
    assert coordinator.operations == ["submit"]


def test_threads_never_share_a_connection(coordinator: RecordingCoordinator) -> None:
    transport = SyncTransport(coordinator.url)
    everybody = threading.Barrier(4)
    coordinator.before_answer = lambda _: _meet(everybody)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(send(transport).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    transport.close()
    assert answers == [200] * 4
    assert coordinator.connections == 4


def test_child_after_a_fork_opens_connections_of_its_own(coordinator: RecordingCoordinator) -> None:
    transport = SyncTransport(coordinator.url)
    send(transport)
    child = os.fork()
    if child == 0:
        # The parent's connection is still good: only the check for a fork keeps the child from using it.
        succeeded = False
        try:
            succeeded = send(transport).status == 200
        finally:
            os._exit(0 if succeeded else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert send(transport).status == 200
    transport.close()
    assert coordinator.connections == 2


def _keep(transport: SyncTransport, coordinator: RecordingCoordinator, connections: int) -> None:
    """Leave this number of connections idle, by as many requests at a time."""
    everybody = threading.Barrier(connections)
    coordinator.before_answer = lambda _: _meet(everybody)
    threads = [threading.Thread(target=send, args=(transport,)) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    coordinator.before_answer = lambda _: None


def _wait(released: threading.Event, at_most_s: float) -> None:
    released.wait(at_most_s)


def _meet(everybody: threading.Barrier) -> None:
    everybody.wait(60)
