"""Every failure twophase reports, as one flat tree: code, what it means for the message's fate, remedy.

A caller who catches an error must learn three things from it: what happened, what became of the message,
and what to do next. So each class carries a stable `code` (never reused), a `fate` and a `remedy`; its
docstring's first line is the default text.

    TwophaseError
    ├── InvalidRequest            TP-1000  the request cannot be understood
    │   ├── LimitExceeded         TP-1001  a documented limit was passed
    │   ├── UnsupportedType       TP-1002  SAGA, TCC, XA, workflow, unknown trans_type
    │   ├── TopicNotFound         TP-1003  no such topic
    │   └── TopicRefused          TP-1004  a topic that stands otherwise
    ├── Refused                   TP-2000  the lifecycle refuses the request
    │   ├── StateConflict         TP-2001  not possible in the message's state
    │   ├── ContentConflict       TP-2002  same gid, other branches
    │   ├── ContraryDecision      TP-2003  the opposite was decided before
    │   ├── UnknownMessage        TP-2004  no message of that gid
    │   ├── ForgottenMessage      TP-2005  older than history: cannot tell
    │   └── NotYetDelivered       TP-2006  wait_result: decided, not delivered yet
    ├── Unavailable               TP-3000  cannot be served now; nothing was changed unless said
    │   ├── Overloaded            TP-3001  a bound is reached, come back later
    │   ├── ShuttingDown          TP-3002  the coordinator drains
    │   └── CoordinatorUnreachable TP-3003 no usable answer from the coordinator
    │       └── NotPrepared       TP-3004  the same, at prepare: the local transaction was not started
    ├── StoreError                TP-4000  the coordinator's own database
    │   ├── StoreLocked           TP-4001  another server owns the file
    │   ├── StoreCorrupt          TP-4002  the file is damaged
    │   │   └── NotAStore         TP-4008  the file is something else than a twophase store
    │   ├── StoreReadOnly         TP-4003  no right to write
    │   ├── StoreFull             TP-4004  no space left
    │   ├── SchemaTooNew          TP-4005  written by a newer twophase
    │   ├── StoreFenced           TP-4006  another process took this node's place
    │   ├── UnsafeDurability      TP-4007  the database would acknowledge before it is durable
    │   ├── StoreUnavailable      TP-4009  the database cannot be reached, or does not answer in time
    │   ├── SchemaMissing         TP-4010  the schema is missing, older or half migrated
    │   └── StoreDenied           TP-4011  wrong password, or a right is missing
    ├── TransactionError          TP-5000  the producer's local transaction
    │   ├── RolledBack            TP-5001  rolled back for certain
    │   │   ├── CheckBackCameFirst TP-5002 the check-back barred this transaction before it began
    │   │   └── BeginDeadlinePassed TP-5007 prepared too long ago to begin
    │   ├── Undecided             TP-5003  outcome not known yet; the check-back will decide
    │   ├── CommittedDespiteError TP-5004  an error was seen, yet the transaction is committed
    │   ├── OpenTransaction       TP-5005  the connection is already in a transaction
    │   ├── AutocommitRefused     TP-5006  the engine commits every statement by itself
    │   ├── MessageUsedTwice      TP-5008  a Message object is single-use
    │   └── TransactionLost       TP-5009  the transaction ended before its end
    ├── BarrierError              TP-6000  the barrier in the business database
    │   ├── BarrierTableMissing   TP-6001  the table was never installed
    │   ├── WrongDatabase         TP-6002  the check-back looks at another database
    │   ├── UnsafeDatabase        TP-6003  the database may forget what it answered
    │   └── UnsupportedEngine     TP-6004  not an engine this library knows
    ├── ConfigurationError        TP-7000  a setting cannot work
    │   └── SourceError           TP-7001  the store that messages are imported from cannot be read
    ├── AuditError                TP-8000  the audit could not be made
    │   ├── SparkUnavailable      TP-8001  Spark does not start
    │   ├── CannotRead            TP-8002  a database cannot be read
    │   ├── HistoryGap            TP-8003  a stream's rows were removed before it read them
    │   ├── ArchiveRefused        TP-8010  this store cannot be archived into this lake now
    │   └── LakeDamaged           TP-8011  a lake's files are not what its manifests say
    ├── PublishError              TP-8100  rows of a DataFrame could not be published
    │   ├── RowRefused            TP-8101  a key is null or comes twice, or a row is no message
    │   ├── RowChanged            TP-8102  a key stands for another message already
    │   ├── RowGivenUp            TP-8103  a key's message was given up before
    │   └── LedgerUnavailable     TP-8104  the publisher's ledger cannot be used
    └── BenchmarkFailed           TP-9000  nothing could be measured
"""

