"""The explanation of every situation of a message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from twophase.cli.operating.explain import text_of
from twophase.cli.operating.explanation import Explanation, clock, explain
from twophase.core.operating import ShownAttempt, ShownBranch, ShownMessage

NOW = 1_700_000_100_000
MINUTE = 60_000
IN, MAIL, CHECK = "http://bank-b/in", "http://mail/send", "http://bank-a/check"


def message(state: str = "prepared", **changes: Any) -> ShownMessage:
    fields: dict[str, Any] = {
        "gid": "order-17",
        "state": state,
        "created_ms": NOW - MINUTE,
        "check_url": CHECK,
        "branches": [ShownBranch("01", IN, 2), ShownBranch("02", MAIL, 2)],
    }
    if state == "submitted":
        fields |= {"decided_ms": NOW - 50_000, "decided_by": "submit"}
    if state in {"succeed", "failed"}:
        fields |= {"decided_ms": NOW - 50_000, "finished_ms": NOW - 40_000}
    return ShownMessage(**(fields | changes))


def asked(result: str, status: int = 0, error: str = "") -> ShownAttempt:
    return ShownAttempt(NOW - 5_000, "check-back", "00", CHECK, status, 3, result, error)


def called(branch_id: str, result: str, status: int = 0, error: str = "", target: str = IN) -> ShownAttempt:
    return ShownAttempt(NOW - 5_000, "branch", branch_id, target, status, 3, result, error)


def acted(verb: str, told: str, branch_id: str = "", target: str = "") -> ShownAttempt:
    return ShownAttempt(NOW - 9_000, "operator", branch_id, target, result=verb, error=told)


PREPARED = "order-17 is prepared: its producer has not said yet whether the local transaction committed."
ONE = "(1 min ago)"
RETRY, REDRIVE, STOP = (f"twophase messages {act} order-17" for act in ("retry-now", "redrive", "stop"))
REDIRECT = "twophase messages redirect"
PARKED_BY_HAND = acted("park", "parked by eve: a fault")

# name, message, headline, a part of `happened`, of `blocked`, of `then`, commands
SITUATIONS: list[tuple[str, ShownMessage, str, str, str, str, list[str]]] = [
    (
        "prepared, its time has not come",
        message(due_ms=NOW + 23_000, earliest_ms=NOW + 23_000),
        PREPARED,
        f"The producer prepared it at 2023-11-14 22:14:00 UTC {ONE}.",
        "",
        "Its producer is asked at 2023-11-14 22:15:23 UTC (in 23 s)",
        [],
    ),
    ("prepared, being asked", message(due_ms=NOW - 10), PREPARED, "", "", "is being asked now", []),
    (
        "prepared, transaction open",
        message(due_ms=NOW + 9_000, attempts=4, log=[asked("in_progress", 425)]),
        PREPARED,
        "",
        "answered that the transaction is still open. 4 questions brought no verdict.",
        "asked at 2023-11-14 22:15:09 UTC (in 9 s), and again until there is a verdict",
        [RETRY, STOP],
    ),
    (
        "prepared, producer unreachable",
        message(due_ms=NOW + 9_000, attempts=1, log=[asked("unknown", 0, "connection refused")]),
        PREPARED,
        "",
        f"its producer ({CHECK}) gave no verdict: no answer, connection refused.",
        "in 9 s",
        [RETRY, f"{REDIRECT} --check --to URL order-17", STOP],
    ),
    (
        "prepared, producer answers something else",
        message(due_ms=NOW + 1_000, attempts=2, log=[asked("unknown", 404, "not found")]),
        PREPARED,
        "",
        'gave no verdict: status 404, "not found". 2 questions',
        "in 1 s",
        [f"{REDIRECT} --check --to URL order-17", STOP],
    ),
    (
        "prepared, check-back durability",
        message(due_ms=NOW + 9_000, check_back_durability=True),
        PREPARED,
        "it may have been submitted",
        "",
        "in 9 s",
        [],
    ),
    (
        "prepared, nobody to ask, not yet parked",
        message(check_url="", due_ms=NOW + 9_000),
        PREPARED,
        "",
        "",
        "it is parked, because it has no check-back address",
        [],
    ),
    (
        "prepared, parked because no producer can be asked",
        message(check_url="", parked=True, log=[asked("unknown", 0, "the message has no check-back address")]),
        PREPARED,
        "",
        "It is parked: it has no check-back address, so no producer can be asked",
        "Nothing happens by itself",
        ["twophase messages stop --override order-17"],
    ),
    (
        "prepared, parked by hand",
        message(parked=True, log=[PARKED_BY_HAND]),
        PREPARED,
        "Parked by eve: a fault, at 2023-11-14 22:14:51 UTC (9 s ago).",
        "It is parked by eve: a fault.",
        "Nothing happens by itself",
        [REDRIVE, STOP],
    ),
    (
        "submitted, being delivered",
        message("submitted", due_ms=NOW - 1),
        "order-17 is submitted: 2 branches of 2 yet to succeed.",
        "The producer submitted it at 2023-11-14 22:14:10 UTC (50 s ago): its local transaction is committed.",
        "",
        "being called now",
        [],
    ),
    (
        "submitted by the check-back",
        message("submitted", decided_by="check-back"),
        "order-17 is submitted: 2 branches of 2",
        "The check-back decided it",
        "",
        "being called now",
        [],
    ),
    (
        "submitted, with a delay",
        message("submitted", due_ms=NOW + 3_600_000, earliest_ms=NOW + 3_600_000),
        "order-17 is submitted: 2 branches",
        "",
        "",
        "called at 2023-11-14 23:15:00 UTC (in 1 h): it was sent with a delay",
        [STOP],
    ),
    (
        "submitted, a branch fails",
        message(
            "submitted",
            due_ms=NOW + 30_000,
            attempts=3,
            branches=[ShownBranch("01", IN, done=True), ShownBranch("02", MAIL)],
            log=[called("01", "error", 502), called("02", "error", 500, "no such box", MAIL)],
        ),
        "order-17 is submitted: 1 branch of 2 yet to succeed.",
        "Succeeded so far: 01.",
        f'Branch 02 ({MAIL}) fails: status 500, "no such box", at 2023-11-14 22:14:55 UTC (5 s ago).',
        "called again at 2023-11-14 22:15:30 UTC (in 30 s), and again after each failure, until it succeeds",
        [RETRY, STOP],
    ),
    (
        "submitted, a branch fails, and only so often",
        message("submitted", due_ms=NOW + 30_000, attempts=3, attempts_max=5, log=[called("01", "error", 502)]),
        "order-17",
        "",
        f"Branch 01 ({IN}) fails: status 502",
        "(in 30 s), and again after each failure, until it succeeds or 5 failed rounds have parked it",
        [RETRY, STOP],
    ),
    (
        "submitted, a branch is not reached",
        message("submitted", due_ms=NOW + 30_000, log=[called("01", "error", 0, "timed out after 3000 ms")]),
        "order-17",
        "",
        f"Branch 01 ({IN}) fails: no answer, timed out after 3000 ms",
        "in 30 s",
        [RETRY, f"{REDIRECT} --branch 01 --to URL order-17", STOP],
    ),
    (
        "submitted, a branch refuses",
        message("submitted", due_ms=NOW + 30_000, log=[called("01", "failed", 409, "FAILURE")]),
        "order-17",
        "",
        "It refused (409), but a committed transaction cannot be taken back.",
        "in 30 s",
        [RETRY, STOP],
    ),
    (
        "submitted, a branch is not done yet",
        message("submitted", due_ms=NOW + 1_000, log=[called("01", "ongoing", 425)]),
        "order-17",
        "",
        f"Branch 01 ({IN}) asked to be called again later",
        "in 1 s",
        [STOP],
    ),
    (
        "submitted, parked by its limit",
        message("submitted", parked=True, attempts=5, log=[called("01", "error", 500, "down")]),
        "order-17",
        "",
        "It is parked: its branches have failed as many times in a row as attempts_max allows.",
        "Nothing happens by itself",
        [REDRIVE, STOP],
    ),
    (
        "submitted, parked by hand",
        message("submitted", parked=True, log=[PARKED_BY_HAND]),
        "order-17",
        "Parked by eve",
        "It is parked by eve: a fault.",
        "Nothing happens by itself",
        [REDRIVE, STOP],
    ),
    (
        "succeeded",
        message("succeed", decided_by="submit"),
        "order-17 has succeeded: 2 branches delivered.",
        "Every branch had succeeded at 2023-11-14 22:14:20 UTC (40 s ago), 20 s after it first arrived.",
        "",
        "Nothing: it is final.",
        [],
    ),
    (
        "parked without a check address, given one since",
        message(
            parked=True,
            log=[ShownAttempt(NOW - 5_000, "check-back", "00", result="unknown", error="no check-back address")],
        ),
        PREPARED,
        "",
        "It is parked: it had no check-back address.",
        "A submit or an abort of the producer decides it at any time.",
        [REDRIVE, STOP],
    ),
    (
        "parked by hand once, and since a redrive by its failures",
        message(
            "submitted",
            parked=True,
            attempts=1,
            attempts_max=1,
            log=[PARKED_BY_HAND, acted("redrive", "redriven by eve"), called("01", "error", 500)],
        ),
        "order-17 is submitted: 2 branches of 2 yet to succeed.",
        "Redriven by eve",
        "It is parked: its branches have failed as many times",
        "Nothing happens by itself",
        [REDRIVE, STOP],
    ),
    (
        "parked by hand while it was prepared, and since its submit by its failures",
        message(
            "submitted",
            parked=True,
            attempts=1,
            attempts_max=1,
            log=[msgspec.structs.replace(PARKED_BY_HAND, at_ms=NOW - 55_000), called("01", "error", 500)],
        ),
        "order-17 is submitted: 2 branches of 2 yet to succeed.",
        "Parked by eve",
        "It is parked: its branches have failed as many times",
        "Nothing happens by itself",
        [REDRIVE, STOP],
    ),
    (
        "parked by hand while its submit was being stored",
        message(
            "submitted",
            parked=True,
            attempts_max=5,
            log=[msgspec.structs.replace(PARKED_BY_HAND, at_ms=NOW - 55_000), called("01", "error", 500)],
        ),
        "order-17 is submitted: 2 branches of 2 yet to succeed.",
        "Parked by eve",
        "It is parked by eve: a fault.",
        "Nothing happens by itself",
        [REDRIVE, STOP],
    ),
    (
        "parked by hand at one node while it was redriven at another",
        message(parked=True, log=[PARKED_BY_HAND, acted("redrive", "redriven by tom")]),
        PREPARED,
        "Redriven by tom",
        "It is parked by eve: a fault.",
        "Nothing happens by itself",
        [REDRIVE, STOP],
    ),
    (
        "parked without a check address after a redrive, given one since",
        message(
            parked=True,
            log=[
                PARKED_BY_HAND,
                acted("redrive", "redriven by tom"),
                ShownAttempt(NOW - 5_000, "check-back", "00", result="unknown", error="no check-back address"),
            ],
        ),
        PREPARED,
        "Redriven by tom",
        "It is parked: it had no check-back address.",
        "Nothing happens by itself",
        [REDRIVE, STOP],
    ),
    (
        "failed by its producer",
        message("failed", decided_by="abort", reason="the producer aborted"),
        "order-17 has failed: its branches are not called.",
        "The producer aborted it at 2023-11-14 22:14:20 UTC (40 s ago): the producer aborted.",
        "",
        "a new message",
        [],
    ),
    (
        "failed by its producer, perhaps after a submit that no row shows",
        message("failed", decided_by="abort", reason="the producer aborted", check_back_durability=True),
        "order-17 has failed",
        "No branch call is recorded; where a submit came before, its branches may have been called.",
        "",
        "final",
        [],
    ),
    (
        "failed by the check-back",
        message("failed", decided_by="check-back", reason="the producer answered rolled_back"),
        "order-17 has failed",
        "The check-back decided it at 2023-11-14 22:14:20 UTC (40 s ago): the producer answered rolled_back.",
        "",
        "final",
        [],
    ),
    (
        "stopped by an operator after a part was delivered",
        message(
            "failed",
            decided_by="operator",
            reason="stopped by eve: cancelled",
            branches=[ShownBranch("01", IN, done=True), ShownBranch("02", MAIL)],
        ),
        "order-17 has failed",
        "Branch 01 had already succeeded, and stay that way; the others are not called.",
        "",
        "final",
        [],
    ),
    (
        "stopped by an operator, perhaps while the first call was under way",
        message("failed", decided_by="operator", reason="stopped by eve"),
        "order-17 has failed",
        "one that was in progress at the time may have had an effect",
        "",
        "final",
        [],
    ),
    (
        "stopped by an operator while a call was under way",
        message(
            "failed",
            decided_by="operator",
            reason="stopped by eve",
            log=[called("01", "succeeded", 200, "succeeded arrived late, the message was failed")],
        ),
        "order-17 has failed",
        f", of branch 01 ({IN}): succeeded arrived late, the message was failed.",
        "",
        "final",
        [],
    ),
    (
        "contradicted",
        message(
            "failed",
            decided_by="abort",
            log=[ShownAttempt(NOW, "incident", error="submit arrived when the message was failed")],
        ),
        "order-17 has failed",
        "Incident at 2023-11-14 22:15:00 UTC (now): submit arrived when the message was failed.",
        "",
        "final",
        [],
    ),
]


@pytest.mark.parametrize(
    ("shown", "headline", "happened", "blocked", "then", "commands"),
    [row[1:] for row in SITUATIONS],
    ids=[row[0] for row in SITUATIONS],
)
def test_a_situation_is_reported(
    shown: ShownMessage, headline: str, happened: str, blocked: str, then: str, commands: list[str]
) -> None:
    told = explain(shown, NOW)

    assert told.headline.startswith(headline)
    assert happened in " ".join(told.happened)
    assert blocked in " ".join(told.blocked)
    assert bool(told.blocked) == bool(blocked)
    assert then in " ".join(told.then)
    assert [one.command for one in told.remedies] == commands


def test_commands_can_be_pasted_whatever_the_gid() -> None:
    told = explain(message(gid="o'brien; rm -rf", parked=True, log=[PARKED_BY_HAND]), NOW)

    assert told.remedies[0].command == "twophase messages redrive 'o'\"'\"'brien; rm -rf'"


def test_a_gid_that_looks_like_an_option_is_none_in_a_command() -> None:
    gid = "--server=http://elsewhere"
    said = text_of(explain(message(gid=gid, log=[asked("unknown", 404)]), NOW), "http://pay:36789")

    assert f"  twophase messages stop --server http://pay:36789 -- {gid}\n" in said
    assert f"  twophase messages redirect --server http://pay:36789 --check --to URL -- {gid}\n" in said


@pytest.mark.parametrize("state", ["submitted", "succeed"])
def test_nothing_is_said_of_a_transaction_that_a_plain_message_has_not(state: str) -> None:
    refused = called("01", "failed", 409)
    plain = message(state, check_url="", decided_by="submit", attempts=1, log=[refused])
    said = text_of(explain(plain, NOW))

    assert "The producer submitted it at 2023-11-14 22:14:10 UTC (50 s ago).\n" in said
    assert "transaction" not in said


def test_a_stop_of_a_partly_delivered_message_concerns_what_is_left() -> None:
    branches = [ShownBranch("01", IN, done=True), ShownBranch("02", MAIL)]
    submitted = message("submitted", branches=branches, log=[called("02", "error", 500, "down", MAIL)])
    failed = message("failed", decided_by="operator", reason="stopped by eve", branches=branches)

    assert explain(submitted, NOW).remedies[-1].when == (
        "to make it fail: the remaining branches are no longer called, although its transaction is committed"
    )
    assert explain(failed, NOW).headline == "order-17 has failed: the rest of its branches are not called."
    assert "Branch 01 had already succeeded" in " ".join(explain(failed, NOW).happened)


def test_a_stop_says_when_no_producer_can_be_asked() -> None:
    orphan = message(check_url="", parked=True, log=[asked("unknown", 0, "the message has no check-back address")])
    (stop,) = explain(orphan, NOW).remedies
    assert stop.when.startswith("to make it fail; no producer can be asked")


def test_the_text_has_the_four_questions_and_names_the_server() -> None:
    told = explain(message(parked=True, log=[PARKED_BY_HAND]), NOW)

    text = text_of(told, "http://pay:36789")

    assert [line for line in text.splitlines() if line and not line.startswith(" ")] == [
        PREPARED,
        "What happened",
        "What blocks it",
        "What comes next",
        "What to do",
    ]
    assert "  twophase messages redrive --server http://pay:36789 order-17\n      once the cause is fixed" in text
    assert "--server" not in text_of(told)
    assert "What blocks it\n  Nothing." in text_of(explain(message(due_ms=NOW + 9_000), NOW))


def test_every_kind_of_record_is_understood() -> None:
    # A newer server's record, of an unknown kind, changes nothing in the explanation.
    strange = ShownAttempt(NOW, "something new", error="?")
    one, other = message(due_ms=NOW + 9_000), message(due_ms=NOW + 9_000, log=[strange])

    assert explain(one, NOW) == explain(other, NOW)
    assert isinstance(msgspec.convert(msgspec.to_builtins(explain(one, NOW)), Explanation), Explanation)


@pytest.mark.parametrize(
    ("at_ms", "told"),
    [(NOW, "now"), (NOW + 59_999, "in 59 s"), (NOW - 7_200_000, "2 h ago"), (NOW + 10 * 86_400_000, "in 10 d")],
)
def test_times_say_how_far_away_they_are(at_ms: int, told: str) -> None:
    assert clock(at_ms, NOW).endswith(f"UTC ({told})")


@pytest.mark.parametrize(
    ("state", "attempt"),
    [
        ("submitted", called("01", "failed", 200, '{"customer":"FAILURE"}')),
        ("submitted", called("01", "ongoing", 200, '{"customer":"ONGOING"}')),
        ("prepared", asked("in_progress", 200, "ONGOING")),
    ],
)
def test_a_word_that_decided_is_named(state: str, attempt: ShownAttempt) -> None:
    said = text_of(explain(message(state, log=[attempt], attempts=1), NOW))
    assert "its 200 answer contains the word " in said
    assert "strict judges by status alone" in said
    plain = msgspec.structs.replace(attempt, status=409 if attempt.result == "failed" else 425)
    assert "word" not in text_of(explain(message(state, log=[plain], attempts=1), NOW))


def test_the_stop_that_decided_it_is_named_once() -> None:
    reason = "stopped by eve: cancelled"
    stopped = message(
        "failed", decided_by="operator", reason=reason, log=[acted("park", "parked by eve"), acted("stop", reason)]
    )
    happened = " ".join(explain(stopped, NOW).happened)
    assert happened.count("topped by eve") == 1
    assert "Parked by eve" in happened


def test_a_stop_that_was_refused_before_the_one_that_decided_is_not_told_as_one() -> None:
    refused = ShownAttempt(NOW - 3_000, "operator", result="stop", error="stopped by eve")
    decided = ShownAttempt(NOW - 2_000, "operator", result="stop", error="stopped by eve")
    reason = "stopped by eve; the producer, asked first, answered unknown"
    stopped = message("failed", decided_by="operator", reason=reason, finished_ms=NOW - 1_000, log=[refused, decided])

    happened = explain(stopped, NOW).happened

    assert happened[0].startswith("A stop was asked for, and has not stopped it: 'stopped by eve', at ")
    assert happened[1].startswith("An operator decided it at ")
    assert " ".join(happened).count("topped by eve") == 2


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("succeed", ["Branch 01", "The producer submitted", "Parked by", "Redriven by", "Every branch", "Incident at"]),
        ("failed", ["Branch 01", "Parked by", "Redriven by", "It was decided", "No branch was called", "Incident at"]),
        ("submitted", ["Branch 01", "The producer submitted", "Parked by", "Redriven by", "Incident at"]),
    ],
)
def test_what_happened_is_told_in_its_order(state: str, told: list[str]) -> None:
    log = [
        ShownAttempt(
            NOW - 9_000, "operator", "01", "http://b", result="redirect", error="redirected by eve; now http://c"
        ),
        ShownAttempt(NOW - 7_000, "operator", result="park", error="parked by eve"),
        ShownAttempt(NOW - 6_000, "operator", result="redrive", error="redriven by eve"),
        ShownAttempt(NOW - 1_000, "incident", error="abort arrived when the message was final"),
    ]
    by = "" if state == "failed" else "submit"
    shown = message(state, decided_by=by, decided_ms=NOW - 8_000, finished_ms=NOW - 5_000, log=log)

    happened = explain(shown, NOW).happened

    assert [text[: len(begin)] for text, begin in zip(happened, told, strict=True)] == told


def test_a_failure_of_an_address_that_a_branch_has_left_does_not_block_it() -> None:
    moved = acted("redirect", f"redirected by eve; now {MAIL}", "01", IN)
    late = called("01", "succeeded", 200, "succeeded arrived late, the message was redirected")
    log = [called("01", "error", 500), called("02", "error", 503, target=MAIL), moved, late]
    branches = [ShownBranch("01", MAIL, 2), ShownBranch("02", MAIL, 2)]

    runs = explain(message("submitted", branches=branches, log=log, attempts=1), NOW)
    parked = explain(message("submitted", branches=branches, log=log, attempts=3, attempts_max=3, parked=True), NOW)

    assert [text.split(" fails")[0] for text in runs.blocked] == [f"Branch 02 ({MAIL})"]
    assert parked.blocked[1:] == [
        f"Branch 02 ({MAIL}) fails: status 503.",
        f"Branch 01 has not been called at its new address ({MAIL}) yet.",
    ]


def test_a_stop_after_calls_leaves_a_committed_transaction() -> None:
    down = [called("01", "error", 0, "connect")]
    stopped = message("failed", decided_by="operator", reason="stopped by eve", log=down)
    undecided = message("failed", decided_by="operator", reason="stopped by eve", log=[asked("error")])
    plain = message("failed", decided_by="operator", reason="stopped by eve", log=down, check_url="")

    told = ["transaction is committed" in " ".join(explain(one, NOW).happened) for one in (stopped, undecided, plain)]
    assert told == [True, False, False]


@pytest.mark.parametrize("state", ["prepared", "submitted", "succeeded"])
def test_a_stop_that_was_refused_is_not_told_as_one(state: str) -> None:
    refused = message(state, log=[acted("stop", "stopped by eve: cancelled")])

    happened = " ".join(explain(refused, NOW).happened)

    told = "A stop was asked for, and has not stopped it: 'stopped by eve: cancelled', at 2023-11-14 22:14:51 UTC"
    assert told in happened
    assert "Stopped by eve" not in happened


def test_a_printed_command_quotes_the_branch_that_an_answer_names() -> None:
    branch = "01; rm -rf /"
    told = message("submitted", branches=[ShownBranch(branch, IN, 2)], log=[called(branch, "failed", 404)])

    commands = [remedy.command for remedy in explain(told, NOW).remedies]

    assert f"{REDIRECT} --branch '{branch}' --to URL order-17" in commands
