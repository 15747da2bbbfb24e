"""Django: 503 with Retry-After when no coordinator could be asked."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from twophase.integrations.unavailable import reply_to


class UnavailableMiddleware(MiddlewareMixin):
    """Answer 503 with Retry-After when no coordinator could be asked.

    Then the message's transaction was not started. The request itself must not have committed anything before, because
    503 invites the caller to repeat it. Errors after the message's commit are not touched.
    """

    def process_exception(self, _request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer to an error of prepare; None leaves any other to Django."""
        reply = reply_to(error)
        return None if reply is None else HttpResponse(reply.body, status=reply.status, headers=reply.headers)
