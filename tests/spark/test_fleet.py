"""The TOML of a fleet: its meaning, and its errors, each with its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.core.errors import ConfigurationError
from twophase_spark.fleet import read_fleet
from twophase_spark.locations import Role

WHOLE = """
[audit]
grace = 2.5
html = "report.html"

[[coordinator]]
name = "east"
url = "postgresql://audit:${AUDIT_PASSWORD}@db/store"

[[service]]
name = "bank-a"
url = "${BANK_A}"
producer = true

[[service]]
name = "bank-b"
url = "mysql://audit@db/b"
table = "pay.barrier"
consumer = true
urls = ["http://bank-b/in", "http://bank-b/out"]
ledger = { table = "booking", gid = "tx", key = "id" }

[[producer]]
name = "old"
url = "sqlite:///old.db"
"""


def read(folder: Path, text: str, **environment: str) -> object:
    path = folder / "audit.toml"
    path.write_text(text)
    return read_fleet(path, environment)


def test_a_fleet_is_read_with_its_secrets_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(WHOLE)

    fleet = read_fleet(
        tmp_path / "audit.toml", {"AUDIT_PASSWORD": "p@ss/w#rd", "BANK_A": "postgresql://a:b@db/bank?sslmode=require"}
    )

    assert (fleet.options.grace, fleet.options.html) == (2.5, "report.html")
    by_role = {(one.role, one.name): one for one in fleet.locations}
    assert set(by_role) == {
        (Role.COORDINATOR, "east"),
        (Role.PRODUCER, "old"),
        (Role.PRODUCER, "bank-a"),
        (Role.CONSUMER, "bank-b"),
        (Role.LEDGER, "bank-b"),
    }
    assert by_role[Role.COORDINATOR, "east"].url == "postgresql://audit:p%40ss%2Fw%23rd@db/store"
    assert by_role[Role.PRODUCER, "bank-a"].url == "postgresql://a:b@db/bank?sslmode=require"
    consumer, ledger = by_role[Role.CONSUMER, "bank-b"], by_role[Role.LEDGER, "bank-b"]
    assert (consumer.table, consumer.urls) == ("pay.barrier", ("http://bank-b/in", "http://bank-b/out"))
    assert (ledger.table, ledger.gid_column, ledger.branch_column, ledger.key_column) == (
        "booking",
        "tx",
        "branch_id",
        "id",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[audit", "is not TOML"),
        ("[audit]\ngrase = 1", "in [audit]: Object contains unknown field `grase`"),
        ('[audit]\ngrace = "long"', "in [audit], grace: Expected `float"),
        ('[[producer]]\nname = "a"\nulr = "x"', "in [[producer]] number 1: Object contains unknown field `ulr`"),
        ('[[producer]]\nname = "a"', "in [[producer]] number 1: Object missing required field `url`"),
        ('[[producer]]\nname = "a"\nurl = "${NOT_SET}"', "the environment variable NOT_SET is not set"),
        (
            '[[producer]]\nname = "a"\nurl = "redis://x"',
            "[[producer]] 'a' (number 1): --producer a: the URL must begin",
        ),
        ('[[producer]]\nname = "a"\nurl = "sqlite:///a.db#barrier"', "no # in url here"),
        ('[[service]]\nname = "a"\nurl = "sqlite:///a.db"', "set producer = true or consumer = true"),
        ('[[consumer]]\nname = "a"\nurl = "sqlite:///a.db"\ntable = "x;y"', "not a table or column name"),
        ("[[queue]]\nname = 1", "unknown field `queue`"),
    ],
)
def test_what_is_wrong_is_named_with_its_position(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, text)

    assert said in raised.value.message
    assert "audit.toml" in raised.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read"):
        read_fleet(tmp_path / "none.toml")


def test_no_secret_stands_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, '[[producer]]\nname = "a"\nurl = "redis://u:${PW}@h/x"', PW="s3cret")

    assert "s3cret" not in str(raised.value)
