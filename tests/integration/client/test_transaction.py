"""The specification of a message's transaction, run over every engine.

It states what the database, the coordinator and the caller hold in the end, whatever happens in between (dtm-wire §5.5
and dtm-wire §7, rows 12 to 16; correctness rules 1 to 4).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.integration.client.banks import CHECK, Bank, BusinessHandle, Kind
from tests.integration.client.cutting_proxy import Cut, CuttingProxy
from tests.integration.client.ledgers import TRANSFER, WRONG_STATEMENT
from tests.support.one_try import one_try
from tests.support.recording_coordinator import CUT, RecordingCoordinator, Request, Told, unused_url
from twophase import AsyncClient, AsyncMessage, Client, Message, Progress, Verdict
from twophase.core.message import decode_branches
from twophase.errors import (
    BranchesLost,
    CheckBackCameFirst,
    CommittedDespiteError,
    ContraryDecision,
    DatabaseSwitched,
    MessageUsedTwice,
    NotPrepared,
    NotYetDelivered,
    Overloaded,
    RolledBack,
    StateConflict,
    TransactionLost,
    Undecided,
)

RECEIVER = "http://bank-b/transfer-in"


class Overdrawn(Exception):
    """A refusal by the business code."""


def transfer_message(server: str, **options: object) -> Message:
    return Message(server, **options).add(RECEIVER, {"account": "B", "amount": 30})  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def impatient_message(bank: Bank, server: str) -> AsyncIterator[Message | AsyncMessage]:
    """A transfer whose requests are tried once."""
    if bank.kind.is_async:
        async with one_try(AsyncClient(server)) as coordinator:
            yield coordinator.message().add(RECEIVER, {"account": "B", "amount": 30})
    else:
        with one_try(Client(server)) as blocking:
            yield blocking.message().add(RECEIVER, {"account": "B", "amount": 30})


async def transfer(handle: BusinessHandle) -> None:
    await handle.execute(TRANSFER)


async def overdraw(handle: BusinessHandle) -> None:
    await handle.execute(TRANSFER)
    raise Overdrawn


async def test_committed_transaction_is_submitted(bank: Bank, coordinator: RecordingCoordinator) -> None:
    message = transfer_message(coordinator.url)
    await bank.transact(message, transfer)
    assert bank.ledger.balance() == 70
    assert bank.ledger.barrier() == [(message.gid, "msg")]
    assert coordinator.operations == ["prepare", "submit"]
    assert coordinator.last("submit")["steps"] == [{"action": RECEIVER}]
    assert message.submitted


async def test_one_engine_serves_message_after_message(bank: Bank, coordinator: RecordingCoordinator) -> None:
    for _ in range(3):
        await bank.transact(transfer_message(coordinator.url), transfer)
    assert bank.ledger.balance() == 10
    assert coordinator.operations == ["prepare", "submit"] * 3


async def test_check_address_names_the_database(bank: Bank, coordinator: RecordingCoordinator) -> None:
    await bank.transact(transfer_message(coordinator.url), transfer)
    ((identity,),) = bank.ledger.run("select value from twophase_meta where name = 'identity'")
    assert coordinator.last("prepare")["query_prepared"] == f"{CHECK}?barrier={identity}"


async def test_business_error_rolls_back_aborts_and_propagates(bank: Bank, coordinator: RecordingCoordinator) -> None:
    message = transfer_message(coordinator.url)
    with pytest.raises(Overdrawn):
        await bank.transact(message, overdraw)
    assert bank.ledger.balance() == 100
    assert bank.ledger.barrier() == [(message.gid, "rollback")]
    assert coordinator.operations == ["prepare", "abort"]
    assert message.state is Progress.ROLLED_BACK


async def test_another_message_of_the_block_whose_database_switched_decides_nothing_about_this_one(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def commits_and_fails(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        await handle.commit()
        raise DatabaseSwitched(gid="another")

    async def fails(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        raise DatabaseSwitched(gid="another")

    message = transfer_message(coordinator.url)
    with pytest.raises(CommittedDespiteError):
        await bank.transact(message, commits_and_fails)
    assert bank.ledger.balance() == 70
    assert (coordinator.operations, message.state) == (["prepare", "submit"], Progress.SUBMITTED)
    message = transfer_message(coordinator.url)
    with pytest.raises(DatabaseSwitched):
        await bank.transact(message, fails)
    assert bank.ledger.balance() == 70
    assert (coordinator.operations[2:], message.state) == (["prepare", "abort"], Progress.ROLLED_BACK)
    assert (message.gid, "rollback") in bank.ledger.barrier()


async def test_engine_is_usable_after_a_business_error(bank: Bank, coordinator: RecordingCoordinator) -> None:
    with pytest.raises(Overdrawn):
        await bank.transact(transfer_message(coordinator.url), overdraw)
    await bank.transact(transfer_message(coordinator.url), transfer)
    assert bank.ledger.balance() == 70


async def test_check_back_that_came_first_bars_the_business(bank: Bank, coordinator: RecordingCoordinator) -> None:
    def ask_early(request: Request) -> None:
        if request.operation == "prepare":
            assert bank.ledger.check_back(request.body["gid"]).verdict is Verdict.ROLLED_BACK

    coordinator.before_answer = ask_early
    message = transfer_message(coordinator.url)
    with pytest.raises(CheckBackCameFirst):
        await bank.transact(message, transfer)
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]
    assert message.state is Progress.ROLLED_BACK


async def test_prepare_without_coordinator_means_the_business_does_not_run(bank: Bank) -> None:
    ran = False

    async def business(handle: BusinessHandle) -> None:
        nonlocal ran
        ran = True

    async with impatient_message(bank, unused_url()) as message:
        with pytest.raises(NotPrepared):
            await bank.transact(message, business)
    assert not ran
    assert bank.ledger.barrier() == []
    assert message.state is Progress.NOT_STARTED


async def test_submit_without_coordinator_raises_nothing(bank: Bank, coordinator: RecordingCoordinator) -> None:
    coordinator.tell("submit", CUT)
    async with impatient_message(bank, coordinator.url) as message:
        await bank.transact(message, transfer)
    assert bank.ledger.balance() == 70
    assert not message.submitted
    assert message.state is Progress.COMMITTED


async def test_branches_added_inside_are_in_the_row_and_in_submit(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator.url, allow_late_branches=True)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        message.add("http://mailer/receipt", {"left": 70})

    await bank.transact(message, business)
    ((body,),) = bank.ledger.run("select body from barrier")
    assert [branch.url for branch in decode_branches(bytes(body))] == ["http://mailer/receipt"]
    assert [step["action"] for step in coordinator.last("prepare")["steps"]] == [RECEIVER]
    assert [step["action"] for step in coordinator.last("submit")["steps"]] == [RECEIVER, "http://mailer/receipt"]


async def test_an_open_message_to_which_nothing_was_added_is_committed_with_an_empty_list(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator.url, allow_late_branches=True)
    await bank.transact(message, transfer)
    ((body,),) = bank.ledger.run("select body from barrier")
    assert decode_branches(bytes(body)) == ()
    assert bank.ledger.check_back(message.gid).verdict is Verdict.COMMITTED


async def test_an_open_message_whose_block_ends_its_transaction_is_not_submitted(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator.url, allow_late_branches=True)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        await handle.commit()
        message.add("http://mailer/receipt")

    with pytest.raises(BranchesLost) as raised:
        await bank.transact(message, business)
    assert isinstance(raised.value.__cause__, TransactionLost)
    assert raised.value.branches == (RECEIVER, "http://mailer/receipt")
    assert bank.ledger.balance() == 70
    assert [bytes(body) for (body,) in bank.ledger.run("select body from barrier")] == [b""]
    assert coordinator.operations == ["prepare"]
    assert message.state is Progress.BRANCHES_LOST
    answer = bank.ledger.check_back(message.gid)
    assert (answer.verdict, answer.branches_lost) == (Verdict.UNKNOWN, True)


async def test_an_error_about_a_lost_transaction_says_by_itself_what_to_do(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        await handle.commit()

    with pytest.raises(CommittedDespiteError) as raised:
        await bank.transact(transfer_message(coordinator.url), business)
    said = str(raised.value)
    assert "TP-5009" in said
    assert "Fate: committed. Do not repeat the operation. Inside the block, do not commit" in said


async def test_commit_inside_the_block_is_found_out_and_submitted(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    message = transfer_message(coordinator.url)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        await handle.commit()

    with pytest.raises(CommittedDespiteError) as raised:
        await bank.transact(message, business)
    assert isinstance(raised.value.__cause__, TransactionLost)
    assert "TransactionLost (TP-5009: " in raised.value.message
    assert raised.value.__cause__.message in raised.value.message
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]


async def test_commit_inside_then_an_error_is_submitted_not_aborted(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        await handle.commit()
        raise Overdrawn

    with pytest.raises(CommittedDespiteError) as raised:
        await bank.transact(transfer_message(coordinator.url), business)
    assert isinstance(raised.value.__cause__, Overdrawn)
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]


@pytest.mark.kinds(where=lambda kind: kind.database == "postgresql")
async def test_a_block_that_commits_before_its_business_learns_that_its_branches_are_called(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute("commit")
        await handle.execute("begin")
        await handle.execute(TRANSFER)

    with pytest.raises(CommittedDespiteError, match="TP-5009"):
        await bank.transact(transfer_message(coordinator.url), business)
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "submit"]


@pytest.mark.kinds(where=lambda kind: kind.database == "postgresql")
async def test_swallowed_statement_error_never_becomes_a_ghost(bank: Bank, coordinator: RecordingCoordinator) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        with contextlib.suppress(Exception):
            await handle.execute(WRONG_STATEMENT)

    with pytest.raises(RolledBack):
        await bank.transact(transfer_message(coordinator.url), business)
    assert bank.ledger.balance() == 100
    assert coordinator.operations == ["prepare", "abort"]


@pytest.mark.kinds(where=lambda kind: kind.database != "postgresql")
async def test_swallowed_statement_error_leaves_the_rest_committed_and_submitted(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        with contextlib.suppress(Exception):
            await handle.execute(WRONG_STATEMENT)

    await bank.transact(transfer_message(coordinator.url), business)
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]


@pytest.mark.kinds(where=lambda kind: kind.database != "sqlite")
async def test_commit_whose_reply_is_lost_is_submitted_and_reported(
    bank_behind_proxy: Bank, proxy: CuttingProxy, coordinator: RecordingCoordinator
) -> None:
    bank = bank_behind_proxy
    message = transfer_message(coordinator.url)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        proxy.arm(Cut.BEFORE_REPLY)

    if _has_one_connection(bank.kind):
        # Only the connection that died could be asked.
        with pytest.raises(Undecided):
            await bank.transact(message, business)
        assert coordinator.operations == ["prepare"]
    else:
        with pytest.raises(CommittedDespiteError):
            await bank.transact(message, business)
        assert coordinator.operations == ["prepare", "submit"]
        assert message.submitted
    assert proxy.has_cut.is_set()
    assert bank.ledger.balance() == 70


@pytest.mark.kinds(where=lambda kind: kind.database != "sqlite")
async def test_commit_that_never_arrives_is_never_delivered(
    bank_behind_proxy: Bank, proxy: CuttingProxy, coordinator: RecordingCoordinator
) -> None:
    bank = bank_behind_proxy

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        proxy.arm(Cut.BEFORE_COMMIT)

    with pytest.raises(Exception) as raised:  # noqa: PT011 -- every driver has its own
        await bank.transact(transfer_message(coordinator.url), business)
    assert proxy.has_cut.is_set()
    assert bank.ledger.balance() == 100
    assert "submit" not in coordinator.operations
    # "Undecided" when the dying session still held the row during the question.
    assert ("abort" in coordinator.operations) is not isinstance(raised.value, Undecided)


@pytest.mark.kinds(where=lambda kind: kind.database != "sqlite")
async def test_unclear_commit_with_the_database_gone_is_undecided(
    bank_behind_proxy: Bank, proxy: CuttingProxy, coordinator: RecordingCoordinator
) -> None:
    bank = bank_behind_proxy
    message = transfer_message(coordinator.url)

    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        proxy.arm(Cut.BEFORE_REPLY, refuse_afterwards=True)

    with pytest.raises(Undecided) as raised:
        await bank.transact(message, business)
    assert raised.value.gid == message.gid
    assert raised.value.__cause__ is not None
    assert coordinator.operations == ["prepare"]
    assert message.state is Progress.UNDECIDED


@pytest.mark.kinds(where=lambda kind: kind.database == "mysql")
async def test_statement_with_an_implicit_commit_is_found_out_and_submitted(
    bank: Bank, coordinator: RecordingCoordinator
) -> None:
    async def business(handle: BusinessHandle) -> None:
        await handle.execute(TRANSFER)
        await handle.execute("create or replace table surprise (id int)")

    with pytest.raises(CommittedDespiteError) as raised:
        await bank.transact(transfer_message(coordinator.url), business)
    assert isinstance(raised.value.__cause__, TransactionLost)
    assert bank.ledger.balance() == 70
    assert coordinator.operations == ["prepare", "submit"]


def _has_one_connection(kind: Kind) -> bool:
    return kind.name in {"psycopg", "psycopg async", "pymysql", "asyncpg connection"}


async def test_check_back_of_a_committed_message_says_committed(bank: Bank, coordinator: RecordingCoordinator) -> None:
    coordinator.tell("submit", CUT)
    async with impatient_message(bank, coordinator.url) as message:
        await bank.transact(message, transfer)
    assert bank.ledger.check_back(message.gid).verdict is Verdict.COMMITTED


class TestEngineOfOneKind:
    """Behaviour that does not depend on the engine, shown on one."""

    pytestmark = pytest.mark.kinds(where=lambda kind: kind.name in {"sqlite engine", "sqlite async engine"})

    async def test_wrong_address_is_an_error_before_the_business(
        self, bank: Bank, coordinator: RecordingCoordinator
    ) -> None:
        coordinator.tell("prepare", Told(404, b"404 page not found"))
        with pytest.raises(NotPrepared, match="status 404"):
            await bank.transact(transfer_message(coordinator.url), transfer)
        assert bank.ledger.balance() == 100

    async def test_prepare_of_a_decided_gid_is_refused(self, bank: Bank, coordinator: RecordingCoordinator) -> None:
        refusal = b'{"dtm_result":"FAILURE","message":"x FAILURE","code":"TP-2001","state":"succeed"}'
        coordinator.tell("prepare", Told(409, refusal))
        with pytest.raises(StateConflict):
            await bank.transact(transfer_message(coordinator.url), transfer)
        assert bank.ledger.balance() == 100

    async def test_overloaded_coordinator_is_waited_for(self, bank: Bank, coordinator: RecordingCoordinator) -> None:
        full = Told(503, b'{"message":"full","code":"TP-3001"}', (("Retry-After", "0.05"),))
        coordinator.tell("prepare", full, Told(body=b'{"dtm_result":"SUCCESS"}'))
        await bank.transact(transfer_message(coordinator.url), transfer)
        assert coordinator.operations == ["prepare", "prepare", "submit"]

    async def test_coordinator_overloaded_for_too_long_is_an_error(
        self, bank: Bank, coordinator: RecordingCoordinator
    ) -> None:
        coordinator.tell("prepare", Told(503, b'{"message":"full","code":"TP-3001"}', (("Retry-After", "3600"),)))
        with pytest.raises(Overloaded):
            await bank.transact(transfer_message(coordinator.url), transfer)
        assert bank.ledger.balance() == 100

    async def test_lost_reply_to_submit_is_asked_for_again(self, bank: Bank, coordinator: RecordingCoordinator) -> None:
        finished = b'{"dtm_result":"FAILURE","message":"current status \'succeed\', cannot sumbmit. FAILURE"}'
        coordinator.tell("submit", CUT, Told(409, finished))
        message = transfer_message(coordinator.url)
        await bank.transact(message, transfer)
        assert message.submitted

    async def test_message_that_someone_failed_is_a_contrary_decision(
        self, bank: Bank, coordinator: RecordingCoordinator
    ) -> None:
        coordinator.tell("submit", Told(409, b'{"dtm_result":"FAILURE","message":"x FAILURE","state":"failed"}'))
        with pytest.raises(ContraryDecision):
            await bank.transact(transfer_message(coordinator.url), transfer)
        assert bank.ledger.balance() == 70

    async def test_wait_result_says_committed_but_not_yet_delivered(
        self, bank: Bank, coordinator: RecordingCoordinator
    ) -> None:
        pending = b'{"dtm_result":"FAILURE","message":"x FAILURE","code":"TP-2006","state":"submitted"}'
        coordinator.tell("submit", Told(409, pending))
        message = transfer_message(coordinator.url, wait_result=True)
        with pytest.raises(NotYetDelivered):
            await bank.transact(message, transfer)
        assert bank.ledger.balance() == 70
        assert message.submitted

    async def test_options_travel_with_prepare_and_submit(self, bank: Bank, coordinator: RecordingCoordinator) -> None:
        message = transfer_message(
            coordinator.url, delay=2.5, headers={"x-tenant": "blue"}, branch_timeout=4, check_after=60
        )
        await bank.transact(message, transfer)
        for operation in ("prepare", "submit"):
            said = coordinator.last(operation)
            assert said["delay_ms"] == 2_500
            assert said["branch_headers"] == {"x-tenant": "blue"}
            assert said["request_timeout_ms"] == 4_000
            assert said["timeout_to_fail_ms"] == 60_000

    async def test_second_transaction_of_a_message_is_refused(
        self, bank: Bank, coordinator: RecordingCoordinator
    ) -> None:
        message = transfer_message(coordinator.url)
        await bank.transact(message, transfer)
        with pytest.raises(MessageUsedTwice):
            await bank.transact(message, transfer)
        assert bank.ledger.balance() == 70

    async def test_message_decided_by_another_attempt_at_its_gid_is_submitted_once_more(
        self, bank: Bank, coordinator: RecordingCoordinator
    ) -> None:
        await bank.transact(transfer_message(coordinator.url, gid="order-17"), transfer)
        with pytest.raises(CommittedDespiteError):
            await bank.transact(transfer_message(coordinator.url, gid="order-17"), transfer)
        assert bank.ledger.balance() == 70
        assert "abort" not in coordinator.operations


def test_coordinator_object_keeps_its_own_connections(coordinator: RecordingCoordinator) -> None:
    with Client(coordinator.url, authorization="Bearer x") as own:
        for _ in range(3):
            own.message().add(RECEIVER).submit()
    assert coordinator.connections == 1
    assert coordinator.requests[0].headers["authorization"] == "Bearer x"
