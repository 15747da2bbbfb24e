"""The public `Message`: what it accepts, and what it refuses.

A description of a message sends nothing.
"""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast
from uuid import UUID

import pytest

import twophase
from twophase import AsyncClient, AsyncMessage, Client, Message, MessageOptions, RetryPolicy
from twophase.client.identity import Identities
from twophase.core.gid import born_ms
from twophase.core.limits import BRANCHES_MAX
from twophase.core.options import Options
from twophase.errors import ConfigurationError, InvalidRequest, LimitExceeded

SERVER = "http://localhost:1"


def test_gid_is_made_with_its_birth_time() -> None:
    first, second = Message(SERVER), Message(SERVER)
    assert first.gid != second.gid
    assert born_ms(first.gid) is not None


def test_gid_of_the_application_is_kept() -> None:
    assert Message(SERVER, "order-17").gid == "order-17"


@pytest.mark.parametrize("gid", ["", "a\nb", " a", "x" * 129, "\ud800", UUID(int=1), 17])
def test_gid_that_cannot_be_is_refused(gid: Any) -> None:
    with pytest.raises(InvalidRequest):
        Message(SERVER, gid)


@pytest.mark.parametrize("url", [None, b"http://localhost:1", 5])
def test_client_of_no_text_says_so(url: Any) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ConfigurationError, match=f"url is of type {type(url).__name__}, not a text"):
            kind(url)


@pytest.mark.parametrize("timeout", [0, -1, "5", None, math.inf, math.nan, timedelta()])
def test_client_without_a_usable_timeout_says_so(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout must be seconds above zero"):
        Client(SERVER, timeout=timeout)


@pytest.mark.parametrize("options", [{"delay": 60}, {"deliver_at": datetime(1971, 1, 1, tzinfo=UTC)}])
@pytest.mark.parametrize("urls", [("queue://t", "http://b/in"), ("http://b/in", "queue://t")])
def test_a_delayed_message_is_for_queues_or_for_other_addresses(options: Any, urls: tuple[str, str]) -> None:
    first, second = urls
    message = Message(SERVER, allow_late_branches=True, **options).add(first).add(first)
    with pytest.raises(InvalidRequest, match="not to both"):
        message.add(second)
    Message(SERVER).add(first).add(second)


def test_a_time_to_deliver_at_is_kept_to_the_millisecond_and_never_early() -> None:
    at = datetime.now(UTC).replace(microsecond=123_001) + timedelta(hours=1)
    options = Message(SERVER, deliver_at=at.astimezone(timezone(timedelta(hours=-5))))._draft.options
    assert options.not_before_ms == int(at.replace(microsecond=0).timestamp()) * 1000 + 124


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), "2030-01-01T00:00:00Z", 1_893_456_000])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(at: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"deliver_at is .* datetime with a zone"):
        Message(SERVER, deliver_at=at)


def test_a_time_beyond_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="deliver_at"):
        Message(SERVER, deliver_at=datetime.now(UTC) + timedelta(days=367))


@pytest.mark.parametrize("rounds", [-1, 1.5, True, "3"])
def test_rounds_that_cannot_be_counted_are_refused(rounds: Any) -> None:
    with pytest.raises(InvalidRequest, match="max_rounds"):
        Message(SERVER, max_rounds=rounds)


@pytest.mark.parametrize("option", ["wait_result", "concurrent", "allow_late_branches", "strict"])
@pytest.mark.parametrize("value", ["false", 0, None])
def test_an_option_that_is_on_or_off_is_true_or_false(option: str, value: Any) -> None:
    options: Any = {option: value}
    with pytest.raises(InvalidRequest, match=f"{option} is {value!r}; give True or False"):
        Message(SERVER, **options)


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


@pytest.mark.parametrize("option", ["delay", "branch_timeout", "retry_interval", "check_after"])
@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "3", 1e12])
def test_time_that_cannot_be_is_refused_by_name(option: str, seconds: Any) -> None:
    with pytest.raises(InvalidRequest, match=option):
        Message(SERVER, **{option: seconds})


@pytest.mark.parametrize(
    "headers",
    [
        *({"": "x"}, {"a b": "x"}, {"a": "x\r\ny: z"}, {"a": "ü"}, {"Host": "x"}, {"content-length": "1"}),
        *({"X-Twophase-Oldest": "1"}, {"dtm-gid": "1"}, {"x_twophase_verdict": "committed"}),
        *({"x-tenant": 7}, {7: "x"}, [("x-tenant", "7")]),
    ],
)
def test_header_that_cannot_be_is_refused(headers: Any) -> None:
    with pytest.raises(InvalidRequest, match="headers"):
        Message(SERVER, headers=headers)


def test_an_unknown_acknowledgement_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="acknowledge"):
        Message(SERVER, acknowledge="never")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "server",
    ["", "localhost:36789", "ftp://x", "http://", "http://x:99999", "http://x/?a=1", "http://x y", "http://x\n"],
)
def test_server_that_cannot_be_is_refused(server: str) -> None:
    with pytest.raises(ConfigurationError):
        Client(server)


