"""Requests of the commands to a running server, over its HTTP API.

Promise: every failure is one sentence with the next command to run: the server does not answer, it is no twophase
server, or it refuses and gives the reason. Proxies of the environment are not used: requests go directly to the server.

Where several nodes share a store, some acts on queues are possible at one of them alone. The others name it, and the
request goes on to it, with the same credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Annotated, Any, Final, NoReturn, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import typer

from twophase.cli.console import echo, echo_json
from twophase.core.address import shown_address
from twophase.core.bearer import authorization_of
from twophase.core.errors import QueuesElsewhere
from twophase.core.shell import argument
from twophase.core.trust import context_of, is_tls
from twophase.http_client.address import parse_address
from twophase.http_client.blocking import BlockingClient
from twophase.http_client.outcome import HttpError, HttpErrorKind

SERVER_VARIABLE: Final = "TWOPHASE_URL"
DEFAULT_SERVER: Final = "http://localhost:36789"
NO_TLS: Final = "No TLS connection:"
"""Begins the sentence about a server that is not trusted, or speaks no TLS."""
HOPS_MAX: Final = 3
EXIT_REFUSED: Final = 1
EXIT_WRONG_OPTIONS: Final = 2
EXIT_UNREACHABLE: Final = 3
_TIMEOUT_S: Final = 30.0
_FOR_DTM: Final = " FAILURE"
"""The end of a refusal's text, for dtm's clients."""
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
PAGE_ROWS: Final = "100"
"""The rows of a page of topics, groups, half messages or letters."""

ServerOption = Annotated[
    str,
    typer.Option(
        "--server", help="Address of the server's HTTP port; with several nodes, any of them.", envvar=SERVER_VARIABLE
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead, for programs.")]

T = TypeVar("T")
P = TypeVar("P", bound="_Page")


class _Page(Protocol):
    """A page of a list; `position` is that of the next one, empty at the end."""

    @property
    def position(self) -> str: ...


class _Failure(msgspec.Struct):
    message: str = ""
    code: str = ""
    remedy: str = ""
    url: str = ""


class Api:
    """One server.

    Arguments:
        server: its address, such as `http://localhost:36789`.
        fail: given the sentence and the exit code when there is no answer; by default it ends the process.
        hops: the number of other nodes that a request may go on to.
    """

    def __init__(
        self, server: str, fail: Callable[[str, int], NoReturn] | None = None, *, hops: int = HOPS_MAX
    ) -> None:
        self._fail = fail or _fail
        self._hops = hops
        if not server.startswith(("http://", "https://")):
            self._fail(
                f"--server: {shown_address(server)!r} is not an http:// or https:// address; such as {DEFAULT_SERVER}.",
                EXIT_WRONG_OPTIONS,
            )
        if "@" in urlsplit(server).netloc:
            self._fail("--server: an address with a user name or password in it is not understood.", EXIT_WRONG_OPTIONS)
        self._server = server.rstrip("/")
        try:
            sent = authorization_of()
            self._client = BlockingClient(
                parse_address(self._server),
                answer_bytes_max=_ANSWER_BYTES_MAX,
                headers=() if sent is None else (("authorization", sent),),
                ssl_context=context_of(self._server),
            )
        except HttpError as error:
            self._fail(
                f"--server: {shown_address(server)!r} is no address: {error}; such as {DEFAULT_SERVER}.",
                EXIT_WRONG_OPTIONS,
            )

    def get(self, path: str, answer: type[T], *, query: dict[str, str] | None = None) -> T:
        """GET `path`, and read the answer as `answer`.

        Without an answer the process ends with a sentence.
        """
        return self._read(self._ask("GET", f"{path}?{urlencode(query)}" if query else path), answer)

    def pages(self, path: str, answer: type[P]) -> Iterator[P]:
        """GET the pages of a list, one after the other; always one at least."""
        position = ""
        while True:
            page = self.get(path, answer, query={"position": position, "limit": PAGE_ROWS})
            yield page
            position = page.position
            if not position:
                return

    def get_text(self, path: str) -> str:
        """GET `path`, and return the answer as it is."""
        return self._ask("GET", path).decode(errors="replace")

    def post(self, path: str, body: object, answer: type[T], *, worded: Callable[[str], str] = str) -> T:
        """POST `body` as JSON; otherwise as `get`.

        A refusal is printed as `worded` returns it.
        """
        return self._read(self._ask("POST", path, msgspec.json.encode(body), worded), answer)

    def delete(self, path: str, answer: type[T]) -> T:
        """DELETE `path`; otherwise as `get`."""
        return self._read(self._ask("DELETE", path), answer)

    def _ask(self, method: str, path: str, body: bytes = b"", worded: Callable[[str], str] = str) -> bytes:
        try:
            response = self._client.request(method, path, body, timeout_s=_TIMEOUT_S)
        except HttpError as error:
            if error.kind is HttpErrorKind.PROTOCOL:
                self._stranger("answered something that is not HTTP (is it the gRPC port?)")
            if error.kind is HttpErrorKind.TLS:
                self._fail(f"{NO_TLS} {error.text}.\n{error.remedy}", EXIT_UNREACHABLE)
            if error.kind is HttpErrorKind.CLOSED:
                self._fail(
                    f"{self._server} ended the connection without an answer.\n{self._why_ended}", EXIT_UNREACHABLE
                )
            why = getattr(error.__cause__, "strerror", None) or error.__cause__ or error
            self._fail(
                f"No server answers at {self._server}: {why}.\n"
                f"Start one with `twophase server`, or name another with --server URL or {SERVER_VARIABLE}.",
                EXIT_UNREACHABLE,
            )
        if response.status == HTTPStatus.OK:
            return response.body
        failure = self._failure(response.status, response.body)
        node = other_node(self._server, failure.url) if failure.code == QueuesElsewhere.code else None
        if node is None or not self._hops:
            told = failure.message.removesuffix(_FOR_DTM).rstrip(". ")
            self._fail(worded(f"{failure.code}: {told}. {failure.remedy}"), EXIT_REFUSED)
        owner = Api(node, self._fail, hops=self._hops - 1)
        return owner._ask(method, path, body, worded)

    @property
    def _why_ended(self) -> str:
        if is_tls(self._server):
            return "If it demands a client certificate, name one: --client-certificate FILE and --client-key FILE."
        return "If it speaks TLS, write https://; if it was just starting or stopping, run this again."

    def _failure(self, status: int, body: bytes) -> _Failure:
        try:
            failure = msgspec.json.decode(body, type=_Failure)
        except msgspec.MsgspecError:
            failure = _Failure()
        if not failure.code:
            self._stranger(f"answered {status}")
        return failure

    def _read(self, body: bytes, answer: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.MsgspecError:
            self._stranger("gave an unexpected answer")

    def _stranger(self, what: str) -> NoReturn:
        version = f"{self._server}/api/dtmsvr/version"
        self._fail(
            f"{self._server} {what}: is it a twophase server, of this version?\nSee `curl {argument(version)}`.",
            EXIT_UNREACHABLE,
        )


def other_node(own: str, named: str) -> str | None:
    """Return the address of a node that a server names.

    None for one that is not followed to.

    >>> other_node("https://mq-1:36789/behind", "https://mq-2:36789")
    'https://mq-2:36789/behind'
    >>> [other_node("https://mq-1", named) for named in ("http://mq-2", "https://eve@mq-2", "https://mq-2/else", "")]
    [None, None, None, None]
    """
    try:
        server, address, parts = parse_address(own), parse_address(named), urlsplit(named)
    except (HttpError, ValueError):
        return None
    if parts.username is not None or parts.path.strip("/") or (server.tls and not address.tls):
        return None
    return f"{'https' if address.tls else 'http'}://{address.host_header}{server.path.rstrip('/')}"


def path_of(*parts: str) -> str:
    """Return a path below `/api/twophase/`, its parts escaped.

    >>> path_of("topics", "rates eur")
    '/api/twophase/topics/rates%20eur'
    """
    return "/api/twophase/" + "/".join(quote(part, safe="") for part in parts)


def print_json(value: Any, *, in_one_line: bool = False) -> None:
    """Print `value` as indented JSON, or in one line."""
    text = msgspec.json.encode(value)
    echo_json((text if in_one_line else msgspec.json.format(text, indent=2)).decode())


def _fail(text: str, code: int) -> NoReturn:
    echo(text, err=True)
    raise typer.Exit(code)
