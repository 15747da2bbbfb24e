"""Errors of a coordinator that refuses or cannot answer: codes TP-1000 to TP-3021."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twophase.core.errors.base import Fate, TwophaseError

if TYPE_CHECKING:
    from twophase.core.lifecycle import State


_CHARACTERS_MAX: Final = 1_000


class InvalidRequest(TwophaseError):
    """The request cannot be understood."""

    code = "TP-1000"
    remedy = "Correct the named field and send it again; nothing was stored."

    def __init__(self, message: str | None = None, *, gid: str | None = None, remedy: str | None = None) -> None:
        """Make the error; a text that repeats a long value of the request is cut."""
        if message is not None and len(message) > _CHARACTERS_MAX:
            message = f"{message[:_CHARACTERS_MAX]}…"
        super().__init__(message, gid=gid, remedy=remedy)


class LimitExceeded(InvalidRequest):
    """A documented limit was exceeded."""

    code = "TP-1001"
    remedy = "Stay within the limit named here (`twophase limits` prints them all); nothing was stored."


class TooManyTopics(LimitExceeded):
    """There are too many topics of queues and groups of consumers."""

    code = "TP-1024"
    remedy = (
        "Remove topics and groups that are not needed (`twophase queues remove`, `twophase groups remove`); an "
        "operator may make any within the limit. Nothing was stored."
    )


class UnsupportedType(InvalidRequest):
    """Only 2-phase messages (trans_type 'msg') are served here."""

    code = "TP-1002"
    remedy = "Use trans_type 'msg'. SAGA, TCC, XA and workflow transactions are out of scope."


class TopicNotFound(InvalidRequest):
    """topic not found"""

    code = "TP-1003"
    remedy = "Subscribe at least one address to the topic first; nothing was stored."


class TopicRefused(InvalidRequest):
    """The topic is not in the state that this change expects."""

    code = "TP-1004"
    remedy = "See `twophase topic list` and `twophase topic show NAME`; nothing was changed."


class DestinationRefused(InvalidRequest):
    """The coordinator does not call this address."""

    code = "TP-1005"
    remedy = "Use an address that its settings destinations and private_destinations allow; nothing was stored."


class QueueNotFound(InvalidRequest):
    """There is no such topic or group of consumers."""

    code = "TP-1020"
    remedy = "Correct its name, or let the first use create it (setting queues_made_on_use); nothing was changed."


class WrongMessageKind(InvalidRequest):
    """The topic does not take messages of this kind."""

    code = "TP-1021"
    remedy = "Send it to a topic that takes its kind; nothing was stored."


class ReceiptInvalid(InvalidRequest):
    """No delivery has this receipt."""

    code = "TP-1022"
    remedy = "Use the receipt that came with the message; nothing was changed."


class PayloadUnreadable(InvalidRequest):
    """The payload of a queue's message is not of its handler's type."""

    code = "TP-1023"
    remedy = "Correct the producer, or the type at the handler; the message is a dead letter, or comes again."


class CallNotSigned(InvalidRequest):
    """A call is not signed by a key that this service knows."""

    code = "TP-1010"
    remedy = (
        "Give the coordinator's [[destinations]] the service's key and key_id; behind a proxy that rewrites the path, "
        "give the service `as_sent`. The coordinator calls again."
    )


class Unauthenticated(InvalidRequest):
    """This server needs a token, and the request has no token that it knows."""

    code = "TP-1101"
    remedy = (
        "Send `Authorization: Bearer TOKEN`, Client(url, token=…) or TWOPHASE_TOKEN; `twophase token add` makes one."
    )


class Forbidden(InvalidRequest):
    """The token does not allow this request."""

    code = "TP-1102"
    remedy = "Use a token that allows it, or change its entry in the server's file of tokens; nothing was changed."


class PageRefused(InvalidRequest):
    """Requests from web pages are refused."""

    code = "TP-1006"
    remedy = "To allow a console's page, add it to the setting origins; nothing was changed."


class WrongHost(InvalidRequest):
    """The request was sent to a name that is not this server's."""

    code = "TP-1007"
    remedy = "Use the server's address, or add the name to its setting hosts; nothing was changed."


class Refused(TwophaseError):
    """The message's lifecycle does not allow the request."""

    code = "TP-2000"
    remedy = "Run `twophase explain GID` to see its state, and why."

    state: State | None = None
    """The message's state, if the coordinator named it."""


class StateConflict(Refused):
    """The request is not possible in the message's state."""

    code = "TP-2001"


