"""The TOML of a fleet: its meaning, and its errors, each with its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.core.errors import ConfigurationError
from twophase_spark.fleet import options_of, read_fleet
from twophase_spark.inputs.plan import plan_of, require_folders
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

SOUND = '[[coordinator]]\nurl = "sqlite:///s.db"\n[[producer]]\nname = "a"\nurl = "sqlite:///a.db"\n'
SERVICE = '[[service]]\nname = "a"\nurl = "sqlite:///a.db"\nconsumer = true\n'


def read(folder: Path, text: str, **environment: str) -> object:
    path = folder / "audit.toml"
    path.write_text(text)
    return read_fleet(path, environment)


def test_a_fleet_is_read_with_its_secrets_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(WHOLE)

    fleet = read_fleet(
        tmp_path / "audit.toml", {"AUDIT_PASSWORD": "p@ss/w#rd", "BANK_A": "postgresql://a:b@db/bank?sslmode=require"}
    )

    assert fleet.options == {"grace": 2.5, "html": "report.html"}
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
        ("[audit]\ngrase = 1", "in [audit]: There is no option 'grase' of [audit]. Did you mean grace?"),
        ('[audit]\ngrace = "long"', "in [audit], grace: Expected `float"),
        ("[audit]\ngrace = -1", "in [audit], grace: Expected `float` >= 0"),
        ("[audit]\nmemory = 1", "in [audit], memory: Expected `int` >= 512"),
        ("[audit]\ncores = 0", "in [audit], cores: Expected `int` >= 1"),
        ('[audit]\nsince = "soon"', "in [audit], since: 'soon' is no time such as 2026-11-01"),
        ("[audit]\nhtml = 1", "in [audit], html: Expected `str`, got `int`"),
        (
            '[[producer]]\nname = "a"\nulr = "x"',
            "in [[producer]] number 1: There is no option 'ulr' of [producer]. Did",
        ),
        ('[[consumer]]\nname = "a"\nwhere = "x"', "no option 'where' of [consumer]. Known: name, url, table, urls."),
        (SERVICE + 'ledger = { table = "t", agres = "x" }', "of [service.ledger]. Did you mean agrees?"),
        (SERVICE + 'ledger = { table = "t", rows_per_effect = 0 }', "rows_per_effect is a whole number from 1 to 9999"),
        (SERVICE + 'ledger = { table = "t", where = "a; b" }', "where: a condition holds no ? and no ;."),
        (SERVICE + 'check_urls = ["http://a/"]', "check_urls means nothing without producer = true"),
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


def test_the_command_wins_over_the_file_and_the_file_over_what_is_usual(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text("[audit]\ngrace = 2.5\nlate = 7\nsince = 1970-01-02\n" + SOUND)

    plan = plan_of({"grace": 1}, {}, tmp_path / "audit.toml", cores=3)

    assert (plan.grace_s, plan.late_s, plan.overlap_s, plan.cores, plan.since_ms) == (1, 7, 900, 3, 86_400_000)


@pytest.mark.parametrize("asked", [True, False], ids=["asked for", "in the file"])
def test_an_overlap_means_nothing_without_a_state(tmp_path: Path, asked: bool) -> None:
    config = tmp_path / "audit.toml"
    config.write_text(SOUND if asked else "[audit]\noverlap = 900\n" + SOUND)
    given = {"overlap": 900} if asked else {}

    with pytest.raises(ConfigurationError, match="Option overlap is not one of an audit without state"):
        plan_of(given, {}, config, cores=1)
    assert plan_of({**given, "state": tmp_path / "state"}, {}, config, cores=1).overlap_s == 900


def test_findings_go_to_a_folder_that_is_there_or_to_an_object_store(tmp_path: Path) -> None:
    def folders_of(place: str) -> None:
        (tmp_path / "audit.toml").write_text(f'[audit]\nfindings = "{place}"\n' + SOUND)
        require_folders(plan_of({}, {}, tmp_path / "audit.toml", cores=1))

    folders_of(str(tmp_path / "findings"))
    folders_of("s3://bucket/audits/findings")
    with pytest.raises(ConfigurationError, match="there is no folder"):
        folders_of(str(tmp_path / "none" / "findings"))


@pytest.mark.parametrize(("name", "value"), [("grace", -1), ("cores", 0), ("since", "soon"), ("every", "x")])
def test_what_is_asked_for_has_the_bounds_of_the_file(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"^TP-7000: {name}: "):
        options_of({name: value})