from __future__ import annotations

import enum
from typing import ClassVar


class Fate(enum.Enum):
    """What an error means for the message it speaks of."""

    UNCHANGED = "unchanged"
    """Nothing happened to any message because of this request."""
    NOT_STARTED = "not started"
    """The local transaction did not run; nothing will be delivered."""
    ROLLED_BACK = "rolled back"
    """The local transaction is rolled back for ever; no branch will be called."""
    COMMITTED = "committed"
    """The local transaction is committed; the branches are or will be called."""
    UNDECIDED = "undecided"
    """Not known yet. The check-back decides. Do not repeat the business under a new gid."""
    CONTRADICTED = "contradicted"
    """One side holds it committed, the other failed: somebody broke a rule, and a person must look."""


class TwophaseError(Exception):
    """Something went wrong in twophase."""

    code: ClassVar[str] = "TP-0000"
    fate: ClassVar[Fate] = Fate.UNCHANGED
    remedy: str = "Read the message; report it if it does not say what to do."

    gid: str | None

    def __init__(self, message: str | None = None, *, gid: str | None = None, remedy: str | None = None) -> None:
        """Make the error.

        Arguments:
            message: what happened, naming field and limit where there is one; the class docstring by default.
            gid: the message concerned, when there is one.
            remedy: what to do, where more can be said than the class' own.
        """
        self.message = message or (type(self).__doc__ or type(self).__name__).strip().split("\n", 1)[0]
        self.gid = gid
        if remedy is not None:
            self.remedy = remedy
        super().__init__(self.message)

    def __str__(self) -> str:
        about = f" gid={self.gid!r}." if self.gid is not None else ""
        return f"{self.code}: {self.message}{about} Fate: {self.fate.value}. {self.remedy}"


# ---- requests -------------------------------------------------------------------------------------


class InvalidRequest(TwophaseError):
    """The request cannot be understood."""

    code = "TP-1000"
    remedy = "Correct the named field and send it again; nothing was stored."


class LimitExceeded(InvalidRequest):
    """A documented limit was passed."""

    code = "TP-1001"
    remedy = "Keep to the limit named here (`twophase limits` prints them all); nothing was stored."


class UnsupportedType(InvalidRequest):
    """Only 2-phase messages (trans_type 'msg') are served here."""

    code = "TP-1002"
    remedy = "Use trans_type 'msg'. SAGA, TCC, XA and workflow transactions are out of scope."


class TopicNotFound(InvalidRequest):
    """topic not found"""

    code = "TP-1003"
    remedy = "Subscribe at least one address to the topic first; nothing was stored."


class TopicRefused(InvalidRequest):
    """A topic does not stand as the change of it supposes."""

    code = "TP-1004"
    remedy = "See `twophase topic list` and `twophase topic show NAME`; nothing was changed."


# ---- lifecycle ------------------------------------------------------------------------------------


class Refused(TwophaseError):
    """The lifecycle refuses the request."""

    code = "TP-2000"
    remedy = "Query the gid to see its state."


class StateConflict(Refused):
    """The request is not possible in the message's state."""

    code = "TP-2001"


