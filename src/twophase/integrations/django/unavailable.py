"""Django: 503 with Retry-After when no coordinator could be asked."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from twophase.integrations.unavailable import reply_to


class UnavailableMiddleware(MiddlewareMixin):
    """Answer 503 with Retry-After when no coordinator could be asked.

    Then nothing was started. Errors after a commit are not touched: a caller must not repeat what is committed.
    """

    def process_exception(self, _request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer to an error of prepare; None leaves any other to Django."""
        reply = reply_to(error)
        return None if reply is None else HttpResponse(reply.body, status=reply.status, headers=reply.headers)