class ContentConflict(Refused):
    """The gid is taken by a message with other branches or payloads, or with another check address."""

    code = "TP-2002"
    remedy = "A gid names one message for ever: repeat it with the same content, or use a new gid."


class ContraryDecision(Refused):
    """The opposite has already been decided."""

    code = "TP-2003"
    fate = Fate.CONTRADICTED
    remedy = "The first decision stands. Compare the barrier row of this gid with the message's history."


class UnknownMessage(Refused):
    """There is no message with that gid."""

    code = "TP-2004"
    remedy = "Check the gid and the coordinator's address."


class ForgottenMessage(Refused):
    """The gid is older than the oldest history kept, so it is unknown whether it was decided."""

    code = "TP-2005"
    fate = Fate.UNDECIDED
    remedy = "Do not repeat it. Look in the archive; if it never happened, send it under a new gid."


class NotYetDelivered(Refused):
    """The message is decided, but its branches have not all succeeded yet; they are retried."""

    code = "TP-2006"
    fate = Fate.COMMITTED
    remedy = "Do not repeat it: the coordinator keeps calling. `twophase explain GID` shows its progress."


class ReceiptStale(Refused):
    """The message was delivered again or done since."""

    code = "TP-2020"
    remedy = "Use the newest receipt; the delivery that has it counts."

    is_superseded: bool

    def __init__(
        self,
        message: str | None = None,
        *,
        gid: str | None = None,
        remedy: str | None = None,
        is_superseded: bool = True,
    ) -> None:
        """Make the error.

        `is_superseded`: the message is known to be done, or to have a later delivery, which decides. False where this
        is not known: another process gave the receipt, or it is another group's.
        """
        self.is_superseded = is_superseded
        super().__init__(message, gid=gid, remedy=remedy)


class QueueInUse(Refused):
    """The topic or the group is still in use."""

    code = "TP-2021"
    remedy = "Do what the message says, then repeat the request; nothing was changed."


class Unavailable(TwophaseError):
    """The request cannot be served now."""

    code = "TP-3000"
    fate = Fate.UNDECIDED
    remedy = "Send the same request with the same gid again; repeating is safe."


class Overloaded(Unavailable):
    """The coordinator has reached a limit and accepts no more work for now."""

    code = "TP-3001"
    fate = Fate.UNCHANGED
    remedy = "Wait as long as Retry-After says, then send the same request again."


class QuotaExceeded(Overloaded):
    """The owner of the token has used up its quota."""

    code = "TP-3006"


class QueuesUnavailable(Unavailable):
    """This node does not serve consumers of queues now."""

    code = "TP-3020"
    fate = Fate.UNCHANGED
    remedy = "Ask again in a moment; a node that has ended counts until its lease ends."


class QueuesElsewhere(QueuesUnavailable):
    """Another node serves the consumers of this topic."""

    code = "TP-3021"
    remedy = (
        "Ask the node that the topic's route or this answer's url names now; set http_address on nodes without one."
    )

    url: str

    def __init__(
        self, message: str | None = None, *, gid: str | None = None, remedy: str | None = None, url: str = ""
    ) -> None:
        """Make the error.

        `url`: the other node's, for HTTP; empty where it has announced none.
        """
        self.url = url
        super().__init__(message, gid=gid, remedy=remedy)


class ShuttingDown(Unavailable):
    """The coordinator is shutting down."""

    code = "TP-3002"
    fate = Fate.UNCHANGED
    remedy = "Send the same request again in a moment, or to another node."


class CoordinatorUnreachable(Unavailable):
    """No usable answer came from the coordinator."""

    code = "TP-3003"
    remedy = "Check the address and that `twophase server` runs; repeating with the same gid is safe."


class TlsFailed(CoordinatorUnreachable):
    """No TLS connection to the coordinator could be made, so nothing was sent."""

    code = "TP-3007"
    fate = Fate.UNCHANGED
    remedy = "Compare the TLS settings of both sides, then send the same request with the same gid again."


class NotPrepared(CoordinatorUnreachable):
    """Prepare got no usable answer, so the local transaction was not started."""

    code = "TP-3004"
    fate = Fate.NOT_STARTED
    remedy = "Repeat the operation with a new message once the coordinator answers; the check-back bars this one."


class ServerFault(Unavailable):
    """The server failed because of an internal fault; whether the request took effect is not known."""

    code = "TP-3005"
    remedy = "Send the same request with the same gid again; repeating is safe. The server's log has the traceback."
