"""The pytest fixture: `twophase_coordinator`, a real coordinator for one test.

Installed with twophase; a test only names it:

    def test_transfer(twophase_coordinator):
        message = Message(twophase_coordinator.url).add(...)

The server's parts (`pip install twophase[server]`) are imported when the fixture is first used, not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from twophase.testing.coordinator import InProcessCoordinator


@pytest.fixture
def twophase_coordinator() -> Iterator[InProcessCoordinator]:
    """A coordinator on a free port, whose clock the test owns; gone after the test."""
    from twophase.testing.coordinator import InProcessCoordinator  # noqa: PLC0415 -- needs the server's extras

    with InProcessCoordinator() as coordinator:
        yield coordinator
