"""A TLS handshake that failed, in words.

OpenSSL names its own reasons. Here they become a sentence, and what the client of a coordinator can do about it.
"""

from __future__ import annotations

import ssl
from typing import Final

from twophase.http_client.outcome import HttpError, HttpErrorKind

NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
OTHER_NAME: Final = 62
UNKNOWN_AUTHORITY: Final = 20
_OTHER_NAMES: Final = frozenset({OTHER_NAME, 63, 64})
_UNKNOWN_AUTHORITIES: Final = frozenset({2, 18, 19, UNKNOWN_AUTHORITY, 21})
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})

_ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""A restart ends a handshake like this."""

_KNOW_AUTHORITY: Final = "Name the PEM file of its authority: Client(url, ca=…), --ca FILE or TWOPHASE_CA."
_RENEW: Final = "Renew the server's certificate and send the server SIGHUP, or correct this machine's clock."
_RENAME: Final = "Use a name that is in the server's certificate, or give the server a certificate of this name."
_SPEAK: Final = "Write http:// (grpc://), or give the server tls_certificate and tls_key."
_SHOW_ONE: Final = (
    "Show a certificate that the server's tls_client_ca has signed: Client(url, client_certificate=…, client_key=…), "
    "--client-certificate and --client-key."
)
_LOOK: Final = "Compare the TLS settings of both sides."


def tls_failure(where: str, error: ssl.SSLError) -> HttpError:
    """Return the outcome of a call whose handshake failed; nothing was sent.

    Arguments:
        where: the server, as the text begins.

    >>> error = ssl.SSLCertVerificationError()
    >>> error.verify_code, error.verify_message = 10, "certificate has expired"
    >>> str(tls_failure("https://pay:443", error))
    'tls: https://pay:443: the certificate is not trusted: it has expired'
    """
    if isinstance(error, _ENDED):
        return HttpError(HttpErrorKind.CONNECT, f"{where}: the connection was ended during the TLS handshake")
    words, remedy = _explained(error)
    return HttpError(HttpErrorKind.TLS, f"{where}: {words}", remedy=remedy)


def distrust(code: int, message: str) -> tuple[str, str]:
    """Return the words and the remedy for a certificate that is not trusted.

    Arguments:
        code: OpenSSL's number of the reason.
        message: its text of it.
    """
    if code == EXPIRED:
        words, remedy = "it has expired", _RENEW
    elif code == NOT_YET_VALID:
        words, remedy = "it is not valid yet", _RENEW
    elif code in _OTHER_NAMES:
        words, remedy = f"it names another server ({message.rstrip('.')})", _RENAME
    elif code in _UNKNOWN_AUTHORITIES:
        words, remedy = f"its authority is unknown ({message})", _KNOW_AUTHORITY
    else:
        words, remedy = message, _LOOK
    return f"the certificate is not trusted: {words}", remedy


def _explained(error: ssl.SSLError) -> tuple[str, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        return distrust(error.verify_code, error.verify_message)
    reason = error.reason or ""
    if reason in _NO_TLS:
        return "the server there speaks no TLS", _SPEAK
    if "ALERT" in reason and "CERT" in reason:
        return "the server demands another client certificate", _SHOW_ONE
    return f"TLS failed: {reason.replace('_', ' ').lower() or error.strerror or error}", _LOOK
