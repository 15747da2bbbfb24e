"""The sources of settings and their order; a wrong setting is refused by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from twophase.core.errors import ConfigurationError
from twophase.core.signature import key_of
from twophase.server.destinations import AllowedDestination
from twophase.server.setting_sources import load, unknown_variables
from twophase.server.setting_table import describe
from twophase.server.settings import Settings


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
        ({"queue_retention_bytes": -1}, {}, "queue_retention_bytes"),
        ({"queue_retention_bytes": 1_000_000, "retention_ms": 0}, {}, "queue_retention_bytes: retention_ms is 0"),
        ({"bytes_under_way_max": 1024 * 1024}, {}, "bytes_under_way_max: must be at least"),
        ({"answer_bytes_max": 100 * 1024 * 1024}, {}, "bytes_under_way_max: must be at least"),
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


def test_three_owners_leave_places_for_calls_to_others() -> None:
    assert 3 * Settings().in_flight_per_owner_max < Settings().in_flight_max


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
    others = ["TWOPHASE_BARRIER_URL", "TWOPHASE_CONFIG", "TWOPHASE_FAILPOINT", "TWOPHASE_TOKEN"]
    others += ["TWOPHASE_CA", "TWOPHASE_CLIENT_CERTIFICATE", "TWOPHASE_CLIENT_KEY"]
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
        ('[{"name":"b","url":"http://b","secret":"k"}]', "destinations: .*secret"),
        ('[{"name":"b","url":"http://b","key":"plain","key_id":"k"}]', "b: key must be env:NAME or file:PATH"),
        ('[{"name":"b","url":"http://b","key":"env:NONE"}]', "b: key and key_id belong together"),
        ('[{"name":"b","url":"http://b","key_id":"k"}]', "b: key and key_id belong together"),
        ('[{"name":"b","url":"http://b","key":"env:NONE","key_id":"k"}]', "b: env:NONE: there is no such"),
        ('[{"name":"b","url":"http://b","key":"env:HOME","key_id":"k k"}]', "b: the key id"),
        ('[{"name":"b","url":"http://b","key":"file:/dev/null","key_id":"k"}]', "b: file:/dev/null: there is nothing"),
        ('[{"name":"b","url":"http://b","signed_verdicts":true}]', "b: signed_verdicts needs key"),
        ('[{"name":"b","url":"http://b","ca":"ca.pem"}]', "b: ca and client_certificate need an https"),
        ('[{"name":"b","url":"https://b","client_key":"k.pem"}]', "b: client_key needs client_certificate"),
        ('[{"name":"b","url":"http://b","headers":{"a":"env:NONE"}}]', "b: env:NONE"),
        ('[{"name":"b","url":"http://b","headers":{"content-length":"1"}}]', "b: headers: 'content-length'"),
        ('[{"name":"b","url":"http://b","headers":{"x-twophase-oldest":"1"}}]', "b: headers: 'x-twophase-oldest'"),
        ('[{"name":"b","url":"grpc://b:1","headers":{"x!":"1"}}]', "b: headers: "),
        ('[{"name":"b","url":"http://b","in_flight":4096}]', "an in_flight is greater than in_flight_max"),
        (
            '[{"name":"b","url":"https://b/1","in_flight":1},{"name":"c","url":"https://b/2","in_flight":2}]',
            "https://b:443 has two entries with different in_flight",
        ),
        (
            '[{"name":"b","url":"https://b/1","ca":"a"},{"name":"c","url":"https://b/2","ca":"b"}]',
            "https://b:443 has two entries with different ca",
        ),
        (
            '[{"name":"b","url":"http://b/in"},{"name":"c","url":"http://b/in/","headers":{"a":"1"}}]',
            "http://b:80/in/ has two entries with different key, signed_verdicts or headers",
        ),
        (
            '[{"name":"b","url":"http://b","headers":{"a":"1"}},{"name":"c","url":"http://B:80"}]',
            "http://b:80 has two entries with different key, signed_verdicts or headers",
        ),
        ('[{"name":"b","url":"b"}]', "destinations: 'b' has no scheme"),
        ('[{"name":"b","url":"http://b"},{"name":"b","url":"http://c"}]', "destinations: two entries have one name"),
    ],
)
def test_a_destination_that_cannot_be_one_is_refused(text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load({}, {"TWOPHASE_DESTINATIONS": text})


def test_entries_of_one_address_may_repeat_what_its_calls_carry() -> None:
    text = (
        '[{"name":"b","url":"http://b/in","headers":{"a":"1"}},{"name":"c","url":"http://b/in/","headers":{"a":"1"}}]'
    )
    assert len(load({}, {"TWOPHASE_DESTINATIONS": text}).destinations) == 2


def test_the_secrets_of_a_destination_are_looked_up_and_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_KEY", "0123456789abcdef")
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text("Bearer t0ken\n")
    file = tmp_path / "s.toml"
    file.write_text(
        '[[destinations]]\nname = "bank-b"\nurl = "https://bank-b/in"\nkey = "env:BANK_KEY"\nkey_id = "2026-11"\n'
        f'headers = {{ authorization = "file:{tmp_path / "token"}" }}\nin_flight = 3\nsigned_verdicts = true\n'
    )
    settings = load({}, {}, file)
    allowed = settings.allow_list()
    found = allowed.find("https://bank-b:443", "/in/7")
    assert found is not None
    assert (found.key, found.headers) == (key_of("2026-11", "0123456789abcdef"), (("authorization", "Bearer t0ken"),))
    assert (found.signed_verdicts, settings.coordinator().in_flight_of) == (True, {"https://bank-b:443": 3})
    assert "0123456789abcdef" not in f"{settings}{allowed}{found}{found.key}"
    assert "t0ken" not in f"{settings}{allowed}{found}"


def test_a_wrong_destination_does_not_show_its_headers() -> None:
    text = '[{"name":"b","url":"http://b","headers":{"authorization":"Bearer t0ken"},"in_flight":-1}]'
    with pytest.raises(ConfigurationError, match="in_flight") as raised:
        load({}, {"TWOPHASE_DESTINATIONS": text})
    assert "t0ken" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"), [("store", "postgresql://u:pw@h/db"), ("alert_webhook", "https://u:pw@h/a")]
)
def test_an_address_with_a_password_may_be_named_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{value}\n")
    secret.chmod(0o600)
    monkeypatch.setenv("HIDDEN_ADDRESS", value)
    for reference in (f"file:{secret}", "env:HIDDEN_ADDRESS"):
        assert getattr(load({name: reference}, {}), name) == value
    with pytest.raises(
        ConfigurationError, match=f"^TP-7000: {name}: env:NOSUCH: there is no such .*from the command line"
    ):
        load({name: "env:NOSUCH"}, {})
