"""Options as the fields of a request: seconds for dtm, milliseconds beside them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from twophase.core.options import USUAL_OPTIONS, Durability, OptionFields, Options, option_fields, time_text


@pytest.mark.parametrize("options", USUAL_OPTIONS)
def test_usual_options_name_how_answers_are_judged_and_nothing_else(options: Options) -> None:
    assert option_fields(options) == {"explicit_verdict": options.explicit_verdict, "strict": True}


def test_a_time_is_sent_in_whole_seconds_for_dtm_and_in_milliseconds() -> None:
    fields = OptionFields(**option_fields(Options(delay_ms=1_001, request_timeout_ms=2_500, retry_interval_ms=1)))

    assert (fields.custom_data, fields.delay_ms) == ('{"delay":2}', 1_001)
    assert (fields.request_timeout, fields.request_timeout_ms) == (3, 2_500)
    assert (fields.retry_interval, fields.retry_interval_ms) == (1, 1)
    assert fields.timeout_to_fail == fields.timeout_to_fail_ms == 0


def test_check_back_durability_has_a_word_and_submit_durability_has_none() -> None:
    assert option_fields(Options(durability=Durability.CHECK_BACK))["durability"] == "check-back"
    assert option_fields(Options(delay_ms=1))["durability"] == ""


def test_a_time_of_day_is_written_to_the_millisecond_in_utc() -> None:
    text = time_text(1_700_000_000_007)

    assert text == "2023-11-14T22:13:20.007Z"
    assert datetime.fromisoformat(text) == datetime.fromtimestamp(1_700_000_000.007, UTC)
    assert time_text(0) == ""
