"""Two-phase messages: a local transaction and its calls, both or neither.

The local transaction commits, and the calls that must follow it happen.

    from twophase import Message

    message = Message("http://localhost:36789").add("http://bank-b/transfer-in", {"account": "B", "amount": 30})
    with message.transaction(engine, check="http://bank-a/twophase/check") as connection:
        connection.execute(...)

`Client` and `AsyncClient` keep connections, a check address and options for many messages. The errors are in
`twophase.errors`, consumers of queues and transactional producers in `twophase.queues`. Importing this loads neither
SQLAlchemy nor asyncio nor anything of the server.
"""

from twophase.client.async_message import AsyncMessage
from twophase.client.clients import AsyncClient, Client
from twophase.client.draft import Progress
from twophase.client.many import Outcome
from twophase.client.message import Message
from twophase.client.options import MessageOptions
from twophase.client.queue_address import queue_address
from twophase.client.retry import RetryPolicy
from twophase.client.transaction import AsyncTransaction, Transaction
from twophase.core.errors import TwophaseError
from twophase.core.gid import make_gid
from twophase.core.lifecycle import State
from twophase.core.message import Branch
from twophase.core.verdict import Verdict

__all__ = [
    "AsyncClient",
    "AsyncMessage",
    "AsyncTransaction",
    "Branch",
    "Client",
    "Message",
    "MessageOptions",
    "Outcome",
    "Progress",
    "RetryPolicy",
    "State",
    "Transaction",
    "TwophaseError",
    "Verdict",
    "make_gid",
    "queue_address",
]
