"""Dispatches due messages: calls of branches, and check-backs of producers.

Each kind has its own bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

from twophase.coordinator.dispatch.alerts import Alerts
from twophase.coordinator.dispatch.calls import Calls
from twophase.coordinator.dispatch.check_back import CheckBack
from twophase.coordinator.dispatch.delivery import Delivery
from twophase.coordinator.dispatch.force_stop import ForceStop
from twophase.coordinator.dispatch.limiter import ConcurrencyLimiter
from twophase.coordinator.dispatch.producers import Producers
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.machine import StateMachine
from twophase.coordinator.topics import Topics
from twophase.core.lifecycle import State
from twophase.destinations.base import Destination


class Dispatcher:
    """Calls branches and asks producers.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        memory: the messages in memory.
        machine: handles what the answers mean.
        topics: the subscribers of topics, for branches that came late.
        destinations: how to call an address, by its scheme.
        alerts: reports messages whose calls fail.
    """

    def __init__(
        self,
        runtime: Runtime,
        memory: ActiveSet,
        machine: StateMachine,
        topics: Topics,
        destinations: Mapping[str, Destination],
        alerts: Alerts,
    ) -> None:
        self.branch_calls = Calls(destinations, _limiter(runtime))
        self.check_calls = Calls(destinations, _limiter(runtime), identities_max=1)
        self.delivery = Delivery(runtime, memory, machine, topics, self.branch_calls, alerts)
        self.producers = Producers(runtime, memory, machine)
        self._check_back = CheckBack(runtime, memory, machine, self.check_calls, alerts, self.producers)
        self.force_stop = ForceStop(machine, self._check_back)

    @property
    def calling(self) -> int:
        """The number of calls under way."""
        return self.branch_calls.limiter.in_flight + self.check_calls.limiter.in_flight

    def dispatch(self, active: ActiveMessage) -> None:
        """Ask the producer of a prepared message, or call the branches of a submitted one."""
        if active.state is State.PREPARED:
            self._check_back.ask(active)
        else:
            self.delivery.begin(active)

    def make_room(self, calls_max: int) -> None:
        """Have slow queues give up as many calls of each kind at most."""
        self.branch_calls.limiter.make_room(calls_max)
        self.check_calls.limiter.make_room(calls_max)

    def drain(self) -> None:
        """Start no call until `resume`; drop those that wait.

        Calls under way continue.
        """
        self.branch_calls.drain()
        self.check_calls.drain()
        self.producers.draining = True

    def resume(self) -> None:
        """Start calls again."""
        self.branch_calls.resume()
        self.check_calls.resume()
        self.producers.draining = False


def _limiter(runtime: Runtime) -> ConcurrencyLimiter:
    settings, owners = runtime.settings, runtime.owners
    return ConcurrencyLimiter(
        settings.in_flight_max,
        settings.in_flight_per_destination_max,
        settings.queue_waiting_max,
        runtime.clock,
        settings.in_flight_of,
        lambda owner: owners.calls_max(owner) or settings.in_flight_per_owner_max,
    )
