"""The producer's sequence, played without I/O.

The tests show each command in its order, and what the caller learns.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from tests.unit.client.harness import Harness, context
from twophase.barrier.asking import CheckBackAnswer
from twophase.client import flow, manual
from twophase.client.draft import Progress
from twophase.client.transport.grpc_wire import answer_of
from twophase.client.transport.wire import HttpAnswer, Operation, TransportFailure, encode_request
from twophase.core.errors import (
    AutocommitRefused,
    BarrierTableMissing,
    BeginDeadlinePassed,
    BranchesLost,
    CheckBackCameFirst,
    CommittedDespiteError,
    ContraryDecision,
    DatabaseSwitched,
    Fate,
    InvalidRequest,
    LimitExceeded,
    MessageUsedTwice,
    NotPrepared,
    NotYetDelivered,
    OpenTransaction,
    RolledBack,
    StateConflict,
    TransactionLost,
    Undecided,
    UnsupportedEngine,
)
from twophase.core.message import Branch, Message, encode_branches
from twophase.core.options import Options
from twophase.core.verdict import Verdict

CHECK = "http://a/check"
BEGINNING = ["ReadIdentity", "prepare", "Begin", "begin_producer", "Business"]
ENDING = ["Flush", "last_look", "Commit", "Close"]
CUT = TransportFailure("cut")


class Overdrawn(Exception):
    """A refusal by the business code."""


def test_clean_transaction_goes_prepare_begin_row_business_verify_commit_submit() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert harness.performed == [*BEGINNING, *ENDING, "submit"]
    assert under_way.draft.progress is Progress.SUBMITTED


def test_prepare_names_the_database_and_demands_an_explicit_verdict() -> None:
    harness = Harness()
    harness.play(flow.transaction(context(harness), CHECK))
    assert harness.bodies["prepare"]["query_prepared"] == "http://a/check?barrier=7f"
    assert harness.bodies["prepare"]["explicit_verdict"] is True


def test_begin_gets_the_time_that_prepare_answered() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.prepared_at_ms == 1_700_000_000_000


def test_begin_gets_our_own_time_when_the_coordinator_does_not_say() -> None:
    harness = Harness(answers={Operation.PREPARE: [HttpAnswer(200, b'{"dtm_result":"SUCCESS"}')]})
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.prepared_at_ms == 1_600_000_000_000


def test_our_own_time_is_that_before_prepare_was_asked() -> None:
    silent = HttpAnswer(200, b'{"dtm_result":"SUCCESS"}')
    harness = Harness(answers={Operation.PREPARE: [CUT, silent]})
    times_ms = iter(range(1_600_000_000_000, 1_700_000_000_000, 60_000))
    under_way = context(harness)
    runtime = msgspec.structs.replace(under_way.runtime, wall_ms=lambda: next(times_ms))
    under_way = msgspec.structs.replace(under_way, runtime=runtime)
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.prepared_at_ms == 1_600_000_000_000


def test_business_error_is_rolled_back_asked_about_and_aborted() -> None:
    harness = Harness(business=Overdrawn(), verdict=Verdict.ROLLED_BACK)
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert harness.performed == [*BEGINNING, "Rollback", "Close", "AskBarrier", "abort"]
    assert under_way.draft.progress is Progress.ROLLED_BACK


def test_abort_that_does_not_get_through_changes_nothing() -> None:
    harness = Harness(business=Overdrawn(), verdict=Verdict.ROLLED_BACK, answers={Operation.ABORT: [CUT]})
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.ROLLED_BACK


def test_business_error_of_a_committed_transaction_is_submitted_and_reported() -> None:
    seen = Overdrawn()
    harness = Harness(business=seen, verdict=Verdict.COMMITTED)
    under_way = context(harness)
    with pytest.raises(CommittedDespiteError) as raised:
        harness.play(flow.transaction(under_way, CHECK))
    assert raised.value.__cause__ is seen
    assert harness.performed[-1] == "submit"
    assert under_way.draft.progress is Progress.SUBMITTED


@pytest.mark.parametrize("verdict", [Verdict.IN_PROGRESS, Verdict.UNKNOWN])
def test_nothing_is_sent_to_the_coordinator_while_the_barrier_cannot_decide(verdict: Verdict) -> None:
    seen = Overdrawn()
    harness = Harness(business=seen, verdict=verdict)
    under_way = context(harness)
    with pytest.raises(Undecided) as raised:
        harness.play(flow.transaction(under_way, CHECK))
    assert raised.value.__cause__ is seen
    assert raised.value.gid == "g"
    assert harness.performed[-1] == "AskBarrier"
    assert under_way.draft.progress is Progress.UNDECIDED


def test_commit_error_that_committed_is_submitted_and_reported() -> None:
    seen = ConnectionError("reply lost")
    harness = Harness(failures={"Commit": seen}, verdict=Verdict.COMMITTED)
    with pytest.raises(CommittedDespiteError) as raised:
        harness.play(flow.transaction(context(harness), CHECK))
    assert raised.value.__cause__ is seen
    assert harness.performed[-4:] == ["Rollback", "Close", "AskBarrier", "submit"]


def test_commit_error_that_rolled_back_propagates_itself() -> None:
    seen = ConnectionError("refused")
    harness = Harness(failures={"Commit": seen}, verdict=Verdict.ROLLED_BACK)
    with pytest.raises(ConnectionError) as raised:
        harness.play(flow.transaction(context(harness), CHECK))
    assert raised.value is seen
    assert harness.performed[-1] == "abort"


def test_unclear_commit_is_undecided() -> None:
    harness = Harness(failures={"Commit": ConnectionError()}, verdict=Verdict.IN_PROGRESS)
    with pytest.raises(Undecided):
        harness.play(flow.transaction(context(harness), CHECK))
    assert "submit" not in harness.performed
    assert "abort" not in harness.performed


def test_lost_transaction_never_commits_and_is_reported_as_rolled_back() -> None:
    harness = Harness(failures={"last_look": TransactionLost()}, verdict=Verdict.ROLLED_BACK)
    with pytest.raises(RolledBack) as raised:
        harness.play(flow.transaction(context(harness), CHECK))
    assert isinstance(raised.value.__cause__, TransactionLost)
    assert "Commit" not in harness.performed
    assert harness.performed[-1] == "abort"


def test_lost_transaction_that_committed_by_itself_is_submitted() -> None:
    harness = Harness(failures={"last_look": TransactionLost()}, verdict=Verdict.COMMITTED)
    with pytest.raises(CommittedDespiteError):
        harness.play(flow.transaction(context(harness), CHECK))
    assert harness.performed[-1] == "submit"


FAULT = HttpAnswer(500, b'{"dtm_result":"FAILURE","message":"x","code":"TP-3005"}')
FAULT_OVER_GRPC = answer_of(2, "x", {"twophase-code": "TP-3005"})


@pytest.mark.parametrize(
    "said", [CUT, FAULT, FAULT_OVER_GRPC], ids=["no answer", "the server's own fault", "the same over gRPC"]
)
def test_prepare_without_answer_means_the_business_does_not_run(said: HttpAnswer | Exception) -> None:
    harness = Harness(answers={Operation.PREPARE: [said]})
    under_way = context(harness)
    with pytest.raises(NotPrepared):
        harness.play(flow.transaction(under_way, CHECK))
    assert "Begin" not in harness.performed
    assert under_way.draft.progress is Progress.NOT_STARTED


def test_prepare_refused_means_the_business_does_not_run() -> None:
    refusal = b'{"dtm_result":"FAILURE","message":"x","code":"TP-2001","state":"submitted"}'
    harness = Harness(answers={Operation.PREPARE: [HttpAnswer(409, refusal)]})
    with pytest.raises(StateConflict):
        harness.play(flow.transaction(context(harness), CHECK))
    assert "Begin" not in harness.performed


def test_check_back_that_came_first_bars_the_business() -> None:
    harness = Harness(failures={"begin_producer": CheckBackCameFirst()}, verdict=Verdict.ROLLED_BACK)
    under_way = context(harness)
    with pytest.raises(CheckBackCameFirst):
        harness.play(flow.transaction(under_way, CHECK))
    assert "Business" not in harness.performed
    assert harness.performed[-1] == "abort"
    assert under_way.draft.progress is Progress.ROLLED_BACK


def test_another_attempt_that_committed_first_is_submitted() -> None:
    harness = Harness(failures={"begin_producer": CheckBackCameFirst()}, verdict=Verdict.COMMITTED)
    with pytest.raises(CommittedDespiteError):
        harness.play(flow.transaction(context(harness, gid_is_ours=False), CHECK))
    assert "Business" not in harness.performed
    assert harness.performed[-1] == "submit"


@pytest.mark.parametrize("refusal", [OpenTransaction(), AutocommitRefused()])
def test_engine_refused_at_begin_is_neither_asked_nor_aborted(refusal: Exception) -> None:
    harness = Harness(failures={"Begin": refusal})
    under_way = context(harness)
    with pytest.raises(type(refusal)):
        harness.play(flow.transaction(under_way, CHECK))
    assert harness.performed == ["ReadIdentity", "prepare", "Begin"]
    assert under_way.draft.progress is Progress.NOT_STARTED


@pytest.mark.parametrize("gid_is_ours", [True, False])
def test_message_of_a_begin_in_the_wrong_database_is_aborted_only_under_a_gid_of_its_own(gid_is_ours: bool) -> None:
    harness = Harness(failures={"begin_producer": DatabaseSwitched()})
    with pytest.raises(DatabaseSwitched):
        harness.play(flow.transaction(context(harness, gid_is_ours=gid_is_ours), CHECK))
    assert ("abort" in harness.performed) is gid_is_ours


ERRORS_OF_ANOTHER_MESSAGE = [
    *(AutocommitRefused(), BeginDeadlinePassed(gid="other"), CheckBackCameFirst(gid="other")),
    *(DatabaseSwitched(gid="other"), NotPrepared(gid="other"), OpenTransaction(), TransactionLost(gid="other")),
    *(Undecided(gid="other"), UnsupportedEngine()),
]


@pytest.mark.parametrize("raised_by", ["business", "Flush"])
@pytest.mark.parametrize("error", ERRORS_OF_ANOTHER_MESSAGE, ids=lambda error: type(error).__name__)
def test_error_of_another_message_in_the_block_decides_nothing(error: Exception, raised_by: str) -> None:
    def play(verdict: Verdict) -> None:
        of_block = {"business": error} if raised_by == "business" else {"failures": {"Flush": error}}
        harness = Harness(verdict=verdict, **of_block)
        under_way = context(harness)
        try:
            harness.play(flow.transaction(under_way, CHECK))
        finally:
            assert harness.performed[-1] == {Verdict.COMMITTED: "submit", Verdict.ROLLED_BACK: "abort"}.get(
                verdict, "AskBarrier"
            )
            reached.append(under_way.draft.progress)

    reached: list[Progress] = []
    if raised_by == "business":
        play(Verdict.ROLLED_BACK)  # the application's own error propagates, as it is
    else:
        with pytest.raises(type(error)) as propagated:
            play(Verdict.ROLLED_BACK)
        assert propagated.value is error
    with pytest.raises(CommittedDespiteError) as committed:
        play(Verdict.COMMITTED)
    assert committed.value.remedy == CommittedDespiteError.remedy
    with pytest.raises(Undecided) as undecided:
        play(Verdict.UNKNOWN)
    assert undecided.value is not error
    assert reached == [Progress.ROLLED_BACK, Progress.SUBMITTED, Progress.UNDECIDED]


def test_database_gone_at_begin_propagates_itself_when_no_other_process_can_have_the_gid() -> None:
    harness = Harness(failures={"Begin": ConnectionError("gone")})
    under_way = context(harness)
    with pytest.raises(ConnectionError, match="gone"):
        harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.NOT_STARTED


def test_database_gone_at_begin_is_undecided_under_a_gid_that_others_may_use() -> None:
    harness = Harness(failures={"Begin": ConnectionError("gone")})
    with pytest.raises(Undecided):
        harness.play(flow.transaction(context(harness, gid_is_ours=False), CHECK))


def test_missing_barrier_table_is_found_before_anything_is_sent() -> None:
    harness = Harness(failures={"ReadIdentity": BarrierTableMissing()})
    with pytest.raises(BarrierTableMissing):
        harness.play(flow.transaction(context(harness), CHECK))
    assert harness.performed == ["ReadIdentity"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_interrupted_business_is_rolled_back_and_nothing_is_sent(interruption: BaseException) -> None:
    harness = Harness(business=interruption)
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert harness.performed == [*BEGINNING, "Rollback", "Close"]
    assert under_way.draft.progress is Progress.UNDECIDED


def test_stop_iteration_of_the_business_is_an_exception_like_any_other() -> None:
    harness = Harness(business=StopIteration(), verdict=Verdict.ROLLED_BACK)
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.ROLLED_BACK


def test_submit_that_does_not_get_through_raises_nothing() -> None:
    harness = Harness(answers={Operation.SUBMIT: [CUT]})
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.COMMITTED


def test_submit_refused_for_any_reason_but_contrary_raises_nothing() -> None:
    harness = Harness(answers={Operation.SUBMIT: [HttpAnswer(400, b'{"message":"too large","code":"TP-1001"}')]})
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.COMMITTED


@pytest.mark.parametrize("wait_result", [False, True])
def test_a_time_limit_that_a_signal_raises_while_submit_waits_says_committed(wait_result: bool) -> None:
    """A caller that sees its own time limit alone would repeat the business."""
    limit = TimeoutError("the worker's soft time limit")
    harness = Harness(answers={Operation.SUBMIT: [limit]})
    under_way = context(harness, options=Options(wait_result=wait_result))
    with pytest.raises(CommittedDespiteError, match="TimeoutError was raised") as raised:
        harness.play(flow.transaction(under_way, CHECK))
    assert raised.value.__cause__ is limit
    assert under_way.draft.progress is Progress.COMMITTED


def test_a_time_limit_while_a_commit_that_failed_is_submitted_says_committed() -> None:
    cut, limit = OSError("cut"), TimeoutError("the worker's soft time limit")
    harness = Harness(failures={"Commit": cut}, answers={Operation.SUBMIT: [limit]}, verdict=Verdict.COMMITTED)
    with pytest.raises(CommittedDespiteError, match="OSError was raised") as raised:
        harness.play(flow.transaction(context(harness), CHECK))
    assert raised.value.__cause__ is cut


def test_an_interruption_while_submit_waits_propagates_itself() -> None:
    harness = Harness(failures={"submit": KeyboardInterrupt()})
    under_way = context(harness)
    with pytest.raises(KeyboardInterrupt):
        harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.COMMITTED


def test_submit_of_a_succeeded_message_is_success() -> None:
    finished = b'{"dtm_result":"FAILURE","message":"x","code":"TP-2001","state":"succeed"}'
    harness = Harness(answers={Operation.SUBMIT: [CUT, HttpAnswer(409, finished)]})
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.SUBMITTED


def test_message_failed_by_someone_else_after_the_commit_is_a_contrary_decision() -> None:
    failed = b'{"dtm_result":"FAILURE","message":"x","code":"TP-2001","state":"failed"}'
    harness = Harness(answers={Operation.SUBMIT: [HttpAnswer(409, failed)]})
    with pytest.raises(ContraryDecision, match="is committed"):
        harness.play(flow.transaction(context(harness), CHECK))


def test_wait_result_says_committed_not_yet_delivered() -> None:
    pending = b'{"dtm_result":"FAILURE","message":"x","code":"TP-2006","state":"submitted"}'
    harness = Harness(answers={Operation.SUBMIT: [HttpAnswer(409, pending)]})
    under_way = context(harness, options=Options(wait_result=True))
    with pytest.raises(NotYetDelivered):
        harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.SUBMITTED


def test_wait_result_without_answer_says_committed_not_yet_delivered() -> None:
    harness = Harness(answers={Operation.SUBMIT: [CUT]})
    under_way = context(harness, options=Options(wait_result=True))
    with pytest.raises(NotYetDelivered, match="is committed"):
        harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.COMMITTED


def test_branches_added_inside_travel_in_the_barrier_row_and_in_submit() -> None:
    harness = Harness()
    under_way = context(harness, options=Options(open=True))
    harness.business = lambda: under_way.draft.add("http://b/receipt", 5)
    harness.play(flow.transaction(under_way, CHECK))
    assert harness.performed == [*BEGINNING, "Flush", "write_branches", "last_look", "Commit", "Close", "submit"]
    assert [step["action"] for step in harness.bodies["prepare"]["steps"]] == ["http://b/1"]
    assert harness.bodies["prepare"]["open"] is True
    assert [step["action"] for step in harness.bodies["submit"]["steps"]] == ["http://b/1", "http://b/receipt"]


def test_branches_too_large_for_a_submit_are_refused_while_everything_can_be_rolled_back() -> None:
    harness = Harness(verdict=Verdict.ROLLED_BACK)
    under_way = context(harness, options=Options(open=True))

    def business() -> None:
        for _ in range(4):
            under_way.draft.add("http://b/large", b'"' * 600_000)  # each quotation mark is two characters in JSON

    harness.business = business
    with pytest.raises(LimitExceeded, match="request body is 48"):
        harness.play(flow.transaction(under_way, CHECK))
    assert harness.performed[len(BEGINNING) :] == ["Flush", "Rollback", "Close", "AskBarrier", "abort"]


def test_more_branches_than_one_request_holds_are_refused_when_they_are_added() -> None:
    draft = context(Harness(), options=Options(open=True)).draft
    for _ in range(3):
        draft.add("http://b/large", b"x" * 1_048_576)
    with pytest.raises(LimitExceeded, match="request body"):
        draft.add("http://b/large", b"x" * 1_048_576)
    draft.add("http://b/small", b"x")


def test_an_open_message_without_added_branches_says_so_in_the_row() -> None:
    harness = Harness()
    harness.play(flow.transaction(context(harness, options=Options(open=True)), CHECK))
    assert harness.performed == [*BEGINNING, "Flush", "write_branches", "last_look", "Commit", "Close", "submit"]


def test_row_decides_which_added_branches_follow_a_commit_that_happened_by_itself() -> None:
    row = encode_branches((Branch("http://b/written", b"1"),))
    harness = Harness(failures={"last_look": TransactionLost()}, verdict=CheckBackAnswer(Verdict.COMMITTED, row))
    under_way = context(harness, options=Options(open=True))
    harness.business = lambda: under_way.draft.add("http://b/other")
    with pytest.raises(CommittedDespiteError):
        harness.play(flow.transaction(under_way, CHECK))
    assert [step["action"] for step in harness.bodies["submit"]["steps"]] == ["http://b/1", "http://b/written"]


def test_branch_added_inside_a_message_that_is_not_open_is_refused() -> None:
    harness = Harness(verdict=Verdict.ROLLED_BACK)
    under_way = context(harness)

    def business() -> BaseException | None:
        with pytest.raises(InvalidRequest, match="allow_late_branches=True"):
            under_way.draft.add("http://b/late")
        return None

    harness.business = business
    harness.play(flow.transaction(under_way, CHECK))
    assert len(under_way.draft.branches) == 1


def test_message_is_used_once() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    with pytest.raises(MessageUsedTwice):
        harness.play(flow.transaction(under_way, CHECK))
    assert harness.performed.count("prepare") == 1


def test_a_used_message_says_what_became_of_it_and_that_nothing_changes() -> None:
    harness = Harness()
    under_way = context(harness)
    harness.play(flow.transaction(under_way, CHECK))
    with pytest.raises(MessageUsedTwice, match="is submitted; its branches are called") as refused:
        harness.play(flow.transaction(under_way, CHECK))
    assert refused.value.fate is Fate.UNCHANGED


def test_message_without_branches_is_refused_before_anything_happens_and_may_be_corrected() -> None:
    harness = Harness()
    under_way = context(harness, branches=0)
    with pytest.raises(InvalidRequest, match="no branch"):
        harness.play(flow.transaction(under_way, CHECK))
    assert harness.performed == []
    under_way.draft.add("http://b/1")
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.SUBMITTED


def test_a_check_that_is_no_text_is_refused_before_anything_happens() -> None:
    harness = Harness()
    with pytest.raises(InvalidRequest, match=r"check is of object.*the engine comes first"):
        harness.play(flow.transaction(context(harness), object()))  # type: ignore[arg-type]
    assert harness.performed == []


def test_open_message_for_another_librarys_check_back_is_refused_and_may_be_corrected() -> None:
    harness = Harness()
    under_way = context(harness, options=Options(open=True))
    with pytest.raises(InvalidRequest, match="foreign_check"):
        harness.play(flow.transaction(msgspec.structs.replace(under_way, explicit_verdict=False), CHECK))
    assert harness.performed == []
    harness.play(flow.transaction(under_way, CHECK))
    assert under_way.draft.progress is Progress.SUBMITTED


@pytest.mark.parametrize("check", ["", "bank-a/check", "http://a/ check", "http://a/\n"])
def test_check_address_that_is_none_is_refused_before_anything_happens(check: str) -> None:
    harness = Harness()
    with pytest.raises(InvalidRequest, match="check"):
        harness.play(flow.transaction(context(harness), check))
    assert harness.performed == []


def test_check_address_is_too_long_before_anything_is_sent() -> None:
    harness = Harness()
    with pytest.raises(LimitExceeded):
        harness.play(flow.transaction(context(harness), "http://a/" + "x" * 2040))
    assert "prepare" not in harness.performed


def test_abandoned_flow_ends_quietly() -> None:
    harness = Harness()
    steps = flow.transaction(context(harness), CHECK)
    command = next(steps)
    for result in ("7f", HttpAnswer(200, b'{"dtm_result":"SUCCESS"}'), None):
        command = steps.send(result)
    assert isinstance(command, flow.Rule)
    steps.close()


@pytest.mark.parametrize(("added", "encoded"), [(0, ["prepare"]), (1, ["prepare", "submit"])])
def test_submit_is_encoded_anew_only_where_it_says_more_than_prepare(added: int, encoded: list[str]) -> None:
    harness = Harness()
    seen: list[str] = []

    def encode(content: Message, operation: Operation) -> bytes:
        seen.append(operation.value)
        return encode_request(content, operation)

    under_way = msgspec.structs.replace(context(harness, options=Options(open=True)), encode=encode)

    def business() -> None:
        for _ in range(added):
            under_way.draft.add("http://b/receipt", 7)

    harness.business = business
    harness.play(flow.transaction(under_way, CHECK))
    assert seen == encoded
    assert len(harness.bodies["submit"]["steps"]) == 1 + added
    assert harness.bodies["submit"]["query_prepared"] == harness.bodies["prepare"]["query_prepared"]


def lose_branches(harness: Harness) -> tuple[flow.FlowContext, BranchesLost]:
    """Play a message whose block ended its transaction too early.

    The branches added in it were not written yet.
    """
    under_way = context(harness, options=Options(open=True))

    def business() -> None:
        for url in ("http://b/one", "http://b/two"):
            under_way.draft.add(url, "secret")

    harness.business = business
    with pytest.raises(BranchesLost) as raised:
        harness.play(flow.transaction(under_way, CHECK))
    return under_way, raised.value


def row_without_branches() -> Harness:
    answer = CheckBackAnswer(Verdict.UNKNOWN, evidence="TP-5013", branches_lost=True)
    return Harness(failures={"last_look": TransactionLost()}, verdict=answer)


def test_branches_that_are_in_no_row_are_named_and_nothing_is_submitted() -> None:
    harness = row_without_branches()
    under_way, raised = lose_branches(harness)
    assert isinstance(raised, CommittedDespiteError)
    assert raised.branches == ("http://b/1", "http://b/one", "http://b/two")
    assert all(url in str(raised) for url in raised.branches)
    assert "secret" not in str(raised)
    assert harness.performed[-1] == "AskBarrier"
    assert under_way.draft.progress is Progress.BRANCHES_LOST


def test_a_message_whose_branches_are_in_no_row_may_be_submitted_by_hand_with_all_of_them() -> None:
    harness = row_without_branches()
    under_way, _ = lose_branches(harness)
    harness.play(manual.submit(under_way))
    assert [step["action"] for step in harness.bodies["submit"]["steps"]] == [
        "http://b/1",
        "http://b/one",
        "http://b/two",
    ]
    assert under_way.draft.progress is Progress.SUBMITTED


@pytest.mark.parametrize("decide", [manual.abort, partial(manual.prepare, check_url=CHECK, explicit_verdict=True)])
def test_a_message_whose_branches_are_in_no_row_is_neither_aborted_nor_prepared_by_hand(decide: Any) -> None:
    harness = row_without_branches()
    under_way, _ = lose_branches(harness)
    with pytest.raises(MessageUsedTwice, match="committed without its branches"):
        harness.play(decide(under_way))
