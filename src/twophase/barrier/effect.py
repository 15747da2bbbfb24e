"""The application's function, blocking or async as its call is, so that none is confirmed that has not run.

A coroutine function that nobody awaits does nothing, and says nothing of it either: its transaction would commit, its
branch be answered for, its message be sent, all without the effect. Keeps I6 on the application's side.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from twophase.core.errors import FunctionRefused

R = TypeVar("R")


def require_blocking(function: Callable[[Any], object], other: str) -> None:
    """Refuse, before anything is opened, a function whose call runs nothing.

    Arguments:
        other: the call that takes such a function.

    Raises:
        FunctionRefused: an async function or a generator function.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise FunctionRefused(f"the function is async, and nothing here awaits it; use `{other}`.")
    if inspect.isgeneratorfunction(function):
        raise FunctionRefused("the function is a generator function: calling it runs nothing of it.")


def require_ended(result: R, other: str) -> R:
    """Return `result`, unless it is an awaitable: a hidden async function made it.

    Raises:
        FunctionRefused: it waits to be awaited; the caller rolls back.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise FunctionRefused(f"the function returned what nothing here awaits; use `{other}`.")
    return result


def require_awaitable(result: Awaitable[R], other: str) -> Awaitable[R]:
    """Return `result`, unless the function was a blocking one.

    Raises:
        FunctionRefused: it has run, and the caller rolls back.
    """
    if not inspect.isawaitable(result):
        raise FunctionRefused(f"the function is not async; use `{other}`, with a blocking engine.")
    return result
