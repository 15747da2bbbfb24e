"""The options of every gRPC channel of twophase, to a branch or to a coordinator.

The caller itself retries, with a deadline each time, so gRPC's own retries are off and its reconnecting is quick: a
service that has come back is found within a second, not within two minutes. No proxy from the environment stands
between services. Trust is the system's, as over HTTP.
"""

from __future__ import annotations

import ssl
from typing import Final

RECONNECT_FIRST_MS: Final = 100
RECONNECT_CAP_MS: Final = 1_000
CONNECT_MS: Final = 1_000
"""Bound on one attempt to connect."""


def channel_options(receive_bytes_max: int, *, reconnect_cap_ms: int = RECONNECT_CAP_MS) -> list[tuple[str, int | str]]:
    """Return the arguments of a channel.

    Arguments:
        receive_bytes_max: the largest answer that is read.
        reconnect_cap_ms: the longest pause before the next attempt to connect.
    """
    return [
        ("grpc.max_receive_message_length", receive_bytes_max),
        ("grpc.max_send_message_length", -1),  # the data sent was bounded when it was accepted
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.lb_policy_name", "round_robin"),  # as dtm: one name, several addresses
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_FIRST_MS),
        ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", reconnect_cap_ms),
    ]


def trusted_roots(context: ssl.SSLContext | None = None) -> bytes | None:
    """Return the root certificates of `context` as PEM; None leaves gRPC its own.

    The default context is the system's. gRPC takes no SSL context; this is the part of one that it can use.
    """
    authorities = (context or ssl.create_default_context()).get_ca_certs(binary_form=True)
    if not authorities:
        return None
    return "".join(ssl.DER_cert_to_PEM_cert(authority) for authority in authorities).encode()
