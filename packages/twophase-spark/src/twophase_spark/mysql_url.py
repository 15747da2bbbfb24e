"""The parameters of a MySQL URL: each takes effect, or is refused.

A driver that is given no option for TLS goes on without a word where the server has none, so an option that is ignored
looks like a connection that is checked. Promise: with an option for TLS, every connection is encrypted, and checked as
the option says, or refused. No text repeats the value of a parameter.
"""

from __future__ import annotations

import ssl
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from twophase.core.errors import ConfigurationError
from twophase_spark.option_table import Option, one_of, table_of, unknown, values_of

CHARSET: Final = "utf8mb4"
DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY = "DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"
_mode = one_of((DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY))
_charset = one_of((CHARSET,))
_truth = one_of(("true", "false"), "true".__eq__)


class MysqlParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a MySQL URL.

    unix_socket: The path of the server's socket.
    ssl_mode: DISABLED, REQUIRED (encrypted), VERIFY_CA (and the server's certificate is checked) or VERIFY_IDENTITY
        (and it must name the URL's host).
    ssl_ca: The file of the authority that must have signed the server's certificate; without a mode it means VERIFY_CA.
    ssl_cert: The file of a certificate of our own.
    ssl_key: The file of its key, where that is another one.
    ssl_verify_cert: The value true is VERIFY_CA, false REQUIRED.
    ssl_verify_identity: The value true is VERIFY_IDENTITY.
    charset: Always utf8mb4.
    """

    unix_socket: Annotated[str | None, Option()] = None
    ssl_mode: Annotated[str, Option(_mode, shown="encrypted if the driver and the server do so")] = ""
    ssl_ca: Annotated[str | None, Option(shown="the system's authorities")] = None
    ssl_cert: Annotated[str | None, Option()] = None
    ssl_key: Annotated[str | None, Option()] = None
    ssl_verify_cert: Annotated[bool | None, Option(_truth)] = None
    ssl_verify_identity: Annotated[bool | None, Option(_truth)] = None
    charset: Annotated[str, Option(_charset)] = CHARSET

    @property
    def mode(self) -> str:
        """The mode of TLS; empty to leave it to the driver.

        >>> parameters_of("mysql://me@db/bank?ssl_ca=ca.pem").mode
        'VERIFY_CA'
        """
        if self.ssl_mode:
            return self.ssl_mode
        if self.ssl_verify_identity:
            return VERIFY_IDENTITY
        if self.ssl_verify_cert or (self.ssl_ca is not None and self.ssl_verify_cert is None):
            return VERIFY_CA
        is_asked = self.ssl_verify_cert is False or self.ssl_ca is not None or self.ssl_cert is not None
        return REQUIRED if is_asked else ""

    @property
    def is_encrypted(self) -> bool:
        """True when a connection must be encrypted."""
        return self.mode not in {"", DISABLED}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of PyMySQL for these parameters.

        Raises:
            OSError: a file cannot be read, or holds no certificate or key.
        """
        found: dict[str, Any] = {"unix_socket": self.unix_socket, "charset": self.charset}
        if self.mode == DISABLED:
            found["ssl_disabled"] = True
        elif self.mode:
            found["ssl"] = self._context()
        return found

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca)
            # The authority that MySQL makes for itself lacks extensions that the strict mode demands.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = self.mode == VERIFY_IDENTITY
            context.verify_mode = ssl.CERT_REQUIRED if self.mode in {VERIFY_CA, VERIFY_IDENTITY} else ssl.CERT_NONE
            if self.ssl_cert is not None:
                context.load_cert_chain(self.ssl_cert, self.ssl_key)
        except OSError as error:
            raise OSError(f"a file of ssl_ca, ssl_cert or ssl_key cannot be used: {error}") from error
        return context


PARAMETERS: Final = table_of(MysqlParameters)


def parameters_of(url: str) -> MysqlParameters:
    """Return the parameters of a MySQL URL, checked.

    Raises:
        ConfigurationError: one is unknown, cannot be understood, or contradicts another.
    """
    query = urlsplit(url).query
    if "@" in query:  # perhaps the rest of a password, which must not be repeated
        raise ConfigurationError("a ? inside of a URL's login is written %3F, and an @ behind the ? %40.")
    given = parse_qs(query, keep_blank_values=True)
    for name, texts in given.items():
        if name not in {option.name for option in PARAMETERS}:
            raise unknown(name, [option.name for option in PARAMETERS], "a MySQL URL")
        if len(texts) > 1:
            raise ConfigurationError(f"Option {name} is given {len(texts)} times; give it once.")
        if not texts[0]:
            raise ConfigurationError(f"Option {name} is empty; leave it out, or give it a value.")
    found = MysqlParameters(**values_of(PARAMETERS, {name: texts[0] for name, texts in given.items()}))
    _require_meaning(found)
    return found


def _require_meaning(found: MysqlParameters) -> None:
    """Refuse parameters that contradict each other, or would silently do nothing."""
    if found.ssl_mode and (found.ssl_verify_cert is not None or found.ssl_verify_identity is not None):
        raise ConfigurationError("ssl_mode says what ssl_verify_cert and ssl_verify_identity do; give one of them.")
    if found.ssl_verify_identity and found.ssl_verify_cert is False:
        raise ConfigurationError("ssl_verify_identity=true contradicts ssl_verify_cert=false; give one of them.")
    if found.ssl_ca is not None and found.mode not in {VERIFY_CA, VERIFY_IDENTITY}:
        raise ConfigurationError("ssl_ca means nothing where the certificate is not checked; drop one of the options.")
    if found.ssl_key is not None and found.ssl_cert is None:
        raise ConfigurationError("ssl_key means nothing without ssl_cert.")
    if found.ssl_cert is not None and found.mode == DISABLED:
        raise ConfigurationError("ssl_cert means nothing with ssl_mode=DISABLED.")
