"""Parts of the integration of ASGI's frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twophase.core.errors import ConfigurationError

if TYPE_CHECKING:
    from twophase.client.cleaner import BarrierCleaner


class Hinting:
    """Gives a cleaner a hint after each answer."""

    def __init__(self, app: Any, cleaner: BarrierCleaner) -> None:
        self._app = app
        self._cleaner = cleaner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, then give the hint."""
        await self._app(scope, receive, send)
        if scope["type"] == "http":
            self._cleaner.hint()


def require_not_started(app: Any, name: str) -> None:
    """Refuse to change an application of Starlette that has started.

    Its handlers of exceptions are read once, at its first request or in its lifespan. One that is added later would
    never be called.

    Arguments:
        name: what is called too late.

    Raises:
        ConfigurationError: the application has started.
    """
    if getattr(app, "middleware_stack", None) is not None:
        raise ConfigurationError(
            f"{name}: the application has started, and would ignore it.",
            remedy="Call it beside `app = FastAPI(…)`, and not in the lifespan.",
        )
