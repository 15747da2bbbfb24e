"""What the doors behind ASGI share: dtm's path, an answer as starlette sends it, and refusals that are counted.

A handler returns its answer, or raises the error that it refuses a request with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from twophase.core.errors import InvalidRequest, TwophaseError
from twophase.server.formats.encode import JSON_TYPE, Answer, failure

DTM_PREFIX: Final = "/api/dtmsvr"
_TYPE: Final = JSON_TYPE.decode()

Handler = Callable[[Request], Awaitable[Answer]]
Endpoint = Callable[[Request], Awaitable[Response]]


class WrongByDtm(InvalidRequest):
    """A request that dtm answers by 500, in words that its clients' tests look for."""


def refusal_answer(error: TwophaseError) -> Answer:
    """A refusal as dtm's clients read it.

    >>> refusal_answer(WrongByDtm("no gid specified")).status, refusal_answer(InvalidRequest()).status
    (500, 400)
    """
    answer = failure(error)
    return Answer(500, answer.body) if isinstance(error, WrongByDtm) else answer


def guarded(
    handler: Handler, on_refused: Callable[[str], None], refuse: Callable[[TwophaseError], Answer] = refusal_answer
) -> Endpoint:
    """A handler as starlette calls it.

    Arguments:
        on_refused: hears the error code of each request that the handler refuses.
        refuse: the answer to an error.
    """

    async def endpoint(request: Request) -> Response:
        try:
            answer = await handler(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except TwophaseError as error:
            on_refused(error.code)
            answer = refuse(error)
        return respond(answer)

    return endpoint


def respond(answer: Answer) -> Response:
    """An answer as starlette sends it."""
    headers = {"retry-after": str(answer.retry_after_s)} if answer.retry_after_s else None
    return Response(answer.body, answer.status, headers, media_type=_TYPE)
