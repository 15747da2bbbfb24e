"""The bad network on which the fault tests depend."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.servers.ports import nobodys_port
from tests.servers.proxy import Cut, Proxy, Way


class _Echo:
    """A server that sends back what it receives, and keeps it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard: list[bytes] = []
        self.news = threading.Condition()
        self.closed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def until_heard(self, wanted: bytes) -> bool:
        with self.news:
            return self.news.wait_for(lambda: wanted in self.heard, timeout=60)

    def until_closed(self, count: int) -> bool:
        with self.news:
            return self.news.wait_for(lambda: self.closed >= count, timeout=60)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self.listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while part := client.recv(4096):
                with self.news:
                    self.heard.append(part)
                    self.news.notify_all()
                client.sendall(part)
        with self.news:
            self.closed += 1
            self.news.notify_all()


@pytest.fixture
def echo() -> Iterator[_Echo]:
    server = _Echo()
    yield server
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()


@pytest.fixture
def proxy(echo: _Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.listener.getsockname()[1]) as one:
        yield one


@contextlib.contextmanager
def _client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as one:
        yield one


def _silent(client: socket.socket) -> bool:
    client.settimeout(0.05)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)
    return False


def _says(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(4096)


def test_several_clients_are_passed_on_side_by_side(proxy: Proxy) -> None:
    with _client(proxy) as one, _client(proxy) as other:
        assert _says(one, b"one") == b"one"
        assert _says(other, b"other") == b"other"
        assert proxy.connections == 2


def test_a_partition_lets_nothing_through_and_closes_nothing_then_all_arrives(proxy: Proxy, echo: _Echo) -> None:
    with _client(proxy) as client, _client(proxy) as leaver:
        assert _says(client, b"before") == b"before"
        assert _says(leaver, b"hello") == b"hello"
        proxy.partition()
        client.sendall(b"within")
        assert proxy.holds.wait(10)
        leaver.close()
        assert _silent(client)
        assert b"within" not in echo.heard
        assert echo.closed == 0

        proxy.heal()

        assert client.recv(4096) == b"within"
        assert echo.until_closed(1)


def test_a_connection_made_during_a_partition_hears_nothing_until_it_heals(proxy: Proxy) -> None:
    proxy.partition()
    with _client(proxy) as client:
        client.sendall(b"anybody?")
        assert _silent(client)
        proxy.heal()
        assert client.recv(4096) == b"anybody?"


def test_one_direction_alone_can_be_held(proxy: Proxy, echo: _Echo) -> None:
    with _client(proxy) as client:
        proxy.partition(Way.REPLIES)
        client.sendall(b"request")
        assert echo.until_heard(b"request")
        assert _silent(client)
        proxy.heal()
        assert client.recv(4096) == b"request"


def test_a_cut_resets_every_connection_and_new_ones_are_welcome(proxy: Proxy, echo: _Echo) -> None:
    with _client(proxy) as client:
        assert _says(client, b"before") == b"before"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.until_closed(1)
    with _client(proxy) as client:
        assert _says(client, b"again") == b"again"


def test_who_is_refused_is_reset_until_it_heals(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionResetError), _client(proxy) as client:
        client.recv(1)
    proxy.heal()
    with _client(proxy) as client:
        assert _says(client, b"again") == b"again"


def test_a_delay_is_kept_in_each_direction(proxy: Proxy) -> None:
    proxy.delay(50)
    with _client(proxy) as client:
        began = time.monotonic()
        assert _says(client, b"slow") == b"slow"
        assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("cut", Cut)
def test_the_request_that_holds_the_bytes_is_cut_around_once_and_no_other(proxy: Proxy, echo: _Echo, cut: Cut) -> None:
    with _client(proxy) as other, _client(proxy) as client:
        assert _says(other, b"before") == b"before"
        proxy.cut_around(b"gid-7", cut)
        client.sendall(b"x gid-7 x")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert proxy.has_cut.wait(10)
        assert echo.until_closed(1)
        assert (b"x gid-7 x" in echo.heard) is (cut is not Cut.BEFORE_REQUEST)
        assert _says(other, b"gid-7 again") == b"gid-7 again"


def test_a_server_that_is_gone_resets_the_client(proxy: Proxy, echo: _Echo) -> None:
    with Proxy("127.0.0.1", nobodys_port()) as before, pytest.raises(ConnectionResetError), _client(before) as client:
        client.recv(1)
