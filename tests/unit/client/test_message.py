"""The public `Message`: what it accepts, and what it refuses.

A description of a message sends nothing.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest

import twophase
from twophase import AsyncTwoPhase, ConfigurationError, InvalidRequest, LimitExceeded, Message, TwoPhase
from twophase.client.endpoints import MessageOptions
from twophase.client.identity import Identities
from twophase.core.gid import born_ms
from twophase.core.limits import BRANCHES_MAX

SERVER = "http://localhost:1"


def test_gid_is_made_with_its_birth_time() -> None:
    first, second = Message(SERVER), Message(SERVER)
    assert first.gid != second.gid
    assert born_ms(first.gid) is not None


def test_gid_of_the_application_is_kept() -> None:
    assert Message(SERVER, "order-17").gid == "order-17"


@pytest.mark.parametrize("gid", ["", "a\nb", " a", "x" * 129, "\ud800"])
def test_gid_that_cannot_be_is_refused(gid: str) -> None:
    with pytest.raises(InvalidRequest):
        Message(SERVER, gid)


def test_a_time_to_deliver_at_is_kept_to_the_millisecond_and_never_early() -> None:
    at = datetime.now(UTC).replace(microsecond=123_001) + timedelta(hours=1)
    options = Message(SERVER, deliver_at=at.astimezone(timezone(timedelta(hours=-5))))._draft.options
    assert options.not_before_ms == int(at.replace(microsecond=0).timestamp()) * 1000 + 124


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), "2030-01-01T00:00:00Z", 1_893_456_000])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(at: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"deliver_at is .* datetime with a zone"):
        Message(SERVER, deliver_at=at)


def test_a_time_beyond_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="next_cron_time"):
        Message(SERVER, deliver_at=datetime.now(UTC) + timedelta(days=367))


@pytest.mark.parametrize("attempts", [-1, 1.5, True, "3"])
def test_attempts_that_cannot_be_counted_are_refused(attempts: Any) -> None:
    with pytest.raises(InvalidRequest, match="attempts_max"):
        Message(SERVER, attempts_max=attempts)


def test_branches_are_kept_in_order_with_their_payloads() -> None:
    message = Message(SERVER).add("http://b/1", {"a": 1}).add("http://b/2", b"raw").add("topic://t")
    assert [(branch.url, branch.payload) for branch in message.branches] == [
        ("http://b/1", b'{"a":1}'),
        ("http://b/2", b"raw"),
        ("topic://t", b""),
    ]


@pytest.mark.parametrize("url", ["", "bank-b/in", "http://b/ö", "http://b/a b", "http://b/\r\nx: y"])
def test_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="url"):
        Message(SERVER).add(url)


@pytest.mark.parametrize("payload", [object(), b"\xff", {"a": {1, object()}}])
def test_payload_that_cannot_travel_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidRequest, match="payload"):
        Message(SERVER).add("http://b/1", payload)


def test_payload_that_contains_itself_is_refused() -> None:
    payload: list[Any] = []
    payload.append(payload)
    with pytest.raises(InvalidRequest, match="payload"):
        Message(SERVER).add("http://b/1", payload)


def test_limits_hold_before_anything_is_sent() -> None:
    message = Message(SERVER)
    with pytest.raises(LimitExceeded, match="url"):
        message.add("http://b/" + "x" * 2048)
    with pytest.raises(LimitExceeded, match="payload"):
        message.add("http://b/1", b"x" * (1024 * 1024 + 1))
    for _ in range(BRANCHES_MAX.value):
        message.add("http://b/1")
    with pytest.raises(LimitExceeded, match="branches"):
        message.add("http://b/1")


@pytest.mark.parametrize("option", ["delay", "request_timeout", "retry_interval", "timeout_to_fail"])
@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "3", 1e12])
def test_time_that_cannot_be_is_refused_by_name(option: str, seconds: Any) -> None:
    with pytest.raises(InvalidRequest, match=option):
        Message(SERVER, **{option: seconds})


@pytest.mark.parametrize(
    "headers",
    [
        *({"": "x"}, {"a b": "x"}, {"a": "x\r\ny: z"}, {"a": "ü"}, {"Host": "x"}, {"content-length": "1"}),
        *({"X-Twophase-Oldest": "1"}, {"dtm-gid": "1"}, {"x_twophase_verdict": "committed"}),
    ],
)
def test_header_that_cannot_be_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="headers"):
        Message(SERVER, headers=headers)


def test_unknown_durability_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="durability"):
        Message(SERVER, durability="never")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "server",
    ["", "localhost:36789", "ftp://x", "http://", "http://x:99999", "http://x/?a=1", "http://x y", "http://x\n"],
)
def test_server_that_cannot_be_is_refused(server: str) -> None:
    with pytest.raises(ConfigurationError):
        TwoPhase(server)


def test_server_without_a_scheme_is_told_how_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"Write http://localhost:36789\.$"):
        TwoPhase("localhost:36789")
    with pytest.raises(ConfigurationError, match=r"Write http://host:port"):
        AsyncTwoPhase("ftp://x")


def test_check_that_is_only_a_path_is_told_how_to_write_it() -> None:
    with pytest.raises(InvalidRequest, match=r"full http://host:port/path that the coordinator can reach"):
        Message(SERVER).add("http://b/1").prepare("/twophase/check")


def test_transaction_that_is_never_entered_is_warned_of() -> None:
    transaction = Message(SERVER).add("http://b/1").transaction(cast(Any, object()), check="http://a/check")
    with pytest.warns(ResourceWarning, match="never entered"):
        del transaction


@pytest.mark.parametrize(
    "setting", [{"request_timeout": 0}, {"attempts": 0}, {"patience": -1}, {"authorization": "a\n"}]
)
def test_setting_that_cannot_work_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        TwoPhase(SERVER, **setting)


def test_barrier_table_that_could_be_sql_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        TwoPhase(SERVER, barrier_table="barrier; drop table account")


def test_message_of_the_other_colour_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"a… methods"):
        AsyncTwoPhase(SERVER).message().add("http://b/1").submit()


async def test_message_of_the_other_colour_is_refused_with_the_remedy_on_asyncio() -> None:
    with pytest.raises(ConfigurationError, match="without a…"):
        await TwoPhase(SERVER).message().add("http://b/1").asubmit()


def test_repr_names_gid_and_state_but_no_payload() -> None:
    message = Message(SERVER, "order-17").add("http://b/1", "secret")
    assert repr(message) == "<Message order-17 new>"


def test_repr_of_a_coordinator_keeps_its_authorization_to_itself() -> None:
    assert "secret" not in repr(TwoPhase(SERVER, authorization="Bearer secret"))


@pytest.mark.parametrize("kind", [TwoPhase, AsyncTwoPhase])
def test_a_coordinator_shows_only_what_its_users_need(kind: type[TwoPhase | AsyncTwoPhase]) -> None:
    shown = {name for name in dir(kind(SERVER)) if not name.startswith("_")}
    assert shown == {"url", "message", "close" if kind is TwoPhase else "aclose"}


def test_a_coordinators_message_takes_the_options_of_a_message() -> None:
    parameters = inspect.signature(Message.__init__).parameters.values()
    taken = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert list(MessageOptions.__annotations__) == taken


def test_public_names_are_all_there() -> None:
    assert all(hasattr(twophase, name) for name in twophase.__all__)
    assert twophase.__all__ == sorted(twophase.__all__)


def test_import_loads_nothing_heavy() -> None:
    program = "import sys, twophase; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sqlalchemy", "asyncio", "starlette", "uvicorn", "twophase.server.app"} & set(loaded)


def test_identity_goes_with_its_engine() -> None:
    class Engine:
        pass

    identities = Identities()
    engine = Engine()
    identities.remember(engine, "barrier", "7f")
    assert identities.get(engine, "barrier") == "7f"
    assert identities.get(engine, "other.barrier") is None
    assert identities.get(Engine(), "barrier") is None


class Slotted:
    """An engine without weak references, like asyncpg's Pool."""

    __slots__ = ()

    def acquire(self) -> None:
        """Make it a pool by this method's presence."""


