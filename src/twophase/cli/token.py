"""`twophase token …`: make, list and revoke tokens in the server's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, NoReturn

import msgspec
import typer

from twophase.cli.console import echo, echo_json
from twophase.cli.error_text import error_text
from twophase.core.errors import ConfigurationError
from twophase.server.identity.caller import Caller
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Quota, Token, changing, digest_of, fresh_token, read_tokens

app = typer.Typer(
    name="token",
    help="Tokens of clients: create, list and revoke them in the server's file.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

EXIT_REFUSED: Final = 1
EXIT_UNUSABLE: Final = 2
_REREAD: Final = "A running server reads the file at SIGHUP: kill -HUP PID, or systemctl reload."
_SHOWN_DIGITS: Final = 12

FileOption = Annotated[
    Path, typer.Option("--tokens", help="The server's file of tokens.", envvar="TWOPHASE_TOKENS", metavar="FILE")
]
NameArgument = Annotated[str, typer.Argument(help="The client's name; it owns the messages that it sends.")]

_ADD_EXAMPLES: Final = """\b
Examples:
  twophase token add orders --scope produce --tokens tokens.toml
  twophase token add eve --scope observe --scope operate
  twophase token add shop --scope produce --gid-prefix shop- --destination http://bank-b/in --requests-per-s 200
  twophase token add pay --scope produce --san pay.internal        known by its certificate; no token is made"""


@app.command(epilog=_ADD_EXAMPLES)
def add(
    name: NameArgument,
    scope: Annotated[list[Scope], typer.Option(help="A kind of request that it may make; may be repeated.")],
    tokens: FileOption = Path("tokens.toml"),
    gid_prefix: Annotated[str, typer.Option(help="Beginning of every gid that it may name.")] = "",
    destination: Annotated[
        list[str] | None, typer.Option(help="Prefix of the addresses that its messages may call; may be repeated.")
    ] = None,
    san: Annotated[list[str] | None, typer.Option(help="DNS name in its certificate, instead of a token.")] = None,
    requests_per_s: Annotated[int | None, typer.Option(min=1, help="Most requests a second, at each node.")] = None,
    bytes_stored: Annotated[int | None, typer.Option(min=1, help="Most bytes of its unfinished messages.")] = None,
    waiting_messages: Annotated[
        int | None, typer.Option(min=1, help="Most unfinished messages that it may have.")
    ] = None,
    calls_in_flight: Annotated[int | None, typer.Option(min=1, help="Most calls for it at once, at each node.")] = None,
) -> None:
    """Make a token and print it, once: the file holds only its SHA-256.

    A second token of one name is one more for the same owner, so that a client can change from one to the other.
    """
    token = "" if san else fresh_token()
    entry = Token(
        name,
        tuple(dict.fromkeys(scope)),
        digest_of(token) if token else "",
        tuple(san or ()),
        gid_prefix,
        tuple(destination or ()),
        Quota(requests_per_s, bytes_stored, waiting_messages, calls_in_flight),
    )
    try:
        Caller(name, destinations=entry.destinations)  # refuses a prefix that none can be
        with changing(tokens) as entries:
            entries.append(entry)
    except ConfigurationError as error:
        _refuse(error)
    if token:
        echo(token)
        echo(f"This is the token of {name}; it is not shown again.", err=True)
    echo(_REREAD, err=True)


@app.command(name="list")
def list_(
    tokens: FileOption = Path("tokens.toml"),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead, for programs.")] = False,
) -> None:
    """List the clients, and what each may do; never a token."""
    try:
        entries = read_tokens(tokens)
    except ConfigurationError as error:
        _refuse(error)
    if as_json:
        echo_json(msgspec.json.encode([msgspec.to_builtins(entry) for entry in entries]).decode())
        return
    for entry in entries:
        echo(line_of(entry))


@app.command()
def revoke(
    name: NameArgument,
    tokens: FileOption = Path("tokens.toml"),
    *,
    older: Annotated[bool, typer.Option("--older", help="Keep the newest token of that name.")] = False,
) -> None:
    """Remove the tokens of a client."""
    try:
        with changing(tokens) as entries:
            found = [entry for entry in entries if entry.name == name]
            gone = found[:-1] if older else found
            entries[:] = [entry for entry in entries if entry not in gone]
    except ConfigurationError as error:
        _refuse(error)
    if not gone:
        echo(f"{tokens} has no {'older ' if older else ''}token of {name}.", err=True)
        raise typer.Exit(EXIT_REFUSED)
    echo(f"{len(gone)} of {len(found)} tokens of {name} removed. {_REREAD}", err=True)


def line_of(token: Token) -> str:
    """Return a token's entry in a line.

    >>> line_of(Token("orders", (Scope.PRODUCE,), "ab" * 32, quota=Quota(requests_per_s=50)))
    'orders  produce  sha256 abababababab…  requests_per_s=50'
    """
    known = f"sha256 {token.sha256[:_SHOWN_DIGITS]}…" if token.sha256 else f"san {', '.join(token.san)}"
    bounds = [f"{name}={value}" for name, value in msgspec.structs.asdict(token.quota).items() if value is not None]
    if token.gid_prefix:
        bounds.append(f"gid_prefix={token.gid_prefix}")
    if token.destinations:
        bounds.append(f"destinations={','.join(token.destinations)}")
    return "  ".join([token.name, ",".join(token.scopes), known, *bounds])


def _refuse(error: ConfigurationError) -> NoReturn:
    echo(error_text(error), err=True)
    raise typer.Exit(EXIT_UNUSABLE) from None
