"""The tools for tests of services that use twophase.

They are a coordinator in the test's process, a clock that the test owns, and failpoints.

`InProcessCoordinator` needs the server's extras (`pip install twophase[server]`). Failpoints are an environment
variable: `TWOPHASE_FAILPOINT=producer.after_commit:2` kills a process by SIGKILL at the second passage of that
instruction; `failpoint_names()` lists them. `outer_transaction` is for tests that roll back all their changes. `State`
is a message's state, as `wait_final` returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twophase.core.failpoint import NAMES
from twophase.core.lifecycle import State
from twophase.testing.clock import VirtualClock
from twophase.testing.outer import outer_transaction

if TYPE_CHECKING:
    from twophase.testing.coordinator import InProcessCoordinator

__all__ = ["InProcessCoordinator", "State", "VirtualClock", "failpoint_names", "outer_transaction"]


def failpoint_names() -> list[str]:
    """Every instruction at which a test may kill a process, in alphabetical order.

    >>> "producer.after_commit" in failpoint_names()
    True
    """
    return sorted(NAMES)


def __getattr__(name: str) -> Any:
    if name == "InProcessCoordinator":
        try:
            from twophase.testing.coordinator import InProcessCoordinator  # noqa: PLC0415 -- needs the server's extras
        except ModuleNotFoundError as error:
            needed = f"twophase.testing.InProcessCoordinator needs the package {error.name!r}."
            raise ImportError(f"{needed} Run `pip install 'twophase[server]'`.", name=error.name) from None
        return InProcessCoordinator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
