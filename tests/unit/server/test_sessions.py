"""The names for which the clients of queues answer are bounded over all of them."""

from __future__ import annotations

from typing import Any, cast

from twophase.coordinator.queues import Question, QueueApi
from twophase.server.identity.caller import UNLIMITED
from twophase.server.sessions import NAMES_MAX, NAMES_OF_ALL_MAX, Session, Sessions


class _Queues:
    def attach(self, _client: Any) -> Any:
        return lambda: None


class _Channel:
    def offer(self, _question: Question) -> bool:
        return True


def _named(sessions: Sessions, number: int) -> Session:
    session = sessions.of(UNLIMITED, f"client-{number}")
    session.answers_for({f"topic-{number}-{name}" for name in range(NAMES_MAX)})
    return session


def test_clients_that_are_gone_are_forgotten_with_their_names_and_those_that_are_there_are_not() -> None:
    sessions = Sessions(cast("QueueApi", _Queues()))
    there = _named(sessions, 0)
    there.opened(_Channel())
    made = [_named(sessions, number) for number in range(1, 301)]
    assert sessions.of(UNLIMITED, "client-0") is there
    known = [one for number, one in enumerate(made, 1) if sessions.of(UNLIMITED, f"client-{number}") is one]
    assert sum(len(one.producers) for one in [there, *known]) <= NAMES_OF_ALL_MAX
    assert known == made[-len(known) :]
    assert len(known) > 90


def test_a_client_that_was_forgotten_counts_no_more() -> None:
    sessions = Sessions(cast("QueueApi", _Queues()))
    gone = sessions.of(UNLIMITED, "gone")
    for number in range(200):
        _named(sessions, number)
    gone.answers_for({f"late-{name}" for name in range(NAMES_MAX)})
    last = sessions.of(UNLIMITED, "client-199")
    again = _named(sessions, 200)
    assert sessions.of(UNLIMITED, "client-199") is last
    assert sessions.of(UNLIMITED, "client-200") is again
