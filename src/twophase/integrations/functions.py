"""Checks that every framework shares, and the type of a `@branch`.

A branch's function fits its engine, and a missing extra is named.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, get_origin, overload

from twophase.barrier.dialect import validate_table
from twophase.barrier.effect import NOT_SENT, RAISE, REFUSAL
from twophase.barrier.open import is_async, is_outside, refuse_no_engine
from twophase.barrier.signing import Keys
from twophase.core.errors import FunctionRefused, OutsideTransaction
from twophase.core.signature import known_keys

P = ParamSpec("P")
H_co = TypeVar("H_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)

_CONNECTION_FIRST: Final = "Write the connection as its first argument, and what the framework gives behind it."
_PLAIN: Final = {one.__name__: one for one in (bool, bytes, dict, float, int, list, set, str, tuple)}
"""Types of which no connection is."""
_BARE: Final = "branch takes an engine: write `@branch(engine)`, and put it below the route."


class BranchDecorator(Protocol[H_co, R_co]):
    """A decorator that makes a framework's view of a function.

    The function's first argument is the transaction's connection; what the framework injects comes behind it.
    """

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] -- the first one counts
        self, function: Callable[Concatenate[H_co, P], Awaitable[object]], /
    ) -> Callable[P, Coroutine[Any, Any, R_co]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[H_co, P], object], /) -> Callable[P, R_co]: ...


def is_coroutine_branch(engine: Any, function: Callable[..., object], *, follow_wrapped: bool = False) -> bool:
    """Return True for an `async def`, whose engine must be async, too.

    Arguments:
        follow_wrapped: the framework injects what a wrapped function takes, whatever its wrapper takes.

    Raises:
        FunctionRefused: one is async and the other is not, the function yields, or its first argument is plainly not
            for a connection.
        UnsupportedEngine: the engine is a URL, or plainly none, such as a maker of sessions.
    """
    refuse_no_engine(engine)
    if not callable(function):
        raise FunctionRefused(_BARE)
    if _yields(function):
        raise FunctionRefused(f"{_named(function)} is a generator function: calling it does not run it.")
    _require_connection_first(function, follow_wrapped=follow_wrapped)
    asynchronous = inspect.iscoroutinefunction(function)
    if asynchronous is not is_async(engine):
        kinds = ("a plain function", "a blocking one") if is_async(engine) else ("an `async def`", "an async one")
        raise FunctionRefused(f"{_named(function)} is {kinds[0]}; its engine must be {kinds[1]}.")
    return asynchronous


def validate_branch(engine: Any, table: str, keys: Keys | None) -> None:
    """Refuse what a `@branch` cannot work with, before it is given its function.

    Raises:
        FunctionRefused: a function in place of the engine, as a bare `@branch` gives it.
        ConfigurationError: the table's name cannot be one, or a key cannot be one.
    """
    if inspect.isfunction(engine):
        raise FunctionRefused(_BARE)
    validate_table(table)
    known_keys(keys)


def _yields(function: Callable[..., object]) -> bool:
    """True for a generator function, also one that is wrapped.

    FastAPI looks behind wrappers, too, and answers 200 before the first step of what it takes for a stream.
    """
    while isinstance(function, functools.partial):
        function = function.func
    wrapped = inspect.unwrap(function)
    called = wrapped if inspect.isroutine(wrapped) else getattr(wrapped, "__call__", wrapped)  # noqa: B004 -- its code
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def _require_connection_first(function: Callable[..., object], *, follow_wrapped: bool) -> None:
    """Refuse a function whose first argument is not for the connection."""
    try:
        parameters = list(inspect.signature(function, follow_wrapped=follow_wrapped).parameters.values())
    except (NameError, TypeError, ValueError):
        return  # Python does not know what it takes
    first = parameters[0] if parameters else None
    if first is None or first.kind in {first.KEYWORD_ONLY, first.VAR_KEYWORD}:
        raise FunctionRefused(
            f"{_named(function)} takes no argument for the transaction's connection.", remedy=_CONNECTION_FIRST
        )
    annotation = first.annotation
    if isinstance(annotation, str):  # `from __future__ import annotations` left it as text
        names = getattr(inspect.unwrap(function) if follow_wrapped else function, "__globals__", {})
        annotation = names.get(annotation, _PLAIN.get(annotation.partition("[")[0]))
    type_: Any = get_origin(annotation) or annotation
    if type_ in _PLAIN.values() or hasattr(type_, "__dataclass_fields__") or hasattr(type_, "model_fields"):
        raise FunctionRefused(
            f"{_named(function)} takes {first.name!r}, of {_named(type_)}, in the place of the connection.",
            remedy=_CONNECTION_FIRST,
        )


def call_inside(function: Callable[..., Any], values: Sequence[Any], named: Mapping[str, Any], connection: Any) -> Any:
    """Call a branch's function with what its framework injects.

    An injected session has a transaction of its own: what it writes would be lost, or stay without the barrier row.

    Arguments:
        values, named: what the framework injects.
        connection: the transaction's, or its session: the function's first argument.

    Raises:
        OutsideTransaction: one of them is a connection or session that does not work in the transaction.
    """
    for name, value in (*enumerate(values, start=2), *named.items()):
        if is_outside(value, connection):
            raise OutsideTransaction(
                f"the argument {name} of {_named(function)} is a {type(value).__name__} beside the transaction. The "
                "function was not called.",
                remedy="Work on the first argument instead: `Session(connection)` is an ORM session in the "
                "transaction, and `AsyncSession(connection)` with an async engine. To read elsewhere, read in a "
                "dependency and pass the result.",
            )
    return function(connection, *values, **named)


def require_no_status(injected: Mapping[str, Any], answer: type[Any]) -> None:
    """Refuse a status that a branch's function has set on an injected answer.

    Arguments:
        injected: what the framework injects, by name.
        answer: the framework's class of answers.

    Raises:
        FunctionRefused: the status is 400 or more; it is not sent, and the next call would find the branch done.
    """
    for given in injected.values():
        status = given.status_code if isinstance(given, answer) else None
        if status is not None and status >= REFUSAL:
            raise FunctionRefused(f"the function has set the status {status}, {NOT_SENT}", remedy=RAISE)


def _named(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", "the function")


def missing_extra(extra: str, error: ImportError) -> ImportError:
    """Return the error of an integration whose framework is not installed.

    It is `error` itself where another import failed. FastAPI brings anyio.
    """
    if (error.name or "").partition(".")[0] not in {extra, "anyio"}:
        return error
    return ImportError(
        f"twophase.integrations.{extra} needs the package {extra!r}. Run `pip install 'twophase[{extra}]'`.",
        name=error.name,
    )