class ContentConflict(Refused):
    """The gid is taken by a message with other branches or payloads."""

    code = "TP-2002"
    remedy = "A gid names one message for ever: repeat it with the same content, or use a new gid."


class ContraryDecision(Refused):
    """The opposite was decided before."""

    code = "TP-2003"
    fate = Fate.CONTRADICTED
    remedy = "The first decision stands. Compare the barrier row of this gid with the message's history."


class UnknownMessage(Refused):
    """There is no message of that gid."""

    code = "TP-2004"
    remedy = "Check the gid and the coordinator's address."


class ForgottenMessage(Refused):
    """The gid was born before the oldest history kept, so nobody can tell whether it was decided."""

    code = "TP-2005"
    fate = Fate.UNDECIDED
    remedy = "Do not repeat it. Look into the archive, then send it under a new gid if it never happened."


class NotYetDelivered(Refused):
    """The message is decided, but its branches have not all succeeded yet; they are retried."""

    code = "TP-2006"
    fate = Fate.COMMITTED
    remedy = "Do not repeat it: the coordinator goes on calling. Query the gid to see its progress."


# ---- availability ---------------------------------------------------------------------------------


class Unavailable(TwophaseError):
    """The request cannot be served now."""

    code = "TP-3000"
    fate = Fate.UNDECIDED
    remedy = "Send the same request with the same gid again; repeating is safe."


class Overloaded(Unavailable):
    """The coordinator has reached a bound and takes no more work for now."""

    code = "TP-3001"
    fate = Fate.UNCHANGED
    remedy = "Wait as long as Retry-After says, then send the same request again."


class ShuttingDown(Unavailable):
    """The coordinator is shutting down."""

    code = "TP-3002"
    fate = Fate.UNCHANGED
    remedy = "Send the same request again in a moment, or to another node."


class CoordinatorUnreachable(Unavailable):
    """No usable answer came from the coordinator."""

    code = "TP-3003"
    remedy = "Check the address and that `twophase server` runs; repeating with the same gid is safe."


class NotPrepared(CoordinatorUnreachable):
    """No usable answer came to prepare, so the local transaction was not started."""

    code = "TP-3004"
    fate = Fate.NOT_STARTED
    remedy = "Repeat the business with a new message once the coordinator answers; the check-back bars this one."


# ---- the coordinator's store ----------------------------------------------------------------------


class StoreError(TwophaseError):
    """The coordinator's store failed."""

    code = "TP-4000"
    fate = Fate.UNDECIDED
    remedy = "Nothing acknowledged is lost. See the cause; unfinished messages go on at the next start."


class StoreLocked(StoreError):
    """Another server owns this store."""

    code = "TP-4001"
    fate = Fate.UNCHANGED
    remedy = "Stop the other server, or give this one another --store."


class StoreCorrupt(StoreError):
    """The store file is damaged."""

    code = "TP-4002"
    remedy = "Keep the file as it is, and restore from a backup or recover it with `sqlite3 FILE .recover`."


class NotAStore(StoreCorrupt):
    """The file is something else than a twophase store, and was not touched."""

    code = "TP-4008"
    fate = Fate.UNCHANGED
    remedy = "Name another file as --store; if this once was the store, restore it from a backup."


class StoreReadOnly(StoreError):
    """The store cannot be written."""

    code = "TP-4003"
    remedy = "Give the server's user the right to write the file and its folder."


class StoreFull(StoreError):
    """No space is left for the store."""

    code = "TP-4004"
    remedy = "Free space on the store's disk. The request that met this was not acknowledged."


class SchemaTooNew(StoreError):
    """The store was written by a newer twophase."""

    code = "TP-4005"
    fate = Fate.UNCHANGED
    remedy = "Upgrade twophase to the version that wrote it; schemas only migrate forward."


class StoreFenced(StoreError):
    """Another process has taken this node's place, so this one may not write any more."""

    code = "TP-4006"
    remedy = (
        "Send again, to any node; repeating is safe. On a shared database this node takes a new place by itself, on a "
        "file of its own the process stops; who took over finishes its messages."
    )


