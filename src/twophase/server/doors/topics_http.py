"""Topics on the HTTP port: dtm's requests with dtm's answers, and ours, which change nothing by a GET.

Bodies and texts of dtm's are those of its transcripts (dtm-wire §1.1). What is shown is what the store says now, not
what memory holds: whoever has changed a topic, at whichever node, sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from twophase.coordinator.deciding.topic_changes import ChangeableTopics
from twophase.core.errors import InvalidRequest, TopicNotFound, TopicRefused, TwophaseError
from twophase.server.doors.cold import DTM_PREFIX, guarded, refusal_answer
from twophase.server.formats.encode import Answer, harmless
from twophase.server.formats.query import timestamp
from twophase.stores.base import Topic
from twophase.stores.topic_rows import subscribers_text

OWN_PREFIX: Final = "/api/twophase/topics"
_CATEGORY: Final = "topics"
_LIMIT: Final = 100
_LIMIT_MAX: Final = 1_000
_SUCCESS: Final = Answer(200, b'{"dtm_result":"SUCCESS"}')
_encode: Final = msgspec.json.Encoder().encode


class KeyValue(msgspec.Struct):
    """A topic as dtm shows it; `v` is JSON text."""

    id: int
    create_time: str
    update_time: str
    cat: str
    k: str
    v: str
    version: int


class KeyValues(msgspec.Struct):
    """The answer to queryKV."""

    kv: list[KeyValue]


class KeyValuePage(msgspec.Struct):
    """The answer to scanKV; `next_position` is empty at the end."""

    kv: list[KeyValue]
    next_position: str


class ShownSubscriber(msgspec.Struct):
    """One address of a topic."""

    url: str
    remark: str


class ShownTopic(msgspec.Struct):
    """A topic as we show it; times are RFC 3339."""

    name: str
    version: int
    created: str
    changed: str
    subscribers: list[ShownSubscriber]


class ShownTopics(msgspec.Struct):
    """All topics; `revision` grows by one with every change of any."""

    revision: int
    topics: list[ShownTopic]


class Subscription(msgspec.Struct):
    """What a POST says."""

    topic: str = ""
    url: str = ""
    remark: str = ""


class TopicRoutes:
    """The handlers.

    Arguments:
        topics: the coordinator's.
        on_refused: hears the error code of each request refused here.
    """

    def __init__(self, topics: ChangeableTopics, on_refused: Callable[[str], None]) -> None:
        self._topics = topics
        self._on_refused = on_refused

    def routes(self) -> list[Route]:
        """Dtm's paths, and ours."""
        dtms = [
            ("subscribe", self._subscribe_by_get, "GET"),
            ("unsubscribe", self._unsubscribe_by_get, "GET"),
            ("topic/{name}", self._delete, "DELETE"),
            ("scanKV", self._scan, "GET"),
            ("queryKV", self._query, "GET"),
        ]
        ours = [
            ("", self._list, "GET"),
            ("/subscribe", self._subscribe, "POST"),
            ("/unsubscribe", self._unsubscribe, "POST"),
            ("/{name:path}", self._show, "GET"),
            ("/{name:path}", self._delete, "DELETE"),
        ]
        by_dtm = partial(guarded, on_refused=self._on_refused)
        by_us = partial(guarded, on_refused=self._on_refused, refuse=_refusal_answer)
        return [
            *(Route(f"{DTM_PREFIX}/{path}", by_dtm(one), methods=[method]) for path, one, method in dtms),
            *(Route(f"{OWN_PREFIX}{path}", by_us(one), methods=[method]) for path, one, method in ours),
        ]

    async def _subscribe_by_get(self, request: Request) -> Answer:
        said = request.query_params
        await self._topics.subscribe(said.get("topic", ""), said.get("url", ""), said.get("remark", ""))
        return _SUCCESS

    async def _unsubscribe_by_get(self, request: Request) -> Answer:
        said = request.query_params
        await self._topics.unsubscribe(said.get("topic", ""), said.get("url", ""))
        return _SUCCESS

    async def _query(self, request: Request) -> Answer:
        said = request.query_params
        if said.get("cat", "") != _CATEGORY:
            return _json(KeyValues([]))
        topics, name = (await self._topics.refresh()).by_name, said.get("key", "")
        if not name:  # dtm: all of the category
            return _json(KeyValues([_as_dtm(topic) for topic in topics.values()]))
        return _json(KeyValues([_as_dtm(topics[name])] if name in topics else []))

    async def _scan(self, request: Request) -> Answer:
        said = request.query_params
        limit = min(max(1, _number("limit", said.get("limit", "") or str(_LIMIT))), _LIMIT_MAX)
        before = _number("position", said.get("position", "") or str(2**63))
        if said.get("cat", "") != _CATEGORY:
            return _json(KeyValuePage([], ""))
        topics = (await self._topics.refresh()).by_name.values()
        page = sorted([topic for topic in topics if topic.id < before], key=lambda topic: -topic.id)[:limit]
        return _json(KeyValuePage([_as_dtm(topic) for topic in page], "" if len(page) < limit else str(page[-1].id)))

    async def _list(self, _request: Request) -> Answer:
        found = await self._topics.refresh()
        return _json(ShownTopics(found.revision, [_shown(topic) for topic in found.by_name.values()]))

    async def _show(self, request: Request) -> Answer:
        name = request.path_params["name"]
        topic = (await self._topics.refresh()).by_name.get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name[:200]!r}.", remedy="See `twophase topic list`.")
        return _json(_shown(topic))

    async def _subscribe(self, request: Request) -> Answer:
        said = await _subscription(request)
        await self._topics.subscribe(said.topic, said.url, said.remark)
        return _SUCCESS

    async def _unsubscribe(self, request: Request) -> Answer:
        said = await _subscription(request)
        await self._topics.unsubscribe(said.topic, said.url)
        return _SUCCESS

    async def _delete(self, request: Request) -> Answer:
        await self._topics.delete(request.path_params["name"])
        return _SUCCESS


def _refusal_answer(error: TwophaseError) -> Answer:
    """What dtm answers by 500, and HTTP has better words for."""
    answer = refusal_answer(error)
    match error:
        case TopicNotFound():
            return Answer(404, answer.body)
        case TopicRefused():
            return Answer(409, answer.body)
        case _:
            return answer


async def _subscription(request: Request) -> Subscription:
    try:
        return msgspec.json.decode(await request.body(), type=Subscription)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f'a JSON object {{"topic", "url", "remark"}} is needed: {error}.') from error


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(f"{name} is {text[:45]!r}, a number is needed.") from None


def _json(value: msgspec.Struct) -> Answer:
    return Answer(200, harmless(_encode(value)))


def _as_dtm(topic: Topic) -> KeyValue:
    return KeyValue(
        topic.id,
        timestamp(topic.created_ms),
        timestamp(topic.changed_ms),
        _CATEGORY,
        topic.name,
        subscribers_text(topic.subscribers),
        topic.version,
    )


def _shown(topic: Topic) -> ShownTopic:
    return ShownTopic(
        topic.name,
        topic.version,
        timestamp(topic.created_ms),
        timestamp(topic.changed_ms),
        [ShownSubscriber(one.url, one.remark) for one in topic.subscribers],
    )