def test_server_without_a_scheme_learns_how_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"Write http://localhost:36789\.$"):
        Client("localhost:36789")
    with pytest.raises(ConfigurationError, match=r"Write http://host:port"):
        AsyncClient("ftp://x")


@pytest.mark.parametrize("server", ["eve:hunter2@b:1", "http//eve:hunter2@b:1", "ftp://eve:hunter2@b:1"])
def test_a_server_that_cannot_be_is_shown_without_its_password(server: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Client(server)

    assert "hunter2" not in str(refused.value)
    assert "b:1" in str(refused.value)


def test_a_retry_that_is_no_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"RetryPolicy\(total=30\), not 5"):
        Client(SERVER, retry=5)  # type: ignore[arg-type]


def test_check_that_is_only_a_path_learns_how_to_write_it() -> None:
    with pytest.raises(InvalidRequest, match=r"full http://host:port/path that the coordinator can reach"):
        Message(SERVER).add("http://b/1").prepare("/twophase/check")


def test_transaction_that_is_never_entered_is_warned_of() -> None:
    transaction = Message(SERVER).add("http://b/1").transaction(cast(Any, object()), check="http://a/check")
    with pytest.warns(ResourceWarning, match=r"never entered.*`with .*`async with`"):
        del transaction


@pytest.mark.parametrize("setting", [{"timeout": 0}, {"timeout": float("nan")}, {"authorization": "a\n"}])
def test_setting_that_cannot_work_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Client(SERVER, **setting)


@pytest.mark.parametrize(
    "bounds",
    [{"attempts": 0}, {"attempts": "4"}, {"total": -1}, {"total": timedelta(0)}, {"total": math.inf}, {"total": "3"}],
)
def test_a_retry_policy_that_cannot_work_is_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RetryPolicy(**bounds)


def test_barrier_table_that_could_be_sql_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Client(SERVER, barrier_table="barrier; drop table account")


@pytest.mark.parametrize(
    ("kind", "server"), [(Message, AsyncClient(SERVER)), (AsyncMessage, Client(SERVER)), (Message, None)]
)
def test_a_message_refuses_a_client_of_the_other_kind(kind: Any, server: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"takes an address or (Async)?Client"):
        kind(server)


def test_a_client_s_options_and_check_address_are_the_defaults_of_its_messages() -> None:
    options = MessageOptions(branch_timeout=5, max_rounds=3)
    client = Client(SERVER, check="http://a/check", options=options)
    message = client.message(max_rounds=4)
    assert message._draft.options == Options(request_timeout_ms=5_000, attempts_max=4, strict=True)
    assert client.message()._draft.options.attempts_max == 3
    assert message._check(client._channel, None) == "http://a/check"
    assert message._check(client._channel, "http://b/check") == "http://b/check"


@pytest.mark.parametrize("wrong", [{"options": {"delay": -1}}, {"check": "/twophase/check"}])
def test_a_client_refuses_defaults_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Client(SERVER, **wrong)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("permission", ["allow_unsafe_database", "allow_event_loop"])
def test_a_client_s_permissions_are_true_or_false(kind: type[Client | AsyncClient], permission: str) -> None:
    options: Any = {permission: "false"}
    with pytest.raises(ConfigurationError, match=f"{permission} must be True or False, not 'false'"):
        kind(SERVER, **options)


def test_a_message_without_any_check_address_names_the_remedy() -> None:
    with pytest.raises(InvalidRequest, match=r"Client\(url, check=…\)"):
        Client(SERVER).message().add("http://b/1").prepare()


def test_an_option_that_is_not_one_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(TypeError, match=r"no option 'timeout_to_fail'; its options are .*check_after"):
        Message(SERVER, timeout_to_fail=1)  # type: ignore[call-arg]


def test_repr_names_gid_and_state_but_no_payload() -> None:
    message = Message(SERVER, "order-17").add("http://b/1", "secret")
    assert repr(message) == "<Message order-17 new>"


def test_repr_of_a_coordinator_keeps_its_authorization_to_itself() -> None:
    assert "secret" not in repr(Client(SERVER, authorization="Bearer secret"))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_coordinator_shows_only_what_its_users_need(kind: type[Client | AsyncClient]) -> None:
    shown = {name for name in dir(kind(SERVER)) if not name.startswith("_")}
    assert shown == {"url", "message", "prepare_many", "submit_many", "close" if kind is Client else "aclose"}


def test_both_kinds_of_message_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Message) == public(AsyncMessage)


def test_every_option_has_its_meaning_in_the_docstring() -> None:
    described = inspect.getdoc(MessageOptions) or ""
    assert [name for name in MessageOptions.__annotations__ if f"\n{name}: " not in described] == []


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
