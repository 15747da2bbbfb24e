"""Check addresses on the HTTP port: a list of them, and a probe of one on request.

The list has the addresses that this node probes. A probe on request cannot run in a circle: a POST begins it, and it is
itself a GET, which begins none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request

from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.dispatch.calls import why_not_askable
from twophase.coordinator.maintenance.probing import CheckAddress, Probing
from twophase.core.address import refused_address
from twophase.core.audit_log import AuditEntry
from twophase.core.errors import InvalidRequest
from twophase.core.hooks import Clock
from twophase.core.probe import PROBE_PATH, ProbeAsked, ProbeReport, ProbeShown, ShownAddress, ShownAddresses
from twophase.core.queue_message import ANSWERS_NO_CHECK, QUEUE_PREFIX
from twophase.destinations.base import Destination
from twophase.server.api.operation import Operation, Served, actor_of, caller_of
from twophase.server.codecs.encode import Answer, harmless

LIST: Final = Operation(
    path=PROBE_PATH,
    tag="operators",
    summary="The check addresses that this node probes, failing ones first",
    answer=ShownAddresses,
)
PROBE: Final = Operation(
    path=f"{PROBE_PATH}/probe",
    methods=("POST",),
    tag="operators",
    summary="Probe a check address from this node now",
    description="Nothing is written on either side; at most four such requests are served at once.",
    request=ProbeAsked,
    answer=ProbeShown,
)
_decode = msgspec.json.Decoder(ProbeAsked).decode
_encode = msgspec.json.Encoder().encode


def probe_operations(
    coordinator: Coordinator, destinations: Mapping[str, Destination], request_timeout_ms: int
) -> list[Served]:
    """Return the operations on check addresses, with their handlers."""
    ask = partial(why_not_askable, destinations)
    api = ProbesApi(coordinator.probing, ask, request_timeout_ms, coordinator.clock, coordinator.note_act)
    return api.served()


class ProbesApi:
    """The handlers.

    Arguments:
        probing: the coordinator's.
        why_not_callable: None for an address that can be called; else the reason.
        request_timeout_ms: how long a check-back may take, for comparison with the route's own bound.
        clock: the time of the store.
        note_act: writes an act into the audit log.
    """

    def __init__(
        self,
        probing: Probing,
        why_not_callable: Callable[[str], str | None],
        request_timeout_ms: int,
        clock: Clock,
        note_act: Callable[[AuditEntry], Awaitable[None]],
    ) -> None:
        self._note_act = note_act
        self._probing = probing
        self._why_not_callable = why_not_callable
        self._request_timeout_ms = request_timeout_ms
        self._clock = clock

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [Served(LIST, self._list), Served(PROBE, self._probe)]

    async def _list(self, request: Request) -> Answer:
        reads_answers = caller_of(request).reads_answers
        addresses = [_shown(address, reads_answers=reads_answers) for address in self._probing.addresses()]
        return _json(ShownAddresses(addresses, self._probing.on, self._clock.now_ms()))

    async def _probe(self, request: Request) -> Answer:
        try:
            url = _decode(await request.body()).url
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f'a JSON object {{"url"}} is needed: {error}.') from error
        wrong = ANSWERS_NO_CHECK if url.startswith(QUEUE_PREFIX) else self._why_not_callable(url)
        if not url:
            wrong = "it is empty."
        if wrong is not None:
            raise refused_address("url: ", wrong)
        caller_of(request).require_address(url)
        actor = actor_of(request)
        await self._note_act(AuditEntry(actor.who, actor.peer, "probe", url.partition("?")[0]))
        probed, latency_ms = await self._probing.probe(url)
        if not caller_of(request).reads_answers:
            probed = probed.told
        report = probed.report or ProbeReport(probed.state)
        return _json(
            ProbeShown(
                url.partition("?")[0],
                probed.state.value,
                probed.well,
                probed.message,
                probed.remedy,
                latency_ms,
                self._clock.now_ms(),
                report.now_ms,
                report.lock_timeout_ms,
                self._request_timeout_ms,
            )
        )


def _shown(one: CheckAddress, *, reads_answers: bool) -> ShownAddress:
    probed = one.probed
    if probed is not None and not reads_answers:
        probed = probed.told
    if probed is None:
        return ShownAddress(one.target, "", one.failing, "", "", 0)
    return ShownAddress(one.target, probed.state.value, one.failing, probed.message, probed.remedy, one.probed_ms)


def _json(value: msgspec.Struct) -> Answer:
    return Answer(200, harmless(_encode(value)))
