"""A harness for flows without any I/O.

Commands go in, scripted results come out, and time moves when the test moves it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from twophase.barrier.asking import CheckBackAnswer
from twophase.barrier.dialect import SQLITE
from twophase.client import flow
from twophase.client.draft import Draft
from twophase.client.transport.exchange import FlowRuntime, Pause, RequestBounds, Send
from twophase.client.transport.wire import HttpAnswer, Operation
from twophase.core.options import Options
from twophase.core.verdict import Verdict

OK = HttpAnswer(200, b'{"dtm_result":"SUCCESS"}')
PREPARED = HttpAnswer(200, b'{"dtm_result":"SUCCESS","prepared_at":1700000000000}')


class Time:
    """Virtual time."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def runtime(self) -> FlowRuntime:
        """Return a producer's runtime, all of it known."""
        return FlowRuntime(
            wall_ms=lambda: 1_600_000_000_000,
            monotonic_s=lambda: self.now_ms / 1000,
            random_bytes=bytes,
            chance=lambda: 0.0,
        )


class Harness:
    """A harness that performs commands by a script and records them.

    Arguments:
        failures: what performing a command of this name raises.
        answers: what the coordinator answers to each try of an operation; the last one is repeated.
        verdict: what the barrier says.
        business: what the application raises.
    """

    def __init__(
        self,
        *,
        failures: dict[str, BaseException] | None = None,
        answers: dict[Operation, list[HttpAnswer | Exception]] | None = None,
        verdict: CheckBackAnswer | Verdict = Verdict.UNKNOWN,
        business: Any = None,
    ) -> None:
        self.time = Time()
        self.failures = failures or {}
        self.answers: dict[Operation, list[HttpAnswer | Exception]] = {Operation.PREPARE: [PREPARED], **(answers or {})}
        self.verdict = verdict if isinstance(verdict, CheckBackAnswer) else CheckBackAnswer(verdict)
        self.business = business
        self.performed: list[str] = []
        self.bodies: dict[str, dict[str, Any]] = {}

    def play(self, steps: flow.Flow) -> None:
        """Run a flow to its end; what it raises is raised."""
        try:
            command = next(steps)
            while True:
                try:
                    result = self._perform(command)
                except BaseException as error:  # noqa: BLE001 -- thrown into the flow, as a driver does
                    command = steps.throw(error)
                else:
                    command = steps.send(result)
        except StopIteration:
            return

    def _perform(self, command: flow.Command) -> Any:
        if isinstance(command, flow.Commit):
            self._note(str(command.last.gi_code.co_name))
        return self._do(command, self._name(command))

    def _note(self, name: str) -> None:
        self.performed.append(name)
        if name in self.failures:
            raise self.failures[name]

    def _do(self, command: flow.Command, name: str) -> Any:
        self._note(name)
        match command:
            case Send(operation, body, _):
                self.bodies[operation.value] = msgspec.json.decode(body)
                return self._answer(operation)
            case Pause(pause_ms):
                self.time.now_ms += pause_ms
            case flow.Business():
                return self.business() if callable(self.business) else self.business
            case flow.Begin():
                return SQLITE
            case flow.ReadIdentity():
                return "7f"
            case flow.AskBarrier():
                return self.verdict
        return None

    def _answer(self, operation: Operation) -> HttpAnswer:
        scripted: list[HttpAnswer | Exception] = self.answers.get(operation, [OK])
        answer = scripted.pop(0) if len(scripted) > 1 else scripted[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @staticmethod
    def _name(command: flow.Command) -> str:
        match command:
            case Send(operation, _, _):
                return operation.value
            case flow.Rule(steps):
                return str(steps.gi_code.co_name)
            case _:
                return type(command).__name__


def context(
    harness: Harness, *, options: Options | None = None, gid_is_ours: bool = True, branches: int = 1
) -> flow.FlowContext:
    """Return a new message's flow context on a harness."""
    draft = Draft("g", options or Options(), gid_is_ours=gid_is_ours)
    for number in range(branches):
        draft.add(f"http://b/{number + 1}", {"n": number + 1})
    return flow.FlowContext(draft, RequestBounds(), harness.time.runtime())
