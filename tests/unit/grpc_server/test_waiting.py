"""Messages that wait, against a queue of them."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from twophase.grpc_server.waiting import Waiting


@given(st.lists(st.one_of(st.none(), st.tuples(st.binary(max_size=40), st.integers(5, 1 << 24)))))
def test_messages_are_taken_as_they_were_added(steps: list[tuple[bytes, int] | None]) -> None:
    """None takes a message, if there is one."""
    waiting, model = Waiting(), deque[tuple[bytes, int]]()
    for step in steps:
        if step is not None:
            waiting.add(*step)
            model.append(step)
        elif waiting:
            assert waiting.take() == model.popleft()
        assert bool(waiting) == bool(model)
        assert waiting.size == sum(len(message) + 8 for message, _ in model)


def test_messages_of_no_byte_are_counted() -> None:
    waiting = Waiting()
    for _ in range(13_107):
        waiting.add(b"", 5)
    assert waiting.size == 13_107 * 8
    waiting.clear()
    assert (waiting.size, bool(waiting)) == (0, False)
