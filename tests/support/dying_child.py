"""A child process that a test lets die at a point.

It is forked by a process that has one thread and has imported what it needs. A child of the test's own process could
wait for ever for a lock that another thread, of Spark's or Arrow's, held at the fork.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, Final

PATIENCE_S: Final = 100.0
_children = multiprocessing.get_context("forkserver")


def exit_code_of(work: Callable[..., Any], *arguments: Any, imports: tuple[str, ...] = ()) -> int:
    """Do work in a child, and return its exit code.

    A negative one is the signal that ended it.

    Arguments:
        work: a function of a module, which the child finds by its name.
        arguments: can be pickled.
        imports: modules that the forking process imports; those of the first call count.
    """
    _children.set_forkserver_preload(list(imports))
    child = _children.Process(target=work, args=arguments)
    child.start()
    child.join(PATIENCE_S)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise AssertionError(f"{work.__name__} did not end within {PATIENCE_S:g} s")
    return child.exitcode
