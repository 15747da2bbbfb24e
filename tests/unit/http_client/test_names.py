"""Look-ups of names: in few enough threads, shared, remembered for seconds."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.waiting import until
from twophase.http_client import names as names_module
from twophase.http_client.names import Addresses, Names

FOUND: Addresses = [(int(socket.AF_INET), "10.0.0.1")]
MOVED: Addresses = [(int(socket.AF_INET), "10.0.0.2")]


class Resolver:
    """A resolver that the test controls: a host answers, fails, or hangs."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Addresses | OSError | threading.Event] = {}
        self.hanging = threading.Event()

    def __call__(self, host: str, port: object, **_: object) -> list[tuple[object, ...]]:
        self.asked.append(host)
        answer = self.answers.get(host, self.hanging)
        if isinstance(answer, threading.Event):
            answer.wait(60)
            answer = FOUND
        if isinstance(answer, OSError):
            raise answer
        return [(family, socket.SOCK_STREAM, 6, "", (address, 0)) for family, address in answer]

    async def until_asked(self, count: int) -> None:
        await until(lambda: len(self.asked) >= count)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    one = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", one)
    yield one
    one.hanging.set()


async def test_an_answer_is_remembered_and_shared(resolver: Resolver) -> None:
    resolver.answers["bank-b"] = FOUND
    names = Names()
    assert await asyncio.gather(*(names.addresses("bank-b") for _ in range(5))) == [FOUND] * 5
    assert await names.addresses("bank-b") == FOUND
    assert resolver.asked == ["bank-b"]


async def test_a_name_is_asked_for_again_when_its_answer_is_old_or_was_of_no_use(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver.answers["bank-b"] = FOUND
    names = Names()
    await names.addresses("bank-b")
    resolver.answers["bank-b"] = MOVED
    names.forget("bank-b")
    names.forget("a name never asked for")
    assert await names.addresses("bank-b") == MOVED
    monkeypatch.setattr(names_module, "FRESH_S", 0.0)
    resolver.answers["bank-b"] = FOUND
    assert await names.addresses("bank-b") == FOUND


async def test_a_failure_is_remembered_for_a_while(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver.answers["bank-b"] = socket.gaierror(socket.EAI_AGAIN, "try again")
    names = Names()
    for _ in range(3):
        with pytest.raises(OSError, match="try again"):
            await names.addresses("bank-b")
    assert resolver.asked == ["bank-b"]
    monkeypatch.setattr(names_module, "FAILED_S", 0.0)
    resolver.answers["bank-b"] = FOUND
    assert await names.addresses("bank-b") == FOUND


async def test_an_old_answer_serves_while_the_resolver_fails_or_hangs_and_not_when_it_denies_the_name(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "FRESH_S", 0.0)
    monkeypatch.setattr(names_module, "FAILED_S", 0.0)
    names = Names()
    resolver.answers["bank-b"] = FOUND
    await names.addresses("bank-b")
    resolver.answers["bank-b"] = socket.gaierror(socket.EAI_AGAIN, "try again")
    assert await names.addresses("bank-b") == FOUND
    resolver.answers["bank-b"] = socket.gaierror(socket.EAI_NONAME, "not known")
    with pytest.raises(OSError, match="not known"):
        await names.addresses("bank-b")
    monkeypatch.setattr(names_module, "PATIENCE_S", 0.05)
    del resolver.answers["bank-b"]
    assert await names.addresses("bank-b") == FOUND
    assert names.under_way == 1


async def test_an_answer_that_is_too_old_serves_no_more(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "FRESH_S", 0.0)
    monkeypatch.setattr(names_module, "STALE_S", 0.0)
    names = Names()
    resolver.answers["bank-b"] = FOUND
    await names.addresses("bank-b")
    resolver.answers["bank-b"] = socket.gaierror(socket.EAI_AGAIN, "try again")
    with pytest.raises(OSError, match="try again"):
        await names.addresses("bank-b")


async def test_names_of_one_domain_that_hang_take_two_threads_and_delay_no_other(resolver: Resolver) -> None:
    names = Names(threads_max=4)
    slow = [asyncio.create_task(names.addresses(f"a{number}.slow.test")) for number in range(40)]
    await resolver.until_asked(2)
    resolver.answers["bank-b"] = FOUND
    async with asyncio.timeout(30):
        assert await names.addresses("bank-b") == FOUND
    assert [host for host in resolver.asked if host != "bank-b"] == ["a0.slow.test", "a1.slow.test"]
    resolver.hanging.set()
    assert await asyncio.gather(*slow) == [FOUND] * 40
    assert names.under_way == 0


async def test_a_hundred_names_of_fifty_domains_that_hang_delay_no_other(resolver: Resolver) -> None:
    names = Names()
    slow = [asyncio.create_task(names.addresses(f"a{number}.slow{number % 50}.test")) for number in range(100)]
    await asyncio.sleep(0)
    resolver.answers["bank-b"] = FOUND
    async with asyncio.timeout(30):
        assert await names.addresses("bank-b") == FOUND
    assert names.under_way == 100
    resolver.hanging.set()
    assert await asyncio.gather(*slow) == [FOUND] * 100


async def test_domains_that_were_slow_lately_share_a_part_of_the_threads(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "SLOW_S", 0.0)
    names = Names(threads_max=4, slow_threads_max=2)
    hosts = [f"host.domain{number}.test" for number in range(3)]
    resolver.answers = dict.fromkeys(hosts, FOUND)
    for host in hosts:
        await names.addresses(host)
    resolver.answers = {"bank-b": FOUND}
    slow = [asyncio.create_task(names.addresses(f"another.domain{number}.test")) for number in range(3)]
    await resolver.until_asked(5)
    async with asyncio.timeout(30):
        assert await names.addresses("bank-b") == FOUND
    assert resolver.asked[3:] == ["another.domain0.test", "another.domain1.test", "bank-b"]
    resolver.hanging.set()
    assert await asyncio.gather(*slow) == [FOUND] * 3


async def test_a_domain_that_was_slow_once_is_like_others_after_a_while(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "SLOW_S", 0.0)
    monkeypatch.setattr(names_module, "SLOW_KEPT_S", 0.0)
    names = Names(slow_threads_max=0)
    for host in ("a.domain.test", "b.domain.test"):
        resolver.answers[host] = FOUND
        async with asyncio.timeout(30):
            assert await names.addresses(host) == FOUND


@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        ("a.slow.test", "b.slow.test", "a.quick.test"),
        ("a.b.co.uk", "c.b.co.uk", "a.quick.co.uk"),
        ("a.one.svc.cluster.local.", "b.one.svc.cluster.local", "a.two.svc.cluster.local"),
        ("x.a.prod.eu.internal", "y.a.prod.eu.internal", "b.prod.eu.internal"),
    ],
)
async def test_names_share_the_threads_of_their_domain(resolver: Resolver, first: str, second: str, other: str) -> None:
    names = Names(threads_per_parent_max=1)
    slow = [asyncio.create_task(names.addresses(host)) for host in (first, second)]
    await resolver.until_asked(1)
    resolver.answers[other] = FOUND
    async with asyncio.timeout(30):
        assert await names.addresses(other) == FOUND
    assert second not in resolver.asked
    resolver.hanging.set()
    assert await asyncio.gather(*slow) == [FOUND] * 2


