"""The URLs of the command line: their meaning, and refusals before any start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twophase.core.errors import ConfigurationError
from twophase_spark import audit
from twophase_spark.inputs.plan import plan_of
from twophase_spark.locations import (
    PARAMETERS,
    Location,
    Role,
    parameters_of,
    parse_coordinator,
    parse_named,
    require_distinct,
)


def test_a_driver_in_the_scheme_is_dropped() -> None:
    assert parse_named(Role.PRODUCER, "a=postgresql+psycopg://me@db/bank").url == "postgresql://me@db/bank"
    assert parse_named(Role.PRODUCER, "a=mariadb+pymysql://me@db/bank").engine == "mysql"


def test_a_table_and_the_branches_of_a_consumer_stand_behind_the_hash() -> None:
    location = parse_named(
        Role.CONSUMER, "b=postgresql://db/bank?sslmode=require#shop.barrier?urls=http://b/&urls=http://c/"
    )

    assert location.url == "postgresql://db/bank?sslmode=require"
    assert (location.table, location.urls) == ("shop.barrier", ("http://b/", "http://c/"))


def test_several_coordinators_may_be_named() -> None:
    assert [parse_coordinator(text).name for text in ("sqlite:///a.db", "east=sqlite:///b.db")] == [
        "coordinator",
        "east",
    ]


@pytest.mark.parametrize(
    ("role", "text", "said"),
    [
        (Role.PRODUCER, "sqlite:///a.db", "NAME=URL"),
        (Role.PRODUCER, "a b=sqlite:///a.db", "NAME=URL"),
        (Role.PRODUCER, "a=redis://x", "must begin with"),
        (Role.PRODUCER, "a=/tmp/a.db", "must begin with"),
        (Role.PRODUCER, "a=sqlite://a.db", "sqlite:///relative.db"),
        (Role.PRODUCER, "a=sqlite:///a.db#x;drop table y", "not a table or column name"),
        (Role.LEDGER, "a=sqlite:///a.db", "name the table"),
        (Role.LEDGER, "a=sqlite:///a.db#t?gid=1;--", "not a table or column name"),
        (
            Role.LEDGER,
            "a=sqlite:///a.db#t?colour=red",
            "--ledger a: There is no option 'colour' of a ledger. Known: gid",
        ),
        (Role.LEDGER, "a=sqlite:///a.db#t?agress=1", "Did you mean agrees?"),
        (Role.LEDGER, "a=sqlite:///a.db#t?where=x&where=y", "Option where is given 2 times"),
        (Role.LEDGER, "a=sqlite:///a.db#t?rows_per_effect=0", "whole number from 1 to 9999"),
    ],
)
def test_a_wrong_location_is_refused_with_what_is_expected(role: Role, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_named(role, text)
    assert said in raised.value.message


MEANINGLESS = [
    *((role, f"{name}=1") for role in (Role.PRODUCER, Role.CONSUMER) for name in parameters_of(Role.LEDGER)),
    (Role.LEDGER, "urls=http://b/"),
    *((Role.COORDINATOR, f"{option.name}=1") for option in PARAMETERS),
]


@pytest.mark.parametrize(("role", "given"), MEANINGLESS)
def test_a_parameter_is_refused_where_it_means_nothing(role: Role, given: str) -> None:
    name, _, _ = given.partition("=")
    text = f"a=sqlite:///a.db#{'' if role is Role.COORDINATOR else 't'}?{given}"
    texts = {role: [text]}

    with pytest.raises(ConfigurationError) as raised:
        plan_of({}, texts, None, cores=1)
    for_whom = "producer, consumer" if name == "urls" else "ledger"
    assert f"--{role} a: Option {name} is not one of a {role}; it is for {for_whom}." in raised.value.message
    assert (raised.value.code, raised.value.remedy) == ("TP-7000", ConfigurationError.remedy)


@pytest.mark.parametrize("condition", ["where=1", "rows_per_effect=2", "agrees=true"])
def test_the_python_interface_refuses_a_parameter_that_means_nothing(condition: str) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    with pytest.raises(ConfigurationError, match="is not one of a consumer; it is for ledger") as raised:
        audit(session, ["sqlite:///x.db"], consumers=[f"b=sqlite:///b.db#barrier?{condition}"])
    assert raised.value.code == "TP-7000"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:s3cr@h/db",
        "postgresql://me:s3cr@h/db?sslmode=require",
        "a=postgresql://me:p#s3cr@h/db",
        "a=postgresql://me:p#t?s3cr=x@h/db",
        "a=postgresql://me:p#t?gid=s3cr@h/db",
    ],
)
def test_no_piece_of_a_password_is_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_named(Role.PRODUCER, text)
    assert "s3cr" not in raised.value.message


def test_a_coordinator_has_no_table() -> None:
    with pytest.raises(ConfigurationError, match="fixed names"):
        parse_coordinator("sqlite:///a.db#message")


@pytest.mark.parametrize("texts", [("a=sqlite:///1.db", "a=sqlite:///2.db"), ("a=sqlite:///1.db", "b=sqlite:///1.db")])
def test_one_name_or_one_database_twice_is_refused(texts: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="give it once"):
        require_distinct([parse_named(Role.CONSUMER, text) for text in texts])


def test_services_may_share_a_ledger_of_which_each_has_its_own_rows() -> None:
    ledger = "sqlite:///1.db#ledger"

    require_distinct([parse_named(Role.LEDGER, f"{name}={ledger}?where=tenant%3D'{name}'") for name in ("a", "b")])
    require_distinct([parse_named(Role.LEDGER, f"{name}={ledger}?gid={name}_gid") for name in ("a", "b")])
    with pytest.raises(ConfigurationError, match="give it once"):
        require_distinct([parse_named(Role.LEDGER, f"{name}={ledger}?where=amount>0") for name in ("a", "b")])


def test_one_file_under_two_paths_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each effect in it would be a duplicate."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.db").symlink_to(tmp_path / "1.db")

    for other in (f"sqlite:///{tmp_path / '1.db'}", "sqlite:///./1.db", "sqlite:///link.db"):
        with pytest.raises(ConfigurationError, match="give it once"):
            require_distinct([parse_named(Role.CONSUMER, text) for text in ("a=sqlite:///1.db", f"b={other}")])


def test_one_database_in_two_roles_is_accepted() -> None:
    both: list[Location] = [parse_named(role, "a=sqlite:///1.db") for role in (Role.PRODUCER, Role.CONSUMER)]

    require_distinct(both)


def test_a_url_is_taken_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password on the command line is shown by the list of processes."""
    url = "postgresql://audit:s3cret@db/bank"
    monkeypatch.setenv("BANK_URL", url)
    secret = tmp_path / "url"
    secret.write_text(f"{url}\n")
    secret.chmod(0o600)

    for reference in ("env:BANK_URL", f"file:{secret}"):
        ledger = parse_named(Role.LEDGER, f"bank={reference}#ledger?gid=tx")
        assert (ledger.url, ledger.table, ledger.gid_column) == (url, "ledger", "tx")
        assert parse_coordinator(reference).url == url


def test_a_reference_to_no_url_shows_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_URL", "s3cret://x#y")
    secret = tmp_path / "url"
    secret.write_text("sqlite:///x.db")
    secret.chmod(0o644)

    for reference in ("env:BANK_URL", "env:NO_SUCH", f"file:{secret}"):
        with pytest.raises(ConfigurationError) as refused:
            parse_named(Role.PRODUCER, f"bank={reference}")
        assert "s3cret" not in str(refused.value)


def test_no_part_of_a_password_with_an_at_sign_is_taken_for_a_host() -> None:
    with pytest.raises(ConfigurationError, match=r"an @ inside of a URL's login is written %40") as refused:
        parse_named(Role.PRODUCER, "bank-a=postgresql://eve:a@hush@db/bank")

    assert "hush" not in str(refused.value)
    assert parse_named(Role.PRODUCER, "bank-a=postgresql://eve:a%40hush@db/bank").engine == "postgresql"
