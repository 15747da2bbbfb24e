"""The application's function, blocking or async as its call is.

No function is confirmed that has not run. A coroutine that is not awaited does nothing, and raises no error: its
transaction would commit, its branch be answered for, its message be sent, all without the effect. The same holds for a
generator, and for a refusal that a branch's function returns instead of raising it. This keeps I6 on the application's
side.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from twophase.core.errors import EventLoopBlocked, FunctionRefused

R = TypeVar("R")
REFUSAL: Final = 400
"""The least HTTP status that says no."""
_STATUS_DIGITS: Final = 3
_REFUSING_WORDS: Final = ("FAILURE", "ONGOING")
_DTM_RESULT: Final = re.compile(r'\A\s*(?:\{\s*"dtm_result"\s*:\s*")?(FAILURE|ONGOING)(?:"|\s*\Z)')
_DTM_BODY_MAX: Final = 1_000
"""Characters; a longer text is no such answer."""
NOT_SENT: Final = "which is not sent: its branch would count as done."
RAISE: Final = "Raise BranchRefused, BranchOngoing or an error instead; nothing was committed."


def require_blocking(function: Callable[[Any], object], other: str) -> None:
    """Refuse, before anything is opened, a function whose call runs nothing.

    Arguments:
        other: the call that takes such a function.

    Raises:
        FunctionRefused: no function, an async function or a generator function.
    """
    if not callable(function):
        raise FunctionRefused(
            f"the function is of {type(function).__name__}, and cannot be called.",
            remedy="Give the engine, then the function, then the check address.",
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise FunctionRefused(f"the function is async, and nothing here awaits it; use `{other}`.")
    if inspect.isgeneratorfunction(function):
        raise FunctionRefused("the function is a generator function: calling it does not run it.")


def require_no_event_loop() -> None:
    """Refuse a blocking effect where an event loop runs in this thread.

    Every other request of the service would wait for it, and two effects on one row for each other: the second one
    blocks the loop that the first one needs for its COMMIT.

    Raises:
        EventLoopBlocked: there is one, and SQLAlchemy's `run_sync` does not give control back to it.
    """
    # Where asyncio was never imported no loop runs, and importing it would cost more than all the rest.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:  # noqa: SLF001 -- the public one raises
        return
    concurrency = sys.modules.get("sqlalchemy.util.concurrency")
    if concurrency is not None and concurrency.in_greenlet():
        return
    raise EventLoopBlocked(
        "A blocking effect was called in a running event loop, which it would stop; nothing was begun.",
        remedy="Make the route a plain `def`, which its framework runs in a thread; or use `aonce` with an async "
        "engine; or write `await asyncio.to_thread(once, …)`. A connection of sqlite3 needs `check_same_thread=False` "
        "for that.",
    )


def require_ended(result: R, advice: str) -> R:
    """Return `result`, unless the function has not run to its end.

    An object, a `partial` or a lambda may hide an async function or a generator function, and an async function may
    return what it should have awaited. A generator expression passes: it is no function.

    Arguments:
        advice: what to do about a result that waits to be awaited.

    Raises:
        FunctionRefused: it waits to be awaited or iterated; the caller rolls back.
    """
    if inspect.isawaitable(result):
        import asyncio  # noqa: PLC0415 -- blocking producers import this module too

        if inspect.iscoroutine(result):
            result.close()
        elif isinstance(result, asyncio.Future):
            result.cancel()
        raise FunctionRefused(f"the function returned what nothing here awaits; {advice}.")
    futures = sys.modules.get("concurrent.futures")
    if futures is not None and isinstance(result, futures.Future):
        raise FunctionRefused("the function returned a thread's Future; return its `result()`, which waits for it.")
    if inspect.isasyncgen(result) or (inspect.isgenerator(result) and result.gi_code.co_name != "<genexpr>"):
        raise FunctionRefused("the function returned a generator: calling it ran nothing of it.")
    return result


async def await_end(result: Awaitable[R], other: str) -> R:
    """Await an async function's result.

    Arguments:
        other: the call that takes a blocking function.

    Raises:
        FunctionRefused: the function is a blocking one, or returned what waits in turn; the caller rolls back.
    """
    if not inspect.isawaitable(result):
        raise FunctionRefused(f"the function is not async; use `{other}`, with a blocking engine.")
    return require_ended(await result, "write `await` in front of it")


def require_accepted(result: R) -> R:
    """Return a branch's result, unless it refuses without raising.

    An HTTP answer of a status from 400 on refuses. So do a returned exception and dtm's words.

    Raises:
        FunctionRefused: the refusal would not be sent, and the next call would find the branch done; or the result is
            a streamed HTTP answer, whose body would run never, or behind the commit.
    """
    _refuse_unraised(result)
    if _is_stream(result):
        raise FunctionRefused("the function returned a streamed answer, which is not sent: its body would not run.")
    # Starlette, Django, Flask and HTTP clients have `status_code`; aiohttp and Sanic have `status`.
    _refuse_status(
        getattr(result, "status_code", getattr(result, "status", None) if hasattr(result, "headers") else None)
    )
    return result


def _is_stream(result: object) -> bool:
    """Return True for an HTTP answer whose body is made while it is sent.

    It is one of Starlette, Django or Werkzeug.
    """
    if not hasattr(result, "status_code") or not hasattr(result, "headers"):
        return False
    streams = getattr(result, "streaming", getattr(result, "is_streamed", False))
    return streams is True or hasattr(getattr(result, "body_iterator", None), "__aiter__")


def _refuse_unraised(result: object) -> None:
    """Refuse an exception, its class, and dtm's words; raises FunctionRefused."""
    if isinstance(result, BaseException) or (isinstance(result, type) and issubclass(result, BaseException)):
        name = result.__name__ if isinstance(result, type) else type(result).__name__
        raise FunctionRefused(
            f"the function returned {name} instead of raising it: its branch would count as done.",
            remedy="Write `raise` instead of `return`; nothing was committed.",
        )
    if word := _dtm_word(result):
        raise FunctionRefused(f"the function returned {word}, {NOT_SENT}", remedy=RAISE)


def _dtm_word(result: object) -> str | None:
    """Return FAILURE or ONGOING, where the result says it as dtm's clients do.

    They return a dict, or its JSON.
    """
    if isinstance(result, str | bytes) and len(result) <= _DTM_BODY_MAX:
        text = result.decode(errors="replace") if isinstance(result, bytes) else result
        found = _DTM_RESULT.search(text)
        return found[1] if found else None
    word = result.get("dtm_result") if isinstance(result, dict) else None
    return word if word in _REFUSING_WORDS else None


def require_answered(result: object) -> object:
    """Return a view's result, unless it is an answer in short that refuses.

    Such an answer is `(body, status)` or `(body, status, headers)`.

    Raises:
        FunctionRefused: the answer would not be sent, and the next call would find the branch done.
    """
    if isinstance(result, tuple) and len(result) > 1:
        require_accepted(result[0])
        _refuse_status(result[1])
    return result


def _refuse_status(status: object) -> None:
    """Refuse a status from 400 on; raises FunctionRefused.

    It is a number or a text such as `409 CONFLICT`.
    """
    if isinstance(status, str):
        code = status.split(" ", 1)[0]
        status = int(code) if len(code) == _STATUS_DIGITS and code.isdecimal() else None
    if isinstance(status, int) and status >= REFUSAL:
        raise FunctionRefused(f"the function returned an answer of status {status:d}, {NOT_SENT}", remedy=RAISE)
