"""Checks that every framework shares.

A branch's function fits its engine, and a missing extra is named.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from twophase.barrier.open import is_async, refuse_url
from twophase.core.errors import FunctionRefused


def is_coroutine_branch(engine: Any, function: Callable[..., object]) -> bool:
    """True when a decorated function is an `async def`, as its engine must be async.

    Raises:
        FunctionRefused: one is async and the other is not, or the function yields.
        UnsupportedEngine: the engine is a URL.
    """
    refuse_url(engine)
    if not callable(function):
        raise FunctionRefused("branch takes an engine: write `@branch(engine)`, and put it below the route.")
    if _yields(function):
        raise FunctionRefused(f"{_named(function)} is a generator function: calling it does not run it.")
    asynchronous = inspect.iscoroutinefunction(function)
    if asynchronous is not is_async(engine):
        kinds = ("a plain function", "a blocking one") if is_async(engine) else ("an `async def`", "an async one")
        raise FunctionRefused(f"{_named(function)} is {kinds[0]}; its engine must be {kinds[1]}.")
    return asynchronous


def _yields(function: Callable[..., object]) -> bool:
    """True for a generator function, also one that is wrapped.

    FastAPI looks behind wrappers, too, and answers 200 before the first step of what it takes for a stream.
    """
    while isinstance(function, functools.partial):
        function = function.func
    wrapped = inspect.unwrap(function)
    called = wrapped if inspect.isroutine(wrapped) else getattr(wrapped, "__call__", wrapped)  # noqa: B004 -- its code
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def _named(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", "the function")


def missing_extra(extra: str, error: ImportError) -> ImportError:
    """Return the error of an integration whose framework is not installed.

    It is `error` itself where another import failed.
    """
    if (error.name or "").partition(".")[0] != extra:
        return error
    return ImportError(
        f"twophase.integrations.{extra} needs the package {extra!r}. Run `pip install 'twophase[{extra}]'`.",
        name=error.name,
    )
