"""Branches and check-backs over gRPC, called as dtm calls them (dtm-wire §2).

A call carries raw bytes, and metadata that names the branch. Addresses read `grpc://host:port/package.Service/Method`,
`grpcs://` for TLS, or without a scheme in messages of protocol `grpc`. Promise: one answer a call, within its deadline.
A gRPC status becomes the HTTP status that means the same; a reply's bytes are the application's own and never searched
for words, and only an answer with a verdict in its metadata hands its bytes on. One channel a host is kept; beyond a
bound, the least used are closed. gRPC shows a reply only when it is there, so a call keeps room in the budget of bytes
for the largest reply that its host has sent so far.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from twophase.core.headers import CONNECTION_HEADERS
from twophase.core.limits import ERROR_TEXT_BYTES_MAX, URL_BYTES_MAX
from twophase.core.signature import VERDICT_SIGNATURE_HEADER
from twophase.core.trust import Trust
from twophase.core.verdict import VERDICT_HEADER, status_of_grpc
from twophase.destinations.allow_list import AllowList, with_own
from twophase.destinations.base import Answer, Call
from twophase.destinations.signing import CallSigner
from twophase.http_client.address import Address, parse_address
from twophase.http_client.byte_budget import NO_ROOM_FOR_ANSWERS, ByteBudget
from twophase.http_client.dial import Dialer
from twophase.http_client.guard import Guard
from twophase.http_client.names import Names
from twophase.http_client.outcome import HttpError, HttpErrorKind

if TYPE_CHECKING:
    import grpc.aio

_METHOD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*/[A-Za-z_][A-Za-z0-9_]*")
_NAME: Final = re.compile(r"[0-9a-z_.-]+")
_REMEDY: Final = "write grpc://host:port/package.Service/Method"
_DTM: Final = {name: f"dtm-{name}" for name in ("branch_id", "gid", "op", "trans_type")}
_NOT_SENT: Final = CONNECTION_HEADERS | {
    *("content-type", "user-agent", "accept", "accept-encoding", "content-encoding"),
}
_CHANNELS_MAX: Final = 1024
_ADDRESSES_MAX: Final = 2048
_RENEWED_S: Final = 60.0
"""Time for calls on a connection that is replaced."""
_REPLY_BYTES: Final = 16 * 1024
"""Room for a reply of a host that has sent none that is larger."""
_TARGET_S: Final = 1.0
"""Time for which the judged addresses of a host are used again."""


class _Wrong(ValueError):
    """The reason why an address or a header cannot be used."""


class _Address(NamedTuple):
    key: str
    host: Address
    target: str
    tls: bool
    method: str
    metadata: tuple[tuple[str, str], ...]
    """The address's own query: `?barrier=7f` becomes `twophase-barrier: 7f`."""


