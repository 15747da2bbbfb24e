"""The time that a wait took, with and without a busy machine's delays.

A delay is the time in which the machine did not let the loop run.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

_LOOK_S = 0.02
_LATE_S_MAX = 10.0
"""More is no busy machine: the block itself has held the loop."""


class Watch:
    """A measurement of its block; every timer in it is late when the loop is late.

    An upper bound holds for `waited_s`, which leaves the lateness out; a lower bound holds for `passed_s`, because a
    deadline continues while the loop does not run.
    """

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.waited_s = 0.0
        self.late_s = 0.0

    async def __aenter__(self) -> Watch:
        self._began_s = asyncio.get_running_loop().time()
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.passed_s = asyncio.get_running_loop().time() - self._began_s
        self.waited_s = self.passed_s - self.late_s
        self._looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._looking
        if error is None:
            assert self.late_s < _LATE_S_MAX, f"the loop could not run for {self.late_s:.1f} s"

    async def _look(self) -> None:
        time = asyncio.get_running_loop().time
        while True:
            before_s = time()
            await asyncio.sleep(_LOOK_S)
            self.late_s += max(0.0, time() - before_s - _LOOK_S)