class UnsafeDurability(StoreError):
    """The database would acknowledge a commit before it is durable."""

    code = "TP-4007"
    fate = Fate.UNCHANGED
    remedy = (
        "Set the database to flush on commit, as the message says; or, where losing a commit is no harm, send through "
        "TwoPhase(url, allow_unsafe_database=True)."
    )


class StoreUnavailable(StoreError):
    """The store's database cannot be reached, or does not answer in time."""

    code = "TP-4009"
    remedy = "See that the database runs and takes connections. The server goes on by itself when it does; retry then."


class SchemaMissing(StoreError):
    """The store's schema is missing, older than this twophase, or half migrated."""

    code = "TP-4010"
    fate = Fate.UNCHANGED
    remedy = "Run `twophase migrate --store URL` as a user who may create tables, then start the server again."


class StoreDenied(StoreError):
    """The database refuses this user: a wrong password, or a right is missing."""

    code = "TP-4011"
    fate = Fate.UNCHANGED
    remedy = "Correct the user and password of --store, or grant the right that the message names."


# ---- the producer's transaction -------------------------------------------------------------------


class TransactionError(TwophaseError):
    """The local transaction failed."""

    code = "TP-5000"


class RolledBack(TransactionError):
    """The local transaction is rolled back; no branch will be called."""

    code = "TP-5001"
    fate = Fate.ROLLED_BACK
    remedy = "Repeat the business with a new message if it is still wanted."


class CheckBackCameFirst(RolledBack):
    """The coordinator asked before this transaction began, so it may not begin any more."""

    code = "TP-5002"
    remedy = "Repeat the business with a new message; begin sooner after prepare, or raise timeout_to_fail."


class Undecided(TransactionError):
    """Whether the local transaction committed is not known yet; the check-back will decide."""

    code = "TP-5003"
    fate = Fate.UNDECIDED
    remedy = "Do not repeat the business with a new gid. Query the gid, or wait for the check-back."


class CommittedDespiteError(TransactionError):
    """An error was seen, yet the local transaction is committed and its branches will be called."""

    code = "TP-5004"
    fate = Fate.COMMITTED
    remedy = "Do not repeat the business. Look at the chained cause."


class OpenTransaction(TransactionError):
    """The connection is already in a transaction, whose end this library could not see."""

    code = "TP-5005"
    fate = Fate.NOT_STARTED
    remedy = (
        "Give an engine, a pool or an idle connection; for a Session in a transaction use message.join(session, check)."
    )


class AutocommitRefused(TransactionError):
    """The engine commits every statement by itself, so barrier row and business rows could be parted."""

    code = "TP-5006"
    fate = Fate.NOT_STARTED
    remedy = "Use an engine without AUTOCOMMIT isolation, or a connection with autocommit off."


class BeginDeadlinePassed(RolledBack):
    """The message was prepared too long ago for its transaction to begin safely."""

    code = "TP-5007"
    remedy = "Begin within the hour after prepare; repeat the business with a new message."


class MessageUsedTwice(TransactionError):
    """A Message object was used for a second transaction."""

    code = "TP-5008"
    fate = Fate.NOT_STARTED
    remedy = "Make a new Message for each transaction."


class TransactionLost(TransactionError):
    """The transaction that wrote the barrier row is no longer open: something inside the block ended or spoilt it."""

    code = "TP-5009"
    fate = Fate.UNDECIDED
    remedy = "Inside the block: no commit, no rollback, no statement with an implicit commit, no swallowed error."


# ---- the barrier ----------------------------------------------------------------------------------


class BarrierError(TwophaseError):
    """The barrier in the business database failed."""

    code = "TP-6000"


class BarrierTableMissing(BarrierError):
    """The barrier table does not exist in this database."""

    code = "TP-6001"
    fate = Fate.NOT_STARTED
    remedy = "Run `twophase barrier install URL` once for this database."


