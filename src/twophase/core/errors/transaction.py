"""Errors of local transactions and of settings: codes TP-5000 to TP-7001."""

from __future__ import annotations

from twophase.core.errors.base import Fate, TwophaseError


class TransactionError(TwophaseError):
    """The local transaction failed."""

    code = "TP-5000"


class RolledBack(TransactionError):
    """The local transaction is rolled back; no branch will be called."""

    code = "TP-5001"
    fate = Fate.ROLLED_BACK
    remedy = "Repeat the operation with a new message if it is still wanted."


class CheckBackCameFirst(RolledBack):
    """The coordinator asked before this transaction began, so the transaction can no longer begin."""

    code = "TP-5002"
    remedy = "Repeat the operation with a new message; begin sooner after prepare, or raise check_after."


class Undecided(TransactionError):
    """Whether the local transaction committed is not known yet; the check-back will decide."""

    code = "TP-5003"
    fate = Fate.UNDECIDED
    remedy = "Do not repeat the operation with a new gid. Run `twophase explain GID`, or wait for the check-back."


class CommittedDespiteError(TransactionError):
    """There was an error, but the local transaction is committed and its branches will be called."""

    code = "TP-5004"
    fate = Fate.COMMITTED
    remedy = "Do not repeat the operation. Look at the chained cause."


class BranchesLost(CommittedDespiteError):
    """The block committed before the branches added in it were written, so no branch is called.

    The message stays undecided. `branches` holds the addresses of its branches, as far as they are known here.
    """

    code = "TP-5013"
    remedy = (
        "Remove the commit from the block. Do not repeat the operation: complete what is missing manually; then call "
        "message.submit(), which sends the branches, or run `twophase messages stop GID --override`."
    )

    def __init__(self, message: str | None = None, *, gid: str | None = None, branches: tuple[str, ...] = ()) -> None:
        """Make the error; `branches` are addresses without payloads."""
        super().__init__(message, gid=gid)
        self.branches = branches


class OpenTransaction(TransactionError):
    """The connection is already in a transaction, and this library could not see how that ends."""

    code = "TP-5005"
    fate = Fate.NOT_STARTED
    remedy = (
        "Give an engine, a pool or an idle connection; for a Session in a transaction use "
        "message.join(session, check); in a test that rolls everything back, twophase.testing.outer_transaction."
    )


class AutocommitRefused(TransactionError):
    """The engine commits every statement by itself, so the barrier row could be committed without the business rows."""

    code = "TP-5006"
    fate = Fate.NOT_STARTED
    remedy = "Use an engine without AUTOCOMMIT isolation, or a connection with autocommit off."


class BeginDeadlinePassed(RolledBack):
    """The message was prepared too long ago for its transaction to begin safely."""

    code = "TP-5007"
    remedy = "Begin within an hour after prepare; repeat the operation with a new message."


class MessageUsedTwice(TransactionError):
    """A Message object was used twice, or decided manually against its local transaction; nothing changed."""

    code = "TP-5008"
    remedy = "Make a new Message for each transaction; the outcome of this one stands."


class TransactionLost(TransactionError):
    """The transaction that wrote the barrier row is no longer open: something inside the block ended or damaged it."""

    code = "TP-5009"
    fate = Fate.UNDECIDED
    remedy = (
        "Inside the block, do not commit, roll back, run statements that commit implicitly, or swallow errors. A block "
        "that chooses another schema or database (search_path, USE) needs a table named with its schema."
    )


class FunctionRefused(TransactionError):
    """The function would not have run in the transaction, or returned a refusal."""

    code = "TP-5010"
    remedy = (
        "Pass a plain function to a blocking call, and an `async def` to an AsyncMessage or a call whose name begins "
        "with `a`. Nothing was committed."
    )


