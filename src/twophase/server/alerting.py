"""The calls to the alert webhook.

Its address is checked at the start, and its connections are its own, so no branch call waits for them.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from twophase.coordinator.dispatch.alerts import Alerts, webhook_of
from twophase.coordinator.observer import Observer
from twophase.core.errors import ConfigurationError
from twophase.destinations.allow_list import AllowList
from twophase.destinations.http import HttpDestination
from twophase.http_client.client import HttpClient
from twophase.server.settings import Settings


def alerts_of(settings: Settings, observer: Observer, client: HttpClient, allowed: AllowList) -> Alerts:
    """Make the alerts to the webhook; without a webhook they go nowhere.

    Arguments:
        settings: of the server.
        observer: receives the outcome of each alert.
        client: calls the webhook, and nothing else.
        allowed: the addresses that may be called, and what their calls carry.

    Raises:
        ConfigurationError: the address cannot be called. It is not repeated: addresses of webhooks hold secrets.
    """
    webhook = destination = None
    if settings.alert_webhook:
        destination = HttpDestination(client, allowed)
        wrong = None
        try:
            webhook = webhook_of(settings.alert_webhook)
            if urlsplit(webhook.url).scheme.lower() not in {"http", "https"}:
                wrong = "it does not begin with http:// or https://"
            else:
                wrong = destination.accepts(webhook.url) or destination.accepts_headers(webhook.headers)
        except ValueError:
            wrong = "it is no URL"
        if wrong is not None:
            raise ConfigurationError(f"alert_webhook: the address cannot be called: {wrong}.")
    return Alerts(
        webhook,
        destination,
        after=settings.alert_after,
        timeout_ms=settings.alert_timeout_ms,
        observer=observer,
    )