class WrongDatabase(BarrierError):
    """The check-back looks at another database than the producer's transaction."""

    code = "TP-6002"
    fate = Fate.UNDECIDED
    remedy = "Bind the check-back route to the same database (shard, alias, schema) as the transaction."


class UnsafeDatabase(BarrierError):
    """The business database may forget a commit it has confirmed."""

    code = "TP-6003"
    fate = Fate.NOT_STARTED
    remedy = "Set the database to flush on commit, as the message says."


class UnsupportedEngine(BarrierError):
    """This is not an engine, pool, session or connection that twophase knows."""

    code = "TP-6004"
    fate = Fate.NOT_STARTED
    remedy = "Give a SQLAlchemy 2 engine, connection or session, or a sqlite3, psycopg, PyMySQL or asyncpg connection."


class ConfigurationError(TwophaseError):
    """A setting cannot work."""

    code = "TP-7000"
    remedy = "Correct the named setting; `twophase server --help` lists them."


class SourceError(ConfigurationError):
    """The store that messages are imported from cannot be read."""

    code = "TP-7001"
    remedy = "Correct what is named here and run the import again; what was copied stays copied, once."


# ---- the audit ------------------------------------------------------------------------------------


class AuditError(TwophaseError):
    """The audit could not be made, so nothing is said about any message."""

    code = "TP-8000"
    remedy = "See the cause; the audit only reads, so it may be repeated."


class SparkUnavailable(AuditError):
    """Spark does not start."""

    code = "TP-8001"
    remedy = "Run `twophase spark doctor`; it names what is missing."


class CannotRead(AuditError):
    """A database of the audit, or of a Spark source, cannot be read."""

    code = "TP-8002"
    remedy = "Correct the URL, table or rights and run it again; nothing was changed."


class HistoryGap(AuditError):
    """Rows that a stream follows were removed by retention or an archive before it read them."""

    code = "TP-8003"
    remedy = (
        "Read the missing rows from the archive if there is one, then let the stream go on with option onGap=report, "
        "which says what is missing in rows of its own; run it more often than retention removes."
    )


class ArchiveRefused(AuditError):
    """This store cannot be archived into this lake now; nothing was added to it and nothing released for removal."""

    code = "TP-8010"
    remedy = "Let one archive at a time write, and archive a store into one lake only; then run it again."


class LakeDamaged(AuditError):
    """Files of a lake are not what its manifests say, or what was written differs from the store."""

    code = "TP-8011"
    remedy = "Run `twophase spark archive --lake DIR --verify`, and restore the files it names from a backup."


# ---- publishing from Spark ------------------------------------------------------------------------


class PublishError(TwophaseError):
    """Rows could not be published. A batch is published as a whole or not at all; what was prepared waits for it."""

    code = "TP-8100"
    fate = Fate.UNDECIDED
    remedy = "Correct the cause and run it again: what is published already is not published twice."


class RowRefused(PublishError):
    """A row cannot be a message; nothing of its batch is published."""

    code = "TP-8101"
    remedy = "Correct the rows and run it again; what is published already is not published twice."


class RowChanged(PublishError):
    """A row has the key of a message with another content, which is prepared already."""

    code = "TP-8102"
    remedy = (
        "Make the query give the same row for a key whenever it runs (no random values, no current time), or give the "
        "changed row a key of its own."
    )


class RowGivenUp(PublishError):
    """A row has the key of a message that was given up, and rolled back for ever."""

    code = "TP-8103"
    remedy = "Set option onAbandoned=skip to leave such rows out, or give them keys of their own."


class LedgerUnavailable(PublishError):
    """The publisher's ledger cannot be used."""

    code = "TP-8104"
    remedy = "See that the database of option ledger runs, may be written to, and is reached from every executor."


# ---- the benchmark --------------------------------------------------------------------------------


class BenchmarkFailed(TwophaseError):
    """Nothing could be measured."""

    code = "TP-9000"
    remedy = "See that the server runs and that --server names it; `curl URL/api/ping` must answer."
