"""Django's exceptions of a branch: its answers, and what it logs and signals."""

from __future__ import annotations

import logging
import sys
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.signals import got_request_exception
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError

from twophase.barrier.branch_answer import Framework, refusal
from twophase.barrier.http_answer import HttpReply

_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (Http404, 404),
    (PermissionDenied, 403),
    (MultiPartParserError, 400),
    (BadRequest, 400),
    (SuspiciousOperation, 400),
)
"""The exceptions of Django that have a status."""


class DjangoFailures(Framework):
    """The answers in Django's exceptions, and its log and signal for errors.

    The exceptions of REST framework have answers, too. Error trackers listen to the signal, and the log sends mail to
    ADMINS.

    Arguments:
        request: the branch call.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._logged = False

    def answer_in(self, error: Exception) -> HttpReply | None:
        """Return the answer of an exception with a status."""
        if isinstance(error, SuspiciousOperation):
            self._log(f"django.security.{type(error).__name__}", str(error), 400, error)
        of_rest: Any = getattr(sys.modules.get("rest_framework.exceptions"), "APIException", None)
        if of_rest is not None and isinstance(error, of_rest):
            raised: Any = error
            return refusal(raised.status_code, raised.detail)
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
        return None if status is None else refusal(status, error)

    def report(self, error: Exception) -> None:
        """Log an error, and send the signal, as Django does."""
        self._log("django.request", "Internal Server Error: %s", 500, error, self._request.path)
        got_request_exception.send(sender=None, request=self._request)

    async def areport(self, error: Exception) -> None:
        """`report` in a thread: receivers of the signal may use a database."""
        await sync_to_async(self.report)(error)

    def marked(self, response: HttpResponse) -> HttpResponse:
        """Return the response, which Django does not log once more."""
        if self._logged:
            vars(response)["_has_been_logged"] = True
        return response

    def _log(self, logger: str, text: str, status: int, error: Exception, *values: str) -> None:
        extra = {"status_code": status, "request": self._request}
        logging.getLogger(logger).error(text, *values, exc_info=error, extra=extra)
        self._logged = True
