"""Alerts to an operator's webhook.

They report failing branches and check-backs, parked messages, and check addresses. Promise: whatever the webhook does,
nothing else waits for it. Alerts wait in a bounded queue of their own, a few are under way at a time, each within its
own timeout; one that finds the queue full is dropped and counted. The body is dtm's (dtm-wire §3.3) with twophase's own
fields beside it, and holds no payload, no header and no text of an answer, which may repeat either.
"""

from __future__ import annotations

import binascii
import enum
from functools import partial
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from twophase.coordinator.dispatch.evidence import tellable
from twophase.coordinator.observer import Observer
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.credentials import without_credentials
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer, Call, Destination
from twophase.stores.rows import Attempt

WAITING_MAX: Final = 1_000
IN_FLIGHT_MAX: Final = 4
"""Alerts under way at once, and so the connections to the webhook."""
_TAKEN: Final = range(200, 300)


class AlertEvent(enum.StrEnum):
    """The subject of an alert."""

    BRANCH_FAILING = "branch-failing"
    CHECK_BACK_FAILING = "check-back-failing"
    PARKED = "parked"
    CHECK_ADDRESS_FAILING = "check-address-failing"
    CHECK_ADDRESS_WELL = "check-address-well"


class AlertResult(enum.StrEnum):
    """The outcome of an alert."""

    SENT = "sent"
    FAILED = "failed"
    DROPPED = "dropped"


class Alert(msgspec.Struct, frozen=True):
    """The body of an alert: dtm's five fields, then twophase's own.

    Times are in milliseconds. `retry_count`: the number of failures in a row; `branch`: the branch's id, `00` for a
    check-back; `target`: its address without query. `gid` and `status` are empty in an alert about a check address,
    which many messages share.
    """

    gid: str
    status: str
    branch: str
    error: str
    retry_count: int
    event: AlertEvent
    target: str
    age_ms: int


class Webhook(msgspec.Struct, frozen=True):
    """The address of the webhook. `url` holds no credentials; `headers` may."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def host(self) -> str:
        """The part of the address that may be shown: a path, too, is often a secret.

        >>> Webhook("https://hooks.example:8443/services/T0/B0/secret").host
        'https://hooks.example:8443'
        """
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def webhook_of(url: str) -> Webhook:
    """Return the webhook at `url`; a user name and password in it become a header.

    >>> webhook_of("https://me:pw@alerts/in").url, webhook_of("https://me:pw@alerts/in").headers[0][0]
    ('https://alerts/in', 'authorization')
    """
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return Webhook(url)
    name, _, password = login.partition(":")
    basic = binascii.b2a_base64(f"{unquote(name)}:{unquote(password)}".encode(), newline=False).decode()
    bare = urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))
    return Webhook(bare, (("authorization", f"Basic {basic}"),))


class Alerts:
    """Sends alerts, when there is a webhook.

    Arguments:
        webhook: where to; None for no alerts, and then nothing here costs anything.
        destination: calls it; its connections are its own. Stopped by this.
        after: number of failures in a row that gives the first alert; each further one gives another.
        timeout_ms: for one alert.
        observer: receives the outcome of each alert.
    """

    def __init__(
        self,
        webhook: Webhook | None,
        destination: Destination | None,
        *,
        after: int,
        timeout_ms: int,
        observer: Observer,
    ) -> None:
        assert (webhook is None) == (destination is None), "who calls it, and where"
        self._webhook = webhook
        self._destination = destination
        self._after = after
        self._timeout_ms = timeout_ms
        self._observer = observer
        self._waiting: dict[tuple[str, str, str], Alert] = {}
        self._in_flight = 0
        self._stopped = False

    def failing(self, active: ActiveMessage, attempt: Attempt, event: AlertEvent) -> None:
        """Report a failed call of this message, the `active.attempts`-th in a row."""
        if self._webhook is not None and active.attempts >= self._after:
            self._tell(active, event, attempt.branch_id, attempt.target, _what(attempt), attempt.at_ms)

    def parked(self, active: ActiveMessage, why: str, now_ms: int) -> None:
        """Report a message that is not tried any more until an operator redrives it."""
        if self._webhook is not None:
            self._tell(active, AlertEvent.PARKED, "", "", f"parked: {why}", now_ms)

    def check_address(self, event: AlertEvent, target: str, error: str, failures: int, age_ms: int) -> None:
        """Report a check address that cannot answer, or answers again."""
        if self._webhook is not None:
            # Of one address only the newest alert waits.
            self._enqueue((target, "00", ""), Alert("", "", "00", error, failures, event, target, age_ms))

    async def stop(self) -> None:
        """Send nothing more. Safe to call twice."""
        self._stopped = True
        self._waiting.clear()
        if self._destination is not None:
            await self._destination.stop()

    def _tell(
        self, active: ActiveMessage, event: AlertEvent, branch: str, target: str, error: str, now_ms: int
    ) -> None:
        age_ms = max(0, now_ms - active.created_ms)
        status = "prepared" if active.state is State.PREPARED else "submitted"
        gid = active.message.gid
        alert = Alert(gid, status, branch, error, active.attempts, event, target, age_ms)
        self._enqueue((gid, branch, event), alert)

    def _enqueue(self, key: tuple[str, str, str], alert: Alert) -> None:
        # An alert that still waits is replaced: an operator wants to know the present situation, not every step.
        if key not in self._waiting and len(self._waiting) >= WAITING_MAX:
            self._observer.alerted(AlertResult.DROPPED, self._host, "too many alerts wait for the webhook")
            return
        self._waiting[key] = alert
        self._send()

    def _send(self) -> None:
        webhook, destination = self._webhook, self._destination
        assert webhook is not None, "only with a webhook does anything wait"
        assert destination is not None, "who calls it"
        while self._waiting and self._in_flight < IN_FLIGHT_MAX and not self._stopped:
            alert = self._waiting.pop(next(iter(self._waiting)))
            self._in_flight += 1
            call = Call(webhook.url, (), msgspec.json.encode(alert), webhook.headers, self._timeout_ms)
            try:
                destination.call(call, partial(self._answered, alert))
            except Exception as error:  # noqa: BLE001 -- the webhook's fault must not reach the message it is about
                self._in_flight -= 1
                self._observer.alerted(AlertResult.FAILED, self._host, type(error).__name__)

    def _answered(self, alert: Alert, answer: Answer) -> None:
        self._in_flight -= 1
        if answer.status in _TAKEN:
            self._observer.alerted(AlertResult.SENT, self._host)
        else:
            what = f"status {answer.status}" if answer.status else answer.error
            self._observer.alerted(
                AlertResult.FAILED, self._host, f"{alert.event.value} of {alert.gid or alert.target!r}: {what}"
            )
        if not self._stopped:
            self._send()

    @property
    def _host(self) -> str:
        return "" if self._webhook is None else self._webhook.host


def _what(attempt: Attempt) -> str:
    """Describe a failure without any text of the answer."""
    if attempt.status:
        word = tellable(attempt)
        return f"{attempt.result}: answered with status {attempt.status}{f'; {word}' if word else ''}"
    return without_credentials(f"{attempt.result}: {tellable(attempt)}")
