"""Settings of a coordinator: its schedules, and the bounds of its memory and work."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from twophase.core.schedule import (
    CHECK_BACK,
    DEFAULT_REQUEST_TIMEOUT_MS,
    DEFAULT_TIMEOUT_TO_FAIL_MS,
    DELIVERY,
    Schedule,
)


class CoordinatorSettings(msgspec.Struct, frozen=True):
    """Bounds and schedules.

    Times in milliseconds, sizes in bytes, the rest are counts.
    """

    delivery: Schedule = DELIVERY
    check_back: Schedule = CHECK_BACK
    request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS
    timeout_to_fail_ms: int = DEFAULT_TIMEOUT_TO_FAIL_MS
    attempts_max: int = 0
    """Default number of consecutive failed rounds before a message is parked.

    0 disables parking.
    """
    strict: bool = False
    """Answers count by their status alone.

    And a message is prepared only with an address to check back.
    """
    probe_check_addresses: bool = False
    """New check addresses are probed in the background.

    The server's default is to do so.
    """

    producer_checks_max: int = 15
    """Answers "unknown" over a producer's own connection before its message is parked.

    0 disables parking. A producer that is away gives no answer.
    """
    producer_asked_max: int = 16
    """Questions that are with one producer at a time."""
    producer_answer_ms: int = 30_000
    """Time for an answer; then another producer of the name is asked, if there is one."""
    queues_made_on_use: bool = True
    """Topics of queues and groups of consumers are made by their first use."""
    queue_undone_max: int = 10_000
    """Messages of one queue that a group was given and has not done.

    Beyond, it gets no new ones.
    """
    queue_hold_ms: int = 3 * 3600 * 1000
    """Longest time that a consumer keeps a message by its connection alone.

    Then the message is given out again, as after a failed delivery.
    """
    queue_held_bytes_max: int = 64 * 1024 * 1024
    """Bodies read ahead for consumers, all groups together."""

    in_flight_max: int = 2_048
    """Branch calls under way, all destinations together.

    Check-backs have as many again of their own.
    """
    in_flight_per_destination_max: int = 256
    in_flight_per_owner_max: int = 512
    """Those for the messages of one owner whose quota names no bound.

    Messages without an owner have none.
    """
    in_flight_of: Mapping[str, int] = {}
    """The bound of destinations that have one of their own, by `scheme://host:port`."""
    queue_waiting_max: int = 10_000
    """Calls of one owner that wait for one destination.

    Beyond, messages are tried again later.
    """

    store_bytes_max: int = 0
    """Bytes of the store from which on new messages are refused; 0: no bound."""
    waiting_max: int = 20_000
    """Changes that wait for the store, half of them of one owner.

    Beyond, requests are refused with Overloaded.
    """
    gid_waiting_max: int = 1_000
    """Requests for one message that wait for its change under way or its round.

    Beyond, requests are refused with Overloaded.
    """
    flush_items_max: int = 2_000
    linger_ms: int = 5
    """Time that a change without a waiting requester may wait for others."""

    active_max: int = 100_000
    """Messages held in memory; others are paged in from the store when they are due."""
    active_bytes_max: int = 128 * 1024 * 1024
    page_rows: int = 1_000
    page_ahead_ms: int = 60_000
    """Rows due within this time are brought into memory."""
    store_retry_ms: int = 1_000
    """Pause after a store fault before unfinished messages are read again.

    It grows as `delivery`'s does.
    """
    adopt_rows: int = 1_000
    """Rows adopted from other nodes in one commit."""
    crowded_retry_ms: int = 200
    """Pause before rows are read again for which memory had no room."""

    retention_ms: int = 35 * 24 * 3600 * 1000
    """History and attempts older than this are removed; 0 keeps them for ever."""
    retention_interval_ms: int = 600_000
    """From the beginning of one cleaning to that of the next."""
    queue_retention_bytes: int = 0
    """Bytes of a topic of queues beyond which its messages go with history.

    It counts for topics with a retention of their own and no bound of their own; 0: no bound.
    """
    purge_rows: int = 200
    """Rows removed in one step.

    They take about 2 ms of SQLite's writer, in which no flush begins.
    """
    purge_share: float = 0.1
    """Fraction of time a cleaning may use; the rest is left to flushes."""
    topics_interval_ms: int = 1_000
    """Age bound of the topics in memory, on a store where other nodes change them."""
    oldest_interval_ms: int = 60_000
    """Age bound of the oldest unfinished time that a branch call carries."""
