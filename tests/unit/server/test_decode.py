"""The rules for a request's body; each refusal names the field and the limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twophase.core.errors import InvalidRequest, LimitExceeded, TwophaseError, UnsupportedType
from twophase.core.headers import CONNECTION_HEADERS
from twophase.core.message import Branch, Message
from twophase.core.options import Durability, Options
from twophase.server.codecs.decode import PREPARED_BYTES_MAX, PREPARED_MAX, Decoder

NOW_S = 1_800_000_000
STEP = {"action": "http://b/in"}
BOTH = [{"action": "queue://t"}, {"action": "http://b/in"}]
TOPIC_STEP = {"action": "topic://rates"}
RPC_STEP = {"action": "http://b/rpc?method=in"}


def why_not(url: str) -> str | None:
    return None if not url or url.startswith(("http", "queue")) else f"no destination for {url!r}."


@pytest.fixture
def decoder() -> Decoder:
    return Decoder(why_not, lambda: NOW_S * 1000)


def test_a_setting_bounds_the_request_timeout_of_a_message() -> None:
    bound = Decoder(why_not, request_timeout_max_ms=8_000)
    for asked in ({"request_timeout": 8}, {"request_timeout_ms": 8_000}, {}):
        bound.message(body(**asked))
    for asked in ({"request_timeout": 9}, {"request_timeout_ms": 8_001}):
        with pytest.raises(LimitExceeded, match=r"request_timeout is \d+ ms, .* request_timeout_max_ms allows 8000"):
            bound.message(body(**asked))


def body(**fields: Any) -> bytes:
    """Return a valid request with some fields replaced; None removes one."""
    request: dict[str, Any] = {
        "gid": "g1",
        "trans_type": "msg",
        "steps": [STEP],
        "payloads": ["{}"],
        "query_prepared": "http://a/check",
        "protocol": "http",
    }
    request |= fields
    return json.dumps(request).encode()


def test_a_whole_request_becomes_a_message(decoder: Decoder) -> None:
    message = decoder.message(
        body(
            steps=[{"action": "http://b/1"}, {"action": "http://c/2"}],
            payloads=['{"amount":30}', ""],
            wait_result=True,
            timeout_to_fail=7,
            request_timeout=8,
            retry_interval=9,
            custom_data='{"delay":2}',
            branch_headers={"x-trace": "abc"},
            concurrent=True,
            explicit_verdict=True,
            open=True,
            durability="check-back",
            next_cron_time="2027-01-15T08:00:01Z",
            attempts_max=12,
        )
    )
    assert message == Message(
        "g1",
        (Branch("http://b/1", b'{"amount":30}'), Branch("http://c/2")),
        "http://a/check",
        Options(
            concurrent=True,
            wait_result=True,
            delay_ms=2_000,
            timeout_to_fail_ms=7_000,
            request_timeout_ms=8_000,
            retry_interval_ms=9_000,
            headers=(("x-trace", "abc"),),
            explicit_verdict=True,
            open=True,
            durability=Durability.CHECK_BACK,
            not_before_ms=1_800_000_001_000,
            attempts_max=12,
        ),
        "http",
    )


def test_every_field_but_gid_and_type_may_be_null(decoder: Decoder) -> None:
    nulls = dict.fromkeys(
        ("steps", "payloads", "query_prepared", "protocol", "custom_data", "branch_headers", "timeout_to_fail",
         "request_timeout", "retry_interval", "wait_result", "concurrent", "retry_limit", "passthrough_headers",
         "next_cron_time", "attempts_max")
    )  # fmt: skip
    assert decoder.message(body(**nulls)) == Message("g1", ())


def test_unknown_fields_are_ignored(decoder: Decoder) -> None:
    plain = decoder.message(body())
    assert decoder.message(body(branch_id="", op="", dtm="http://d", sub_branch_id=None, x=[{"y": 1}])) == plain


@pytest.mark.parametrize(
    "body",
    [
        b'{"gid":"g","trans_type":"msg","steps":[%b]}',
        b'{"gid":"g","trans_type":"msg","Steps":[%b]}',
        b'{"gid":"g","trans_type":"msg","steps":[%b],"dtm":""}',
    ],
)
def test_too_many_steps_are_refused_however_their_keys_are_written(decoder: Decoder, body: bytes) -> None:
    with pytest.raises(LimitExceeded, match="branches is 64 branches, at most 63"):
        decoder.message(body % b",".join([b'{"Action":"http://b/in"}'] * 64))


def test_too_many_steps_are_counted_and_not_taken_apart(decoder: Decoder) -> None:
    unreadable = b'{"gid":"g","trans_type":"msg","steps":[%b],"dtm":""}' % b",".join([b"[1]"] * 64)
    with pytest.raises(LimitExceeded, match="branches is 64 branches, at most 63"):
        decoder.message(unreadable)


def test_keys_are_matched_without_regard_to_case(decoder: Decoder) -> None:
    raw = (
        b'{"GID":"g1","Trans_Type":"msg","STEPS":[{"Action":"http://b/in","remark":1}],"Payloads":["{}"],'
        b'"Query_Prepared":"http://a/check","Wait_Result":true,"Branch_Headers":{"X-A":"b"}}'
    )
    assert decoder.message(raw) == decoder.message(body(wait_result=True, branch_headers={"X-A": "b"}))


def test_one_key_in_other_case_loses_nothing(decoder: Decoder) -> None:
    assert decoder.message(body(payloads=None, Payloads=["p"])).branches == (Branch("http://b/in", b"p"),)


def test_payloads_may_stand_in_the_steps_as_before_dtm_1_10(decoder: Decoder) -> None:
    steps = [{"action": "http://b/1", "data": '{"old":1}'}, {"action": "http://b/2"}]
    message = decoder.message(body(steps=steps, payloads=None))
    assert [branch.payload for branch in message.branches] == [b'{"old":1}', b""]


def test_phps_empty_list_of_headers_is_no_headers(decoder: Decoder) -> None:
    assert decoder.message(body(branch_headers=[])).options.headers == ()


def test_milliseconds_win_over_seconds(decoder: Decoder) -> None:
    options = decoder.message(body(timeout_to_fail=7, timeout_to_fail_ms=250, delay_ms=5)).options
    assert (options.timeout_to_fail_ms, options.delay_ms) == (250, 5)


@pytest.mark.parametrize(
    ("said", "meant_ms"),
    [
        ("2027-01-15T08:00:01Z", 1_800_000_001_000),
        ("2027-01-15t10:00:01.5+02:00", 1_800_000_001_500),
        ("2027-01-15T08:00:01.000000001Z", 1_800_000_001_000),
        ("2027-01-15T08:00:01.0001Z", 1_800_000_001_001),
        (1_800_000_001, 1_800_000_001_000),
        (1_800_000_001.25, 1_800_000_001_250),
        ("1800000001", 1_800_000_001_000),
        (1, 1_000),
        ("0001-01-01T00:00:00Z", 0),
        (-5, 0),
        (0, 0),
        ("", 0),
    ],
)
def test_a_time_is_rfc_3339_or_seconds_since_1970(decoder: Decoder, said: str | float, meant_ms: int) -> None:
    assert decoder.message(body(next_cron_time=said)).options.not_before_ms == meant_ms


def test_attempts_are_the_messages_own(decoder: Decoder) -> None:
    assert decoder.message(body(attempts_max=5)).options.attempts_max == 5


def test_trace_headers_go_on_unless_the_message_names_them_itself(decoder: Decoder) -> None:
    trace = (("traceparent", "00-1"), ("tracestate", "a=b"))
    plain = decoder.message(body(), trace).options
    assert (plain.trace, plain.headers) == (trace, ())
    own = decoder.message(body(branch_headers={"TraceParent": "mine"}), trace).options
    assert (own.trace, own.headers) == ((("tracestate", "a=b"),), (("TraceParent", "mine"),))


def test_plain_options_are_one_shared_object(decoder: Decoder) -> None:
    assert decoder.message(body()).options is decoder.message(body(gid="g2")).options


def test_a_submit_in_its_prepares_bytes_is_not_decoded_again(decoder: Decoder) -> None:
    prepared = decoder.prepare(body())
    assert decoder.submit(body()) is prepared
    again = decoder.submit(body())
    assert again == prepared
    assert again is not prepared, "remembered for one submit"


@pytest.mark.parametrize(
    ("prepared", "submitted"),
    [
        pytest.param(body(), body(gid="g2"), id="other bytes"),
        pytest.param(bytearray(body()), body(), id="a body in pieces"),
        pytest.param(body(), bytearray(body()), id="a submit in pieces"),
        pytest.param(body(payloads=["x" * PREPARED_BYTES_MAX]), body(payloads=["x" * PREPARED_BYTES_MAX]), id="long"),
        pytest.param(body(next_cron_time=NOW_S + 9), body(next_cron_time=NOW_S + 9), id="a time"),
    ],
)
def test_any_other_submit_is_decoded(prepared: bytes | bytearray, submitted: bytes | bytearray) -> None:
    decoder = Decoder(why_not, lambda: NOW_S * 1000)
    first, second = decoder.prepare(prepared), decoder.submit(submitted)
    assert second is not first
    assert second == Decoder(why_not, lambda: NOW_S * 1000).message(submitted)


def test_a_trace_belongs_to_its_request(decoder: Decoder) -> None:
    trace = (("traceparent", "00-1"),)
    decoder.prepare(body())
    assert decoder.submit(body(), trace).options.trace == trace
    decoder.prepare(body(gid="g2"), trace)
    assert decoder.submit(body(gid="g2")).options.trace == ()


def test_a_refused_prepare_is_refused_at_the_submit_too(decoder: Decoder) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            decoder.prepare(body(gid=""))
        with pytest.raises(InvalidRequest):
            decoder.submit(body(gid=""))


def test_the_bodies_of_prepares_are_bounded(decoder: Decoder) -> None:
    first = decoder.prepare(body(gid="first"))
    for number in range(PREPARED_MAX):
        decoder.prepare(body(gid=f"g{number}"))
    assert decoder.submit(body(gid="first")) == first
    assert decoder.submit(body(gid="first")) is not first
    assert len(decoder._prepared) <= PREPARED_MAX


def test_an_empty_address_is_taken_as_dtm_takes_it(decoder: Decoder) -> None:
    assert decoder.message(body(steps=[{"action": ""}])).branches == (Branch("", b"{}"),)


def test_an_address_without_scheme_belongs_to_grpc_messages_only() -> None:
    asked: list[str] = []

    def ask(url: str) -> str | None:
        asked.append(url)
        return None

    remembering = Decoder(ask)
    step = {"action": "bank-b:58080/bank.Bank/TransferIn"}
    message = remembering.message(body(protocol="grpc", steps=[step], query_prepared="bank-a:58080/bank.Bank/Check"))
    assert message.branches[0].url == "bank-b:58080/bank.Bank/TransferIn", "stored as it was written"
    assert asked == ["grpc://bank-b:58080/bank.Bank/TransferIn", "grpc://bank-a:58080/bank.Bank/Check"]
    remembering.message(body(steps=[step]))
    assert asked[2:] == ["bank-b:58080/bank.Bank/TransferIn", "http://a/check"], "what is remembered is per scheme"


def test_a_json_rpc_branch_needs_an_object_for_its_params_or_nothing(decoder: Decoder) -> None:
    for payload in ('{"amount":30}', "", "{}"):
        request = body(protocol="json-rpc", steps=[RPC_STEP], payloads=[payload])
        assert decoder.message(request).branches[0].payload == payload.encode()


def test_other_protocols_are_taken_for_plain_http_addresses(decoder: Decoder) -> None:
    assert decoder.message(body(protocol="grpc")).protocol == "grpc"


def test_abort_needs_nothing_but_the_gid(decoder: Decoder) -> None:
    assert decoder.gid(b'{"gid":"g1"}') == "g1"
    assert decoder.gid(body(steps=[{"action": "ftp://x"}])) == "g1"


def test_a_new_address_is_checked_once(decoder: Decoder) -> None:
    asked: list[str] = []

    def ask(url: str) -> str | None:
        asked.append(url)
        return None

    remembering = Decoder(ask)
    for _ in range(3):
        remembering.message(body())
    assert sorted(asked) == ["http://a/check", "http://b/in"]


BAD: list[tuple[str, bytes, type[TwophaseError], str]] = [
    ("malformed", b"{bad", InvalidRequest, "not JSON"),
    ("empty", b"", InvalidRequest, "not JSON"),
    ("null", b"null", InvalidRequest, "expected `object`"),
    ("array", b"[]", InvalidRequest, "expected `object`"),
    ("number", b"5", InvalidRequest, "expected `object`"),
    ("trailing", b'{"gid":"g"} x', InvalidRequest, "not JSON"),
    ("nan", b'{"gid":"g","trans_type":"msg","timeout_to_fail":NaN}', InvalidRequest, "not JSON"),
    ("infinity", b'{"gid":"g","trans_type":"msg","retry_limit":1,"timeout_to_fail":1e999}', InvalidRequest, "timeout"),
    ("bad utf-8 in a value", b'{"gid":"\xff"}', InvalidRequest, "UTF-8"),
    ("bad utf-8 in a key", b'{"\xff":1}', InvalidRequest, "UTF-8"),
    ("lone surrogate", b'{"gid":"\\ud800"}', InvalidRequest, "not JSON"),
    ("nested", b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", InvalidRequest, "nested too deeply"),
    ("nested steps", b'{"steps":' + b"[" * 100_000, InvalidRequest, "nested"),
    ("no gid", body(gid=None), InvalidRequest, "gid is missing"),
    ("empty gid", body(gid=""), InvalidRequest, "gid is empty"),
    ("gid a number", body(gid=5), InvalidRequest, "gid: expected `str"),
    ("gid too long", body(gid="g" * 129), LimitExceeded, "gid is 129 bytes, at most 128"),
    ("gid too long in bytes", body(gid="ü" * 65), LimitExceeded, "gid is 130 bytes"),
    ("gid with a line break", body(gid="a\r\nb"), InvalidRequest, "gid contains a control"),
    ("gid with NUL", body(gid="a\0b"), InvalidRequest, "gid contains a control"),
    ("gid with a blank end", body(gid="a "), InvalidRequest, "gid begins or ends with a space"),
    ("no type", body(trans_type=None), UnsupportedType, "trans_type is missing"),
    ("saga", body(trans_type="saga"), UnsupportedType, "trans_type is 'saga'"),
    ("tcc", body(trans_type="tcc"), UnsupportedType, "trans_type is 'tcc'"),
    ("xa", body(trans_type="xa"), UnsupportedType, "trans_type is 'xa'"),
    ("workflow", body(trans_type="workflow"), UnsupportedType, "trans_type is 'workflow'"),
    ("nosuch", body(trans_type="nosuch"), UnsupportedType, "trans_type is 'nosuch'"),
    ("steps no list", body(steps={}), InvalidRequest, "steps: expected `array"),
    ("step no object", body(steps=["http://b"]), InvalidRequest, "steps[0]: expected `object`"),
    ("action a number", body(steps=[{"action": 1}]), InvalidRequest, "steps[0].action: expected `str"),
    ("fewer payloads", body(payloads=[]), InvalidRequest, "payloads: there are 0 for 1 steps"),
    ("more payloads", body(payloads=["", ""]), InvalidRequest, "payloads: there are 2 for 1 steps"),
    ("payload no string", body(payloads=[{}]), InvalidRequest, "payloads[0]: expected `str"),
    ("too many branches", body(steps=[STEP] * 129, payloads=[""] * 129), LimitExceeded, "branches is 129"),
    ("payload too large", body(payloads=["x" * (1 << 20) + "x"]), LimitExceeded, "payload is 1048577 bytes"),
    ("address too long", body(steps=[{"action": "http://b/" + "x" * 2048}]), LimitExceeded, "url is 2057 bytes"),
    ("address not callable", body(steps=[{"action": "ftp://b"}]), InvalidRequest, "steps[0].action: no destination"),
    ("check not callable", body(query_prepared="ftp://b"), InvalidRequest, "query_prepared: no destination"),
    ("topic without a name", body(steps=[{"action": "topic://"}]), InvalidRequest, "steps[0].action: the topic's name"),
    ("topic not printable", body(steps=[{"action": "topic://a\n"}]), InvalidRequest, "steps[0].action: the topic's"),
    ("topic too long", body(steps=[{"action": "topic://" + "x" * 129}]), LimitExceeded, "topic is 129 bytes"),
    ("check to a topic", body(query_prepared="topic://t"), InvalidRequest, "query_prepared: no destination"),
    ("check to a queue", body(query_prepared="queue://t"), InvalidRequest, "query_prepared: a queue answers no"),
    ("topic json-rpc", body(protocol="json-rpc", steps=[TOPIC_STEP], payloads=["[1]"]), InvalidRequest, "payloads[0]"),
    ("protocol", body(protocol="smtp"), InvalidRequest, "protocol is 'smtp'"),
    ("json-rpc list", body(protocol="json-rpc", steps=[RPC_STEP], payloads=["[1]"]), InvalidRequest, "payloads[0]: a"),
    ("json-rpc text", body(protocol="json-rpc", steps=[RPC_STEP], payloads=["x"]), InvalidRequest, "JSON object"),
    ("no scheme", body(steps=[{"action": "b:58080/bank.Bank/In"}]), InvalidRequest, "steps[0].action: no destination"),
    ("custom_data", body(custom_data="hello"), InvalidRequest, "custom_data: only JSON"),
    ("delay no number", body(custom_data='{"delay":"x"}'), InvalidRequest, "custom_data: only JSON"),
    ("delay negative", body(custom_data='{"delay":-1}'), InvalidRequest, "delay is negative"),
    ("delay too long", body(custom_data='{"delay":99999999999}'), LimitExceeded, "delay is"),
    ("delay immense", body(custom_data='{"delay":1e300}'), LimitExceeded, "delay is"),
    ("delay of a queue and a branch", body(steps=BOTH, payloads=["", ""], delay_ms=5), InvalidRequest, "not to both"),
    ("time of both", body(steps=BOTH, payloads=["", ""], next_cron_time=2), InvalidRequest, "not to both"),
    ("timeout text", body(timeout_to_fail="10"), InvalidRequest, "timeout_to_fail: expected `int"),
    ("timeout negative", body(timeout_to_fail=-1), InvalidRequest, "timeout_to_fail is negative"),
    ("timeout too long", body(request_timeout=601), LimitExceeded, "request_timeout is 601000 ms"),
    ("wait_result text", body(wait_result="yes"), InvalidRequest, "wait_result: expected `bool"),
    ("headers list", body(branch_headers=["x"]), InvalidRequest, "branch_headers: an object"),
    ("header value no string", body(branch_headers={"x": 1}), InvalidRequest, "branch_headers[...]: expected `str"),
    ("header injection", body(branch_headers={"x": "a\r\nEvil: 1"}), InvalidRequest, "characters HTTP does not"),
    ("header name", body(branch_headers={"x y": "a"}), InvalidRequest, "characters HTTP does not"),
    ("too many headers", body(branch_headers={f"x{n}": "" for n in range(65)}), LimitExceeded, "branch_headers is 65"),
    ("headers too large", body(branch_headers={"x": "y" * 16_384}), LimitExceeded, "branch_headers is 16385 bytes"),
    ("time", body(next_cron_time="tomorrow"), InvalidRequest, "next_cron_time is 'tomorrow', not a time; give RFC"),
    ("time without zone", body(next_cron_time="2030-01-01T00:00:00"), InvalidRequest, "with a zone"),
    ("date alone", body(next_cron_time="2030-01-01"), InvalidRequest, "next_cron_time is '2030-01-01'"),
    ("time too far", body(next_cron_time=NOW_S + 367 * 86_400), LimitExceeded, "next_cron_time is 31708800000 ms from"),
    ("time in ms", body(next_cron_time=NOW_S * 1000), LimitExceeded, "at most 31622400000 are allowed"),
    ("time immense", body(next_cron_time=1e300), LimitExceeded, "next_cron_time is"),
    ("time long text", body(next_cron_time="9" * 5_000), InvalidRequest, "next_cron_time is '9999"),
    ("time a list", body(next_cron_time=[1]), InvalidRequest, "next_cron_time: expected `"),
    ("time true", body(next_cron_time=True), InvalidRequest, "next_cron_time: expected `"),
    ("attempts negative", body(attempts_max=-1), InvalidRequest, "attempts_max is negative"),
    ("attempts too many", body(attempts_max=1_000_001), LimitExceeded, "attempts_max is 1000001 attempts"),
    ("attempts text", body(attempts_max="3"), InvalidRequest, "attempts_max: expected `int"),
    ("durability", body(durability="maybe"), InvalidRequest, "durability is 'maybe'"),
    ("durability alone", body(durability="check-back", query_prepared=""), InvalidRequest, "query_prepared"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "error", "text"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_request_is_refused_by_name(decoder: Decoder, raw: bytes, error: type[TwophaseError], text: str) -> None:
    with pytest.raises(error) as caught:
        decoder.message(raw)
    assert type(caught.value) is error
    assert text in caught.value.message


@pytest.mark.parametrize("protocol", ["http", "grpc", "json-rpc"])
@pytest.mark.parametrize("name", sorted(CONNECTION_HEADERS))
def test_a_header_of_the_connection_is_refused(decoder: Decoder, name: str, protocol: str) -> None:
    sent = body(branch_headers={"x": "1", name.title(): "1"}, protocol=protocol, steps=[RPC_STEP])
    with pytest.raises(InvalidRequest, match=f"branch_headers: '{name.title()}' belongs to the connection"):
        decoder.message(sent)


@pytest.mark.parametrize("name", ["x-twophase-oldest", "X_Twophase_Oldest", "twophase-barrier", "Dtm-Gid", "dtm-"])
def test_a_header_of_the_coordinator_is_refused(decoder: Decoder, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"branch_headers: '{name}' is the coordinator's own"):
        decoder.message(body(branch_headers={"x-dtm": "1", name: "1"}))


@pytest.mark.parametrize(
    "name",
    [
        "grpc-timeout",
        "X-aws-ec2-metadata-token",
        "x_google_x",
        "X-Forwarded-For",
        "Forwarded",
        "X_Real-IP",
        "Metadata-Flavor",
    ],
)
def test_a_header_that_somebody_else_believes_is_refused(decoder: Decoder, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"branch_headers: '{name}' is reserved: grpc-"):
        decoder.message(body(branch_headers={"forwarded-for": "1", "x-real-ip-of": "1", name: "1"}))


def test_an_address_that_was_taken_as_a_check_address_is_still_refused_as_a_branch(decoder: Decoder) -> None:
    url = "http://a/check?barrier=7f"
    decoder.message(body(query_prepared=url))
    with pytest.raises(InvalidRequest, match=r"steps\[0\].action: its query has the parameter 'barrier'"):
        decoder.message(body(steps=[{"action": url}]))


def test_an_abort_of_another_type_is_refused(decoder: Decoder) -> None:
    with pytest.raises(UnsupportedType):
        decoder.gid(b'{"gid":"g1","trans_type":"saga"}')


def test_refusals_do_not_repeat_payloads(decoder: Decoder) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoder.message(body(payloads=["secret", "secret"]))
    assert "secret" not in str(caught.value)


def test_the_memory_of_addresses_is_bounded(decoder: Decoder) -> None:
    for number in range(5_000):
        decoder.message(body(steps=[{"action": f"http://b/{number}"}], query_prepared=f"http://a/{number}"))
    assert len(decoder._callable) <= 4096
    assert len(decoder._askable) <= 4096
