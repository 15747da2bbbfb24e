"""The errors of twophase, as one flat tree: code, fate of the message, remedy.

An error tells its caller three things: what happened, what became of the message, and what to do next. So each class
carries a stable `code` (never reused), a `fate` and a `remedy`; its docstring's first line is the default text.

    TwophaseError
    ├── InvalidRequest            TP-1000  the request cannot be understood
    │   ├── LimitExceeded         TP-1001  a documented limit was passed
    │   │   └── TooManyTopics     TP-1024  of queues, with groups of consumers
    │   ├── UnsupportedType       TP-1002  SAGA, TCC, XA, workflow, unknown trans_type
    │   ├── TopicNotFound         TP-1003  no such topic
    │   ├── TopicRefused          TP-1004  a topic that stands otherwise
    │   ├── DestinationRefused    TP-1005  an address that is not called
    │   ├── PageRefused           TP-1006  a web page sends the request
    │   ├── WrongHost             TP-1007  sent to a name that is not the server's
    │   ├── CallNotSigned         TP-1010  a branch call or check-back without a valid signature
    │   ├── QueueNotFound         TP-1020  no such topic or group of consumers
    │   ├── WrongMessageKind      TP-1021  the topic takes other kinds of messages
    │   ├── ReceiptInvalid        TP-1022  no delivery has this receipt
    │   ├── PayloadUnreadable     TP-1023  a payload is not of its handler's type
    │   ├── Unauthenticated       TP-1101  a token is needed
    │   └── Forbidden             TP-1102  the token does not allow it
    ├── Refused                   TP-2000  the lifecycle refuses the request
    │   ├── StateConflict         TP-2001  not possible in the message's state
    │   ├── ContentConflict       TP-2002  same gid, other branches
    │   ├── ContraryDecision      TP-2003  the opposite was decided before
    │   ├── UnknownMessage        TP-2004  no message of that gid
    │   ├── ForgottenMessage      TP-2005  older than history: cannot tell
    │   ├── NotYetDelivered       TP-2006  wait_result: decided, not delivered yet
    │   ├── ReceiptStale          TP-2020  delivered again, or done, since
    │   └── QueueInUse            TP-2021  something needs the topic or the group
    ├── Unavailable               TP-3000  cannot be served now; nothing was changed unless stated
    │   ├── Overloaded            TP-3001  a bound is reached, come back later
    │   │   └── QuotaExceeded     TP-3006  the bound is the token's
    │   ├── ShuttingDown          TP-3002  the coordinator drains
    │   ├── CoordinatorUnreachable TP-3003 no usable answer from the coordinator
    │   │   ├── TlsFailed         TP-3007  no TLS connection, so nothing was sent
    │   │   └── NotPrepared       TP-3004  the same, at prepare: the local transaction was not started
    │   ├── ServerFault           TP-3005  a fault of the coordinator's own
    │   └── QueuesUnavailable     TP-3020  this node does not serve consumers of queues
    │       └── QueuesElsewhere   TP-3021  another node serves those of this topic
    ├── StoreError                TP-4000  the coordinator's own database
    │   ├── StoreLocked           TP-4001  another server owns the file
    │   ├── StoreCorrupt          TP-4002  the file is damaged
    │   │   └── NotAStore         TP-4008  the file is something else than a twophase store
    │   ├── StoreReadOnly         TP-4003  no right to write
    │   ├── StoreFull             TP-4004  no space left
    │   ├── SchemaTooNew          TP-4005  written by a newer twophase
    │   ├── StoreFenced           TP-4006  another process took this node's slot
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
    │   │   └── BranchesLost      TP-5013  the branches added in the block are in no row
    │   ├── OpenTransaction       TP-5005  the connection is already in a transaction
    │   ├── AutocommitRefused     TP-5006  the engine commits every statement by itself
    │   ├── MessageUsedTwice      TP-5008  a Message object is single-use
    │   ├── TransactionLost       TP-5009  the transaction ended before its end
    │   ├── FunctionRefused       TP-5010  an async function where nothing awaits it, or the other way round
    │   ├── BranchSpoilt          TP-5011  part of an earlier call's effect may be committed
    │   ├── EventLoopBlocked      TP-5012  a blocking call where an event loop runs
    │   └── OutsideTransaction    TP-5014  a write or a session beside the transaction
    ├── BarrierError              TP-6000  the barrier in the business database
    │   ├── BarrierTableMissing   TP-6001  the table was never installed
    │   ├── WrongDatabase         TP-6002  the check-back looks at another database
    │   ├── UnsafeDatabase        TP-6003  the database may lose a confirmed commit
    │   ├── UnsupportedEngine     TP-6004  not an engine this library knows
    │   ├── BarrierRowRefused     TP-6005  another key than the barrier's own is taken
    │   ├── BarrierTableUnusable  TP-6006  no unique key, nulls in it, or a table that a crash empties
    │   ├── DatabaseSwitched      TP-6007  the transaction began in another database than was prepared
    │   └── DatabaseIsReplica     TP-6008  the database may be behind the one that decides
    ├── ConfigurationError        TP-7000  a setting cannot work
    │   └── SourceError           TP-7001  the store that messages are imported from cannot be read
    ├── AuditError                TP-8000  the audit could not be made
    │   ├── SparkUnavailable      TP-8001  Spark does not start
    │   ├── CannotRead            TP-8002  a database cannot be read
    │   ├── HistoryGap            TP-8003  a stream's rows were removed before it read them
    │   ├── ArchiveRefused        TP-8010  this store cannot be archived into this lake now
    │   └── LakeDamaged           TP-8011  a lake's files are not what its logs say
    └── PublishError              TP-8100  rows of a DataFrame could not be published
        ├── RowRefused            TP-8101  a key is null or comes twice, or a row is no message
        ├── RowChanged            TP-8102  a key stands for another message already
        ├── RowGivenUp            TP-8103  a key's message was given up before
        └── LedgerUnavailable     TP-8104  the publisher's ledger cannot be used
"""

