"""The plan for a transaction found in dtm's store."""

from __future__ import annotations

import pytest

from twophase.core.takeover import TakenState
from twophase.dtm_import.found import Found, FoundBranch, Subscriber, Topic
from twophase.dtm_import.plan import Planned, Skipped, plan

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def branch(branch_id: str, *, done: bool = False, url: str = "", payload: bytes = b"{}") -> FoundBranch:
    return FoundBranch(branch_id, "action", "succeed" if done else "prepared", url or f"http://b/{branch_id}", payload)


def found(*branches: FoundBranch, **changes: object) -> Found:
    known: dict[str, object] = {"status": "submitted", "created_ms": NOW_MS - HOUR_MS} | changes
    return Found("g", branches=branches, **known)  # type: ignore[arg-type]


def planned(one: Found, *topics: Topic) -> Planned:
    made = plan(one, topics, NOW_MS)
    assert isinstance(made, Planned), made
    return made


def skipped(one: Found) -> Skipped:
    made = plan(one, (), NOW_MS)
    assert isinstance(made, Skipped), made
    return made


def test_what_is_done_keeps_its_position_without_a_call() -> None:
    one, two, three = planned(found(branch("01", done=True), branch("02"), branch("03"))).message.branches

    assert [one.calls, two.calls, three.calls] == [("",), ("http://b/02",), ("http://b/03",)]
    assert [one.url, two.url, three.url] == ["http://b/01", "http://b/02", "http://b/03"]


def test_the_order_of_rows_does_not_matter() -> None:
    urls = [one.url for one in planned(found(branch("02"), branch("10"), *map(branch, _between()))).message.branches]

    assert urls == [f"http://b/{number:02d}" for number in range(1, 11)]


def _between() -> list[str]:
    return ["01", *(f"{number:02d}" for number in range(3, 10))]


def test_subscribers_of_one_topic_are_one_step() -> None:
    one, two = planned(found(branch("01-02"), branch("02"), branch("01-01", done=True))).message.branches

    assert (one.url, one.calls) == ("topic://", ("", "http://b/01-02"))
    assert (two.url, two.calls) == ("http://b/02", ("http://b/02",))


def test_an_address_may_be_a_topics_where_the_step_is_unknown() -> None:
    row, nowhere = branch("01"), FoundBranch("01", "action", "prepared", "", b"{}")

    assert planned(found(row)).message.branches[0].calls == ("http://b/01",)
    assert planned(found(row, step_urls=("http://b/01",))).message.branches[0].calls is None
    assert planned(found(nowhere)).message.branches[0].calls is None


def test_a_topic_is_known_by_its_addresses() -> None:
    subscribers = (Subscriber("http://b/01-01"), Subscriber("http://b/01-02"))
    rows = found(branch("01-01"), branch("01-02"))

    assert planned(rows, Topic("paid", subscribers)).message.branches[0].url == "topic://paid"
    assert planned(rows, Topic("paid", subscribers[::-1])).message.branches[0].url == "topic://"
    both = planned(rows, Topic("paid", subscribers), Topic("sold", subscribers))
    assert both.message.branches[0].url == "topic://"


def test_steps_that_the_store_still_has_name_the_topic() -> None:
    (one,) = planned(found(branch("01", url="http://b/in"), step_urls=("topic://paid",))).message.branches

    assert (one.url, one.calls) == ("topic://paid", ("http://b/in",))


@pytest.mark.parametrize(
    "rows",
    [
        (branch("01"), branch("03")),
        (branch("02"),),
        (branch("01-02"), branch("02")),
        (branch("01-01"),),
        (branch("01"), branch("01-01")),
        (branch("01-01", payload=b"1"), branch("01-02", payload=b"2")),
        (FoundBranch("01", "try", "prepared", "http://b/1", b""),),
        (FoundBranch("01", "action", "failed", "http://b/1", b""),),
        (FoundBranch("x", "action", "prepared", "http://b/1", b""),),
    ],
)
def test_branches_that_dtm_does_not_write_are_not_guessed(rows: tuple[FoundBranch, ...]) -> None:
    assert skipped(found(*rows)).remedy


