"""An HTTP/1.1 client: small, for very many small calls (design §6)."""

from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse, OnDone, Outcome

__all__ = ["HttpClient", "HttpError", "HttpErrorKind", "HttpResponse", "OnDone", "Outcome"]