def test_engine_that_cannot_be_referred_to_weakly_is_remembered_too() -> None:
    identities = Identities()
    pool = Slotted()
    identities.remember(pool, "barrier", "7f")
    identities.remember(pool, "other.barrier", "8f")
    assert identities.get(pool, "barrier") == "7f"
    assert identities.get(pool, "other.barrier") == "8f"
    assert identities.get(Slotted(), "barrier") is None


def test_only_the_last_few_of_such_engines_are_held_on_to() -> None:
    identities = Identities()
    pools = [Slotted() for _ in range(20)]
    for pool in pools:
        identities.remember(pool, "barrier", "7f")
    known = [identities.get(pool, "barrier") for pool in pools]
    assert known == [None] * 12 + ["7f"] * 8


def test_connection_that_a_pool_lent_is_not_held_on_to() -> None:
    class Lent:
        __slots__ = ()

    identities, pool = Identities(), Slotted()
    identities.remember(pool, "barrier", "7f")
    lent = [Lent() for _ in range(20)]
    for connection in lent:
        identities.remember(connection, "barrier", "7f")
    assert [identities.get(connection, "barrier") for connection in lent] == [None] * 20
    assert identities.get(pool, "barrier") == "7f"


def test_alias_of_a_database_is_read_each_time() -> None:
    identities = Identities()
    identities.remember("default", "barrier", "7f")
    assert identities.get("default", "barrier") is None
