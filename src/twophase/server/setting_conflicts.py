"""Settings that cannot work together, though each alone could."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.http_client.byte_budget import SHARE_LEAST
from twophase.server.advertised import is_every_address, why_no_address, why_no_url
from twophase.server.codecs.trace import names_of

if TYPE_CHECKING:
    from twophase.server.settings import Settings

_PORT_MAX: Final = 65_535
_RETENTION_LEAST_MS: Final = 2 * BEGIN_DEADLINE_MS.value


def why_not_together(settings: Settings) -> str | None:
    """Return why these settings cannot work together; None when they can.

    Raises:
        ConfigurationError: one that is a list has an entry that cannot be one.
    """
    names_of(settings.trace_headers)
    if settings.tokens and settings.allow_anonymous:
        return "allow_anonymous: with `tokens` every client needs one. Leave out one of the two."
    allowed = settings.allow_list()
    if any(count > settings.in_flight_max for count in allowed.in_flight.values()):
        return "destinations: an in_flight is greater than in_flight_max, which bounds it."
    if settings.workers > 1 and settings.store.startswith("sqlite"):
        return (
            f"workers: {settings.workers} processes cannot serve a SQLite store: it has one writer, which locks the"
            " file. Set store to a postgresql:// URL, or workers to 1."
        )
    if wrong := why_no_url(settings.http_address):
        return f"http_address: {wrong}."
    if settings.http_address and settings.workers > 1:
        return "http_address: workers share their HTTP port, so no address leads to one of them. Leave it out."
    if wrong := _why_no_rocketmq_port(settings):
        return wrong
    if settings.bytes_under_way_max < 8 * max(settings.answer_bytes_max, SHARE_LEAST // 2):
        return (
            f"bytes_under_way_max: must be at least {4 * SHARE_LEAST}, and eight times answer_bytes_max: calls may keep"
            " a half of it, and a called host a quarter of that."
        )
    if 0 < settings.retention_ms < _RETENTION_LEAST_MS:
        return f"retention_ms: must be 0 or at least {_RETENTION_LEAST_MS}: a younger message may still be on its way."
    if settings.queue_retention_bytes and not settings.retention_ms:
        return "queue_retention_bytes: retention_ms is 0, so history keeps every message for ever. Set both, or none."
    for first, cap in (("retry_first_ms", "retry_cap_ms"), ("check_back_first_ms", "check_back_cap_ms")):
        if getattr(settings, first) > getattr(settings, cap):
            return f"{first}: is greater than {cap}, which bounds it."
    if settings.in_flight_per_destination_max > settings.in_flight_max:
        return "in_flight_per_destination_max: is greater than in_flight_max, which bounds it."
    return None


def _why_no_rocketmq_port(settings: Settings) -> str | None:
    port, address, workers = settings.rocketmq_port, settings.rocketmq_address, settings.workers
    if wrong := why_no_address(address):
        return f"rocketmq_address: {wrong}."
    if port == "off":
        return "rocketmq_address: there is no rocketmq_port that it could name." if address else None
    if workers > 1 and not address and is_every_address(settings.host):
        return (
            "rocketmq_address: it is missing. Each worker has a port of its own, and a route cannot name the one of"
            f" another worker at {settings.host}. Set it to the name of this machine."
        )
    if workers > 1 and isinstance(port, int) and port and port + workers - 1 > _PORT_MAX:
        return f"rocketmq_port: {workers} workers have the ports from {port} on, and {_PORT_MAX} is the last port."
    return None