class BranchSpoilt(TransactionError):
    """An earlier call of this branch ended its transaction inside the block, so part of its effect may be committed."""

    code = "TP-5011"
    remedy = (
        "Remove the commit from the branch's function. Then complete the effect manually and set the barrier row's "
        "reason to 'action', or undo the effect and delete the row; the next call continues from there."
    )


class EventLoopBlocked(TransactionError):
    """A blocking call was made in a running event loop, which it would stop; nothing was sent."""

    code = "TP-5012"
    fate = Fate.NOT_STARTED
    remedy = "Use the call for asyncio, or run the blocking one in a thread (`asyncio.to_thread`, `run_in_threadpool`)."


class OutsideTransaction(TransactionError):
    """A write, or a session that is passed in, is outside the transaction."""

    code = "TP-5014"
    remedy = (
        "Run what belongs together on what the block or function is given; the transaction rolls back when this error "
        "leaves it."
    )


class BarrierError(TwophaseError):
    """The barrier in the business database failed."""

    code = "TP-6000"


class BarrierTableMissing(BarrierError):
    """The barrier table does not exist in this database."""

    code = "TP-6001"
    fate = Fate.NOT_STARTED
    remedy = (
        "Run `twophase barrier install URL` once for this database, or `python manage.py migrate` where the Django app "
        "`twophase.integrations.django` is installed."
    )


class WrongDatabase(BarrierError):
    """The check-back looks at a different database from the producer's transaction."""

    code = "TP-6002"
    fate = Fate.UNDECIDED
    remedy = "Bind the check-back route to the same database (shard, alias, schema) as the transaction."


class UnsafeDatabase(BarrierError):
    """The business database may lose a commit that it has confirmed."""

    code = "TP-6003"
    fate = Fate.NOT_STARTED
    remedy = (
        "Set the database to flush on commit, as the message says; or, if losing a commit does no harm, send through "
        "Client(url, allow_unsafe_database=True)."
    )


class UnsupportedEngine(BarrierError):
    """This is not an engine, pool, session or connection that twophase supports."""

    code = "TP-6004"
    fate = Fate.NOT_STARTED
    remedy = (
        "Give a SQLAlchemy 2 engine, connection or session; "
        "or a connection of sqlite3, aiosqlite, psycopg 3, asyncpg or PyMySQL."
    )


class BarrierRowRefused(BarrierError):
    """The barrier table refuses a row although it has no row with the same key."""

    code = "TP-6005"
    fate = Fate.NOT_STARTED
    remedy = (
        "Run `twophase barrier install URL`: it advances a PostgreSQL sequence that is behind the rows. If that does "
        "not help, remove what refuses the row: unique indexes that are not the barrier's own, triggers that drop the "
        "row, key columns that truncate values."
    )


class BarrierTableUnusable(BarrierError):
    """The barrier table, as it is, cannot keep the promises."""

    code = "TP-6006"
    fate = Fate.NOT_STARTED
    remedy = (
        "Run `twophase barrier install URL`: it repairs what it can and names what it cannot. Or install another table "
        "with --table, and name it in `table=`."
    )


class DatabaseSwitched(BarrierError):
    """The transaction began in another database than the check address names; it is rolled back."""

    code = "TP-6007"
    fate = Fate.NOT_STARTED
    remedy = (
        "Send the message again, as a new one: from now on the database's identity is read anew for each message of "
        "this engine. If the engine is not meant to change databases, find what changes its schema or database."
    )


class DatabaseIsReplica(BarrierError):
    """This database is a replica, which may be behind the database that decides."""

    code = "TP-6008"
    fate = Fate.NOT_STARTED
    remedy = "Connect to the primary. If this is the primary, remove the replication channel or subscription left here."


class ConfigurationError(TwophaseError):
    """A setting cannot be used."""

    code = "TP-7000"
    concerns_a_message = False
    remedy = "Correct what is named here, and try again."


class SourceError(ConfigurationError):
    """The store that messages are imported from cannot be read."""

    code = "TP-7001"
    remedy = "Correct what is named here and run the import again; what was copied is not copied twice."