async def test_a_machine_without_a_free_thread_is_an_ordinary_failure(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    names = Names()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="can't start new thread"):
            await names.addresses("a.test")
    assert names.under_way == 0


async def test_no_more_threads_look_up_than_allowed(resolver: Resolver) -> None:
    names = Names(threads_max=3)
    slow = [asyncio.create_task(names.addresses(f"host.domain{number}.test")) for number in range(9)]
    await resolver.until_asked(3)
    assert names.under_way == 3
    resolver.hanging.set()
    assert await asyncio.gather(*slow) == [FOUND] * 9


async def test_a_look_up_that_waits_is_dropped_with_its_last_asker(resolver: Resolver) -> None:
    names = Names(threads_max=1)
    first = asyncio.create_task(names.addresses("a.test"))
    await resolver.until_asked(1)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await names.addresses("b.test")
    resolver.hanging.set()
    assert await first == FOUND
    assert await names.addresses("c.test") == FOUND
    assert resolver.asked == ["a.test", "c.test"]


async def test_memory_is_bounded(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "SLOW_S", 0.0)
    names = Names(names_max=2)
    for host in ("a.test", "b.test", "c.test", "a.test"):
        resolver.answers[host] = FOUND
        await names.addresses(host)
    assert resolver.asked == ["a.test", "b.test", "c.test", "a.test"]
    assert names.slow_domains == 2


async def test_a_name_that_cannot_be_encoded_is_an_ordinary_failure(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(host: str, port: object, **_: object) -> list[tuple[object, ...]]:
        raise UnicodeError("label too long")

    monkeypatch.setattr(socket, "getaddrinfo", refuses)
    with pytest.raises(OSError, match="label too long"):
        await Names().addresses("bank-b")