@pytest.mark.parametrize("trans_type", ["saga", "tcc", "xa", "workflow", ""])
def test_what_is_no_message_is_named(trans_type: str) -> None:
    assert "not a message" in skipped(found(branch("01"), trans_type=trans_type)).reason


@pytest.mark.parametrize("field", ["options", "custom_data"])
def test_texts_that_cannot_be_read_are_named(field: str) -> None:
    assert field in skipped(found(branch("01"), **{field: "{broken"})).reason


def test_a_state_that_a_message_cannot_have_is_named() -> None:
    assert "aborting" in skipped(found(branch("01"), status="aborting")).reason


def test_what_redis_has_lost_is_named() -> None:
    assert "expired" in skipped(Found("g", expired=True)).reason
    assert "missing" in skipped(found(step_urls=("http://b/in",))).reason


def test_a_prepared_message_waits_for_what_is_left_of_its_time() -> None:
    def left_ms(age_s: int, options: str) -> int:
        rows = found(status="prepared", query_prepared="http://a", created_ms=NOW_MS - age_s * 1000, options=options)
        message = planned(rows).message
        assert (message.state, message.delay_ms) == (TakenState.PREPARED, 0)
        return message.timeout_to_fail_ms

    assert left_ms(5, "") == 30_000
    assert left_ms(36, "") == 1
    assert left_ms(36, '{"timeout_to_fail":100}') == 64_000
    assert left_ms(-100, "") == 35_000
    assert left_ms(0, '{"timeout_to_fail":999999}') == 24 * HOUR_MS


def test_a_prepared_message_without_a_check_address_is_reported() -> None:
    assert "parked" in planned(found(status="prepared")).notes[0]


def test_a_delay_keeps_its_end() -> None:
    rows = found(branch("01"), custom_data='{"delay":7200}')
    assert planned(rows).message.delay_ms == HOUR_MS


def test_a_chosen_time_is_kept_and_a_long_pause_is_cut() -> None:
    due_ms = NOW_MS + HOUR_MS

    def delay_ms(interval_s: int, options: str = "") -> int:
        return planned(found(branch("01"), due_ms=due_ms, interval_s=interval_s, options=options)).message.delay_ms

    assert delay_ms(10) == HOUR_MS
    assert delay_ms(20, '{"retry_interval":20}') == HOUR_MS
    assert delay_ms(10_240) == 60_000
    assert planned(found(branch("01"), due_ms=NOW_MS - HOUR_MS)).message.delay_ms == 0


def test_options_are_carried_except_waiting_for_a_result() -> None:
    options = (
        '{"wait_result":true,"request_timeout":8,"retry_interval":5,"concurrent":true,'
        '"branch_headers":{"tenant":"7","none":null},"passthrough_headers":["x"]}'
    )
    message = planned(found(branch("01"), options=options, protocol="grpc")).message

    assert (message.request_timeout_ms, message.retry_interval_ms) == (8_000, 5_000)
    assert (message.concurrent, message.protocol) == (True, "grpc")
    assert message.branch_headers == {"tenant": "7", "none": ""}


def test_a_span_beyond_our_limit_is_cut_and_reported() -> None:
    made = planned(found(branch("01"), options='{"request_timeout":900}'))

    assert made.message.request_timeout_ms == 600_000
    assert made.notes == ("request_timeout is 900 s there, and 600 s, the most, here",)


def test_a_row_from_the_future_asks_for_the_time_zone() -> None:
    (note,) = planned(found(branch("01"), created_ms=NOW_MS + 8 * HOUR_MS)).notes

    assert "--time-zone" in note


def test_a_message_without_branches_is_one() -> None:
    assert planned(found()).message.branches == ()