from twophase.core.errors.base import Fate, TwophaseError
from twophase.core.errors.pipeline import (
    ArchiveRefused,
    AuditError,
    CannotRead,
    HistoryGap,
    LakeDamaged,
    LedgerUnavailable,
    PublishError,
    RowChanged,
    RowGivenUp,
    RowRefused,
    SparkUnavailable,
)
from twophase.core.errors.requests import (
    CallNotSigned,
    ContentConflict,
    ContraryDecision,
    CoordinatorUnreachable,
    DestinationRefused,
    Forbidden,
    ForgottenMessage,
    InvalidRequest,
    LimitExceeded,
    NotPrepared,
    NotYetDelivered,
    Overloaded,
    PageRefused,
    PayloadUnreadable,
    QueueInUse,
    QueueNotFound,
    QueuesElsewhere,
    QueuesUnavailable,
    QuotaExceeded,
    ReceiptInvalid,
    ReceiptStale,
    Refused,
    ServerFault,
    ShuttingDown,
    StateConflict,
    TlsFailed,
    TooManyTopics,
    TopicNotFound,
    TopicRefused,
    Unauthenticated,
    Unavailable,
    UnknownMessage,
    UnsupportedType,
    WrongHost,
    WrongMessageKind,
)
from twophase.core.errors.store import (
    NotAStore,
    SchemaMissing,
    SchemaTooNew,
    StoreCorrupt,
    StoreDenied,
    StoreError,
    StoreFenced,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeDurability,
)
from twophase.core.errors.transaction import (
    AutocommitRefused,
    BarrierError,
    BarrierRowRefused,
    BarrierTableMissing,
    BarrierTableUnusable,
    BeginDeadlinePassed,
    BranchesLost,
    BranchSpoilt,
    CheckBackCameFirst,
    CommittedDespiteError,
    ConfigurationError,
    DatabaseIsReplica,
    DatabaseSwitched,
    EventLoopBlocked,
    FunctionRefused,
    MessageUsedTwice,
    OpenTransaction,
    OutsideTransaction,
    RolledBack,
    SourceError,
    TransactionError,
    TransactionLost,
    Undecided,
    UnsafeDatabase,
    UnsupportedEngine,
    WrongDatabase,
)

__all__ = [
    "ArchiveRefused",
    "AuditError",
    "AutocommitRefused",
    "BarrierError",
    "BarrierRowRefused",
    "BarrierTableMissing",
    "BarrierTableUnusable",
    "BeginDeadlinePassed",
    "BranchSpoilt",
    "BranchesLost",
    "CallNotSigned",
    "CannotRead",
    "CheckBackCameFirst",
    "CommittedDespiteError",
    "ConfigurationError",
    "ContentConflict",
    "ContraryDecision",
    "CoordinatorUnreachable",
    "DatabaseIsReplica",
    "DatabaseSwitched",
    "DestinationRefused",
    "EventLoopBlocked",
    "Fate",
    "Forbidden",
    "ForgottenMessage",
    "FunctionRefused",
    "HistoryGap",
    "InvalidRequest",
    "LakeDamaged",
    "LedgerUnavailable",
    "LimitExceeded",
    "MessageUsedTwice",
    "NotAStore",
    "NotPrepared",
    "NotYetDelivered",
    "OpenTransaction",
    "OutsideTransaction",
    "Overloaded",
    "PageRefused",
    "PayloadUnreadable",
    "PublishError",
    "QueueInUse",
    "QueueNotFound",
    "QueuesElsewhere",
    "QueuesUnavailable",
    "QuotaExceeded",
    "ReceiptInvalid",
    "ReceiptStale",
    "Refused",
    "RolledBack",
    "RowChanged",
    "RowGivenUp",
    "RowRefused",
    "SchemaMissing",
    "SchemaTooNew",
    "ServerFault",
    "ShuttingDown",
    "SourceError",
    "SparkUnavailable",
    "StateConflict",
    "StoreCorrupt",
    "StoreDenied",
    "StoreError",
    "StoreFenced",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "TlsFailed",
    "TooManyTopics",
    "TopicNotFound",
    "TopicRefused",
    "TransactionError",
    "TransactionLost",
    "TwophaseError",
    "Unauthenticated",
    "Unavailable",
    "Undecided",
    "UnknownMessage",
    "UnsafeDatabase",
    "UnsafeDurability",
    "UnsupportedEngine",
    "UnsupportedType",
    "WrongDatabase",
    "WrongHost",
    "WrongMessageKind",
]
