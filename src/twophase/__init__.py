"""Two-phase messages: a local transaction and its calls, both or neither.

The local transaction commits, and the calls that must follow it happen.

    from twophase import Message

    message = Message("http://localhost:36789").add("http://bank-b/transfer-in", {"account": "B", "amount": 30})
    with message.transaction(engine, check="http://bank-a/twophase/check") as connection:
        connection.execute(...)

Importing this loads neither SQLAlchemy nor asyncio nor anything of the server. Errors: `twophase.core.errors`.
"""

from twophase.client.draft import Progress
from twophase.client.endpoints import AsyncTwoPhase, TwoPhase
from twophase.client.message import Message
from twophase.core.errors import (
    AutocommitRefused,
    BarrierError,
    BarrierTableMissing,
    BeginDeadlinePassed,
    BranchesLost,
    CheckBackCameFirst,
    CommittedDespiteError,
    ConfigurationError,
    ContentConflict,
    ContraryDecision,
    CoordinatorUnreachable,
    EventLoopBlocked,
    Fate,
    ForgottenMessage,
    FunctionRefused,
    InvalidRequest,
    LimitExceeded,
    MessageUsedTwice,
    NotPrepared,
    NotYetDelivered,
    OpenTransaction,
    Overloaded,
    Refused,
    RolledBack,
    ShuttingDown,
    StateConflict,
    TopicNotFound,
    TransactionError,
    TransactionLost,
    TwophaseError,
    Unavailable,
    Undecided,
    UnknownMessage,
    UnsafeDatabase,
    UnsupportedEngine,
    UnsupportedType,
    WrongDatabase,
)
from twophase.core.gid import make_gid
from twophase.core.lifecycle import State
from twophase.core.message import Branch
from twophase.core.verdict import Verdict

__all__ = [
    "AsyncTwoPhase",
    "AutocommitRefused",
    "BarrierError",
    "BarrierTableMissing",
    "BeginDeadlinePassed",
    "Branch",
    "BranchesLost",
    "CheckBackCameFirst",
    "CommittedDespiteError",
    "ConfigurationError",
    "ContentConflict",
    "ContraryDecision",
    "CoordinatorUnreachable",
    "EventLoopBlocked",
    "Fate",
    "ForgottenMessage",
    "FunctionRefused",
    "InvalidRequest",
    "LimitExceeded",
    "Message",
    "MessageUsedTwice",
    "NotPrepared",
    "NotYetDelivered",
    "OpenTransaction",
    "Overloaded",
    "Progress",
    "Refused",
    "RolledBack",
    "ShuttingDown",
    "State",
    "StateConflict",
    "TopicNotFound",
    "TransactionError",
    "TransactionLost",
    "TwoPhase",
    "TwophaseError",
    "Unavailable",
    "Undecided",
    "UnknownMessage",
    "UnsafeDatabase",
    "UnsupportedEngine",
    "UnsupportedType",
    "Verdict",
    "WrongDatabase",
    "make_gid",
]