class _Channel:
    """A connection to one host, and the number of its calls under way."""

    __slots__ = ("channel", "methods", "reply_bytes", "under_way")

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.methods: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self.under_way = 0
        self.reply_bytes = _REPLY_BYTES
        """The largest reply that it has sent."""

    def method(self, name: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        """Return the method, its requests and replies as bytes."""
        known = self.methods.get(name)
        if known is None:
            if len(self.methods) >= _ADDRESSES_MAX:
                self.methods.clear()
            known = self.methods[name] = self.channel.unary_unary(f"/{name}")
        return known


class GrpcDestination:
    """Calls `grpc` and `grpcs` addresses; grpcio is loaded by the first call.

    Arguments:
        response_bytes_max: the largest reply that is read.
        channels_max: hosts connected at once; beyond, one without a call under way is closed.
        names: resolves names where there is a guard; its own when None.
        guard: judges each address before it is connected to; None leaves names to gRPC and allows every address.
        allowed: the addresses that may be called; every one by default.
        budget: of the bytes of unfinished replies; its own by default.
    """

    def __init__(
        self,
        *,
        response_bytes_max: int = 1024 * 1024,
        channels_max: int = _CHANNELS_MAX,
        names: Names | None = None,
        guard: Guard | None = None,
        allowed: AllowList | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        self._budget = budget or ByteBudget()
        self._response_bytes_max = response_bytes_max
        self._channels_max = channels_max
        self._names = names or Names()
        self._guard = guard
        self._allowed = allowed or AllowList()
        self._addresses: dict[str, _Address] = {}
        self._targets: dict[str, tuple[str, float]] = {}
        self._channels: OrderedDict[str, _Channel] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._roots: bytes | None = None

    def accepts(self, url: str) -> str | None:
        """Return None when `url` can be called; else why not.

        >>> GrpcDestination().accepts("grpc://bank-b:58080/bank.Bank/TransferIn")
        >>> GrpcDestination().accepts("grpc://bank-b/bank.Bank/TransferIn")
        'bad_url: the port is missing; write grpc://host:port/package.Service/Method'
        """
        try:
            address = self._address(url)
        except _Wrong as error:
            return f"bad_url: {error}"
        try:
            if self._guard is not None:
                self._guard.require_literal(address.host.host, address.host.port)
        except HttpError as error:
            return str(error)
        return self._allowed.why_not(address.key, f"/{address.method}") or None

    def key(self, url: str) -> str:
        """Return scheme, host and port.

        >>> GrpcDestination().key("Bank-B:58080/bank.Bank/TransferIn")
        'grpc://bank-b:58080'
        """
        return self._address(url).key

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        """Send the payload's bytes; the metadata names the branch and its message."""
        task = asyncio.get_running_loop().create_task(self._perform(call, on_answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Give calls under way an error answer, close every channel."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in list(self._channels.values()):
            await channel.channel.close()
        self._channels.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def renew(self) -> None:
        """Connect anew where certificates are of the operator's list.

        Their files are read again. Calls under way end on the connections that they have.
        """
        for key in [key for key in self._channels if key.partition(" ")[0] in self._allowed.trust]:
            self._close(self._channels.pop(key), _RENEWED_S)

    @property
    def connected(self) -> tuple[str, ...]:
        """Return the hosts with a channel, the one used longest ago first."""
        return tuple(self._channels)

    async def _perform(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            answer = await self._exchange(call)
        except asyncio.CancelledError:
            answer = Answer(0, error="closed: the destination was stopped")
        except HttpError as failure:
            answer = Answer(0, error=str(failure))
        except Exception as fault:  # noqa: BLE001 -- one answer comes, whatever happens
            answer = Answer(0, error=f"{type(fault).__name__}: {fault}")
        latency_ms = (loop.time() - started_s) * 1000
        on_answer(msgspec.structs.replace(answer, latency_ms=latency_ms, error=_shortened(answer.error)))

    async def _exchange(self, call: Call) -> Answer:
        import grpc  # noqa: PLC0415 -- only where gRPC is spoken

        address = self._address(call.url)
        listed = self._allowed.find(address.key, f"/{address.method}")
        ends_s = asyncio.get_running_loop().time() + call.timeout_ms / 1000
        target = await self._resolved(address, call.timeout_ms / 1000)
        channel = self._channel(address, target, max(self._response_bytes_max, call.answer_bytes_max))
        metadata = _metadata(call, address, () if listed is None else listed.headers)
        signer = None if listed is None or listed.key is None else CallSigner(listed.key, call)
        if signer is not None:
            metadata.append(signer.grpc(f"/{address.method}", metadata))
        judge = signer.judged if signer is not None and listed is not None and listed.signed_verdicts else None
        account = self._budget.account(address.key)
        if not account.keep(channel.reply_bytes):
            raise HttpError(HttpErrorKind.NO_ROOM, NO_ROOM_FOR_ANSWERS)
        channel.under_way += 1
        try:
            outgoing = channel.method(address.method)(
                call.payload, metadata=metadata, timeout=ends_s - asyncio.get_running_loop().time()
            )
            try:
                reply = await outgoing
            except grpc.aio.AioRpcError as error:
                details = error.details() or ""
                code: int = error.code().value[0]
                trailing = error.trailing_metadata()
                text = f"gRPC {error.code().name}: {details}"
                answer = Answer(status_of_grpc(code, details), b"", _one_of(trailing, VERDICT_HEADER), error=text)
            else:
                channel.reply_bytes = max(channel.reply_bytes, len(reply))
                trailing = await outgoing.trailing_metadata()
                verdict = _one_of(trailing, VERDICT_HEADER)
                answer = Answer(200, reply if verdict is not None else b"", verdict)
            return answer if judge is None else judge(answer, _one_of(trailing, VERDICT_SIGNATURE_HEADER))
        finally:
            channel.under_way -= 1
            account.release()

    async def _resolved(self, address: _Address, timeout_s: float) -> str:
        """Return the target of a channel: addresses that may be connected to.

        gRPC would resolve a name by itself, and connect to whatever it finds.
        """
        if self._guard is None:
            return f"dns:///{address.target}"
        loop = asyncio.get_running_loop()
        known, until_s = self._targets.get(address.key, ("", 0.0))
        if loop.time() < until_s:
            return known
        dialer = Dialer(address.host, loop, timeout_ms=0, tls=None, names=self._names, guard=self._guard)
        found = sorted(await dialer.addresses(timeout_s))
        port = address.host.port
        if all(family == socket.AF_INET for family, _ in found):
            target = "ipv4:" + ",".join([f"{host}:{port}" for _, host in found])
        else:  # a target has one family: IPv6 carries the other one
            target = "ipv6:" + ",".join([f"[{host if ':' in host else f'::ffff:{host}'}]:{port}" for _, host in found])
        if len(self._targets) >= _ADDRESSES_MAX:
            self._targets.clear()
        self._targets[address.key] = target, loop.time() + _TARGET_S
        return target

    def _channel(self, address: _Address, target: str, bytes_max: int) -> _Channel:
        # A channel has one bound on receiving for all of its calls: calls that may receive more have a channel of their
        # own.
        # So has each set of addresses: a name that moved is followed.
        key = address.key if target.startswith("dns:") else f"{address.key} {target}"
        if bytes_max != self._response_bytes_max:
            key = f"{key} {bytes_max}"
        known = self._channels.get(key)
        if known is not None:
            self._channels.move_to_end(key)
            return known
        import grpc.aio  # noqa: PLC0415 -- only where gRPC is spoken

        from twophase.grpc_wire.channel import channel_options, trusted_roots  # noqa: PLC0415 -- the same

        self._make_room()
        options = [*channel_options(bytes_max), ("grpc.default_authority", address.target)]
        if address.tls:
            roots, private_key, chain = self._allowed.trust.get(address.key, Trust()).pem()
            if roots is None:
                roots = self._roots = self._roots or trusted_roots()
            credentials = grpc.ssl_channel_credentials(roots, private_key, chain)
            # Without its port, as a certificate names it; else it would have to name the address.
            options.append(("grpc.ssl_target_name_override", address.host.host))
            opened = grpc.aio.secure_channel(target, credentials, options)
        else:
            opened = grpc.aio.insecure_channel(target, options)
        channel = self._channels[key] = _Channel(opened)
        return channel

    def _make_room(self) -> None:
        if len(self._channels) < self._channels_max:
            return
        idle = next((key for key, channel in self._channels.items() if not channel.under_way), None)
        if idle is None:
            raise _Wrong(f"{self._channels_max} hosts are being called at once; try again")
        self._close(self._channels.pop(idle))

    def _close(self, channel: _Channel, grace_s: float | None = None) -> None:
        task = asyncio.get_running_loop().create_task(channel.channel.close(grace_s))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _address(self, url: str) -> _Address:
        known = self._addresses.get(url)
        if known is None:
            known = _parse(url)
            if len(self._addresses) >= _ADDRESSES_MAX:
                self._addresses.clear()
            self._addresses[url] = known
        return known


def _parse(url: str) -> _Address:
    """Take an address apart.

    Nothing in it can name another kind of target, such as a socket file or a resolver.
    """
    bytes_long = len(url.encode("utf-8", "surrogatepass"))
    if bytes_long > URL_BYTES_MAX.value:
        raise _Wrong(f"{bytes_long} bytes, at most {URL_BYTES_MAX.value} are allowed")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "grpc", url
    authority, _, path = rest.partition("/")
    method, _, query = path.partition("?")
    try:
        address = parse_address(f"http://{authority}/")
    except HttpError as error:
        raise _Wrong(f"{str(error).partition(': ')[2]}; {_REMEDY}") from error
    if not authority.rpartition(":")[2].isdecimal() or authority.endswith("]"):
        raise _Wrong(f"the port is missing; {_REMEDY}")
    if not _METHOD.fullmatch(method):
        raise _Wrong(f"the method is not package.Service/Method; {_REMEDY}")
    target = f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"
    tls = scheme.lower() == "grpcs"
    return _Address(f"{'grpcs' if tls else 'grpc'}://{target}", address, target, tls, method, _pairs(query))


def _pairs(query: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        value = unquote(value)
        if not _NAME.fullmatch(name) or name.endswith("-bin") or not (value.isascii() and value.isprintable()):
            raise _Wrong(f"the parameter {name[:45]!r} cannot be metadata, where gRPC has no query")
        pairs.append((f"twophase-{name}", value))
    return tuple(pairs)


def _metadata(call: Call, address: _Address, own: tuple[tuple[str, str], ...]) -> list[tuple[str, str | bytes]]:
    """Return the metadata of a call.

    First stands what names the branch, then the address's own parameters, then the message's headers, with those of the
    operator's list in place of its own of the same names.
    """
    metadata: list[tuple[str, str | bytes]] = [
        (_DTM.get(name) or f"twophase-{name}", _ascii(name, value)) for name, value in call.query
    ]
    metadata.append(("dtm-dtm", ""))
    metadata.extend(address.metadata)
    for name, value in with_own(call.headers, own) if own else call.headers:
        key = name.lower()
        if key in _NOT_SENT or key.startswith("grpc-"):
            continue  # they frame a call over HTTP, which carries them
        if not _NAME.fullmatch(key):
            raise _Wrong(f"the header {name[:45]!r} cannot be gRPC metadata")
        metadata.append((key, value.encode() if key.endswith("-bin") else value))
    return metadata


def _ascii(name: str, value: str) -> str:
    if value.isascii() and value.isprintable():
        return value
    raise _Wrong(f"the {name} has characters that gRPC metadata cannot carry")


def _one_of(metadata: grpc.aio.Metadata | None, name: str) -> str | None:
    """Return the value of this name in an answer's metadata.

    Two that differ contradict each other, and count as no verdict.
    """
    values = {str(value) for key, value in metadata or () if key == name}
    return values.pop() if len(values) == 1 else "contradicting" if values else None


def _shortened(text: str) -> str:
    return text.encode("utf-8", "replace")[: ERROR_TEXT_BYTES_MAX.value].decode("utf-8", "ignore")
