"""The sources of settings and their order; a wrong setting is refused by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from twophase.core.errors import ConfigurationError
from twophase.server.settings import AllowedDestination, Settings, describe, load, unknown_variables


def test_defaults_are_the_documented_ones() -> None:
    settings = load({}, {})
    assert (settings.store, settings.host, settings.http_port) == ("sqlite:///twophase.db", "127.0.0.1", 36_789)


def test_the_nearest_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('host = "file"\nhttp_port = 1\ndrain_timeout_ms = 7\n')
    environment = {"TWOPHASE_HOST": "environment", "TWOPHASE_HTTP_PORT": "2"}
    settings = load({"host": "line", "http_port": None}, environment, file)
    assert (settings.host, settings.http_port, settings.drain_timeout_ms) == ("line", 2, 7)


def test_every_setting_has_a_variable_a_default_and_a_description() -> None:
    described = list(describe())
    assert [one.name for one in described] == list(Settings.__struct_fields__)
    for one in described:
        assert one.variable == f"TWOPHASE_{one.name.upper()}"
        assert one.description
        assert one.default


def test_every_setting_can_be_given_as_text() -> None:
    defaults = Settings()
    for one in describe():
        text = "" if one.default == '""' else one.default
        assert msgspec.structs.asdict(load({}, {one.variable: text})) == msgspec.structs.asdict(defaults)


@pytest.mark.parametrize(
    ("command_line", "environment", "named"),
    [
        ({"http_port": 70_000}, {}, "http_port"),
        ({"http_port": -1}, {}, "http_port"),
        ({"nosuch": 1}, {}, "nosuch"),
        ({"store": ""}, {}, "store"),
        ({"drain_timeout_ms": 0}, {}, "drain_timeout_ms"),
        ({}, {"TWOPHASE_ACTIVE_MAX": "many"}, "TWOPHASE_ACTIVE_MAX"),
        ({"retry_first_ms": 10, "retry_cap_ms": 5}, {}, "retry_first_ms"),
        ({"check_back_first_ms": 10, "check_back_cap_ms": 5}, {}, "check_back_first_ms"),
        ({"in_flight_max": 1}, {}, "in_flight_per_destination_max"),
        ({"attempts_max": -1}, {}, "attempts_max"),
        ({"strict": "perhaps"}, {}, "strict"),
        ({"alert_after": 0}, {}, "alert_after"),
        ({"trace_headers": "x y"}, {}, "trace_headers: 'x y' cannot be a header"),
        ({"trace_headers": "data-bin"}, {}, "trace_headers: 'data-bin' cannot"),
        ({"trace_headers": "traceparent,Authorization"}, {}, "trace_headers: 'authorization' belongs to one request"),
        ({"trace_headers": ",".join(f"x{n}" for n in range(17))}, {}, "trace_headers: 17 names, at most 16"),
    ],
)
def test_what_cannot_work_is_refused_by_name(
    command_line: dict[str, object], environment: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load(command_line, environment)


@pytest.mark.parametrize(
    ("value", "meant"), [("0", 0), (36_790, 36_790), ("36790", 36_790), ("off", "off"), ("auto", "auto")]
)
def test_the_grpc_port_is_a_number_or_a_word(value: object, meant: object) -> None:
    assert load({"grpc_port": value}, {}).grpc_port == meant


@pytest.mark.parametrize("value", ["on", "70000", -1, ""])
def test_a_grpc_port_that_is_neither_is_refused_with_the_words(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"grpc_port: .* is none of auto, off and no port"):
        load({"grpc_port": value}, {})


@pytest.mark.parametrize("content", ["http_port = ", "nosuch = 1", "http_port = '1x'", "http_port = 1.5"])
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"wrong\.toml"):
        load({}, {}, file)


def test_settings_reach_the_parts_they_are_for() -> None:
    settings = load({"idle_timeout_ms": 1_500, "retry_cap_ms": 9_000, "waiting_max": 3, "request_timeout_ms": 44}, {})
    assert settings.timeouts().idle_s == 1.5
    coordinator = settings.coordinator()
    assert (coordinator.delivery.cap_ms, coordinator.waiting_max, coordinator.request_timeout_ms) == (9_000, 3, 44)


def test_a_refused_value_is_shown_with_what_there_is_to_choose_from() -> None:
    with pytest.raises(ConfigurationError, match=r"http_port: expected `int`, got `str`, not 'abc'"):
        load({"http_port": "abc"}, {})
    with pytest.raises(ConfigurationError, match=r"'verbose' is none of debug, info, warning, error"):
        load({"log_level": "verbose"}, {})


def test_a_misspelt_variable_is_noticed() -> None:
    assert unknown_variables({"TWOPHASE_HOTS": "x", "TWOPHASE_FAILPOINT": "y", "TWOPHASE_HOST": "z"}) == [
        "TWOPHASE_HOTS"
    ]


def test_variables_of_our_other_parts_are_no_misspelt_settings() -> None:
    others = ["TWOPHASE_BARRIER_URL", "TWOPHASE_CONFIG", "TWOPHASE_FAILPOINT"]
    assert unknown_variables(dict.fromkeys(others, "x")) == []


def test_destinations_come_from_the_file_or_as_json(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[[destinations]]\nname = "bank-b"\nurl = "http://bank-b/in"\n')
    allowed = (AllowedDestination("bank-b", "http://bank-b/in"),)
    assert load({}, {}, file).destinations == allowed
    assert load({}, {"TWOPHASE_DESTINATIONS": '[{"name":"bank-b","url":"http://bank-b/in"}]'}).destinations == allowed


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("http://bank-b", "destinations: "),
        ('[{"name":"b"}]', "destinations: .*url"),
        ('[{"name":"b","url":"http://b","key":"k"}]', "destinations: .*key"),
        ('[{"name":"b","url":"b"}]', "destinations: 'b' has no scheme"),
        ('[{"name":"b","url":"http://b"},{"name":"b","url":"http://c"}]', "destinations: two entries have one name"),
    ],
)
def test_a_destination_that_cannot_be_one_is_refused(text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load({}, {"TWOPHASE_DESTINATIONS": text})
