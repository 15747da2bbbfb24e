"""Topics on the HTTP port: dtm's requests and answers, and twophase's own.

twophase's own change nothing by a GET. Bodies and texts of dtm's are those of its transcripts (dtm-wire §1.1). Answers
show the store's topics, not those in memory: a client that has changed a topic, at whichever node, sees its change.
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request

from twophase.coordinator.topic_changes import ChangeableTopics
from twophase.core.errors import InvalidRequest, TopicNotFound, TopicRefused, TwophaseError
from twophase.server.api.operation import (
    DTM_PREFIX,
    Done,
    Operation,
    Parameter,
    Served,
    actor_of,
    caller_of,
    refusal_answer,
)
from twophase.server.codecs.encode import Answer, harmless
from twophase.server.codecs.query import timestamp
from twophase.stores.rows import Topic
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
    """A topic as twophase shows it; times are RFC 3339."""

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
    """The body of a POST."""

    topic: str = ""
    url: str = ""
    remark: str = ""


_TOPIC: Final = Parameter("topic", "the topic's name", required=True)
_URL: Final = Parameter("url", "the address of a subscriber", required=True)
_NAME: Final = Parameter("name", "the topic's name", where="path")
_DTM_REFUSALS: Final = {500: "TP-1000, TP-1003 or TP-1004: dtm's texts, such as `empty topic` and `this url exists`"}
_NO_TOPIC: Final = "TP-1003: there is no such topic"
_REFUSALS: Final = {404: _NO_TOPIC, 409: "TP-1004: the topic's subscribers forbid it, such as an address twice"}

DTM_SUBSCRIBE: Final = Operation(
    path=f"{DTM_PREFIX}/subscribe",
    tag="topics",
    summary="Add an address to a topic",
    parameters=(_TOPIC, _URL, Parameter("remark", "for people")),
    answer=Done,
    refusals=_DTM_REFUSALS,
)
DTM_UNSUBSCRIBE: Final = Operation(
    path=f"{DTM_PREFIX}/unsubscribe",
    tag="topics",
    summary="Remove an address from a topic",
    parameters=(_TOPIC, _URL),
    answer=Done,
    refusals=_DTM_REFUSALS,
)
DTM_DELETE: Final = Operation(
    path=f"{DTM_PREFIX}/topic/{{name}}",
    methods=("DELETE",),
    tag="topics",
    summary="Delete a topic",
    parameters=(_NAME,),
    answer=Done,
    refusals=_DTM_REFUSALS,
)
DTM_SCAN: Final = Operation(
    path=f"{DTM_PREFIX}/scanKV",
    tag="topics",
    summary="Topics as dtm keeps them, a page at a time",
    parameters=(
        Parameter("cat", "`topics`; of another category there is nothing"),
        Parameter("position", "`next_position` of the page before", int),
        Parameter("limit", "rows of a page", int),
    ),
    answer=KeyValuePage,
)
DTM_QUERY: Final = Operation(
    path=f"{DTM_PREFIX}/queryKV",
    tag="topics",
    summary="One topic as dtm keeps it, or all",
    parameters=(Parameter("cat", "`topics`"), Parameter("key", "the topic's name")),
    answer=KeyValues,
)
LIST: Final = Operation(path=OWN_PREFIX, tag="topics", summary="All topics", answer=ShownTopics)
SUBSCRIBE: Final = Operation(
    path=f"{OWN_PREFIX}/subscribe",
    methods=("POST",),
    tag="topics",
    summary="Add an address to a topic",
    request=Subscription,
    answer=Done,
    refusals=_REFUSALS,
)
UNSUBSCRIBE: Final = Operation(
    path=f"{OWN_PREFIX}/unsubscribe",
    methods=("POST",),
    tag="topics",
    summary="Remove an address from a topic",
    request=Subscription,
    answer=Done,
    refusals=_REFUSALS,
)
SHOW: Final = Operation(
    path=f"{OWN_PREFIX}/{{name:path}}",
    tag="topics",
    summary="One topic",
    parameters=(_NAME,),
    answer=ShownTopic,
    refusals={404: _NO_TOPIC},
)
DELETE: Final = Operation(
    path=f"{OWN_PREFIX}/{{name:path}}",
    methods=("DELETE",),
    tag="topics",
    summary="Delete a topic",
    parameters=(_NAME,),
    answer=Done,
    refusals={404: _NO_TOPIC},
)


class TopicRoutes:
    """Handlers of the operations on topics, dtm's and twophase's own.

    Arguments:
        topics: the coordinator's.
    """

    def __init__(self, topics: ChangeableTopics) -> None:
        self._topics = topics

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [
            Served(DTM_SUBSCRIBE, self._subscribe_by_get),
            Served(DTM_UNSUBSCRIBE, self._unsubscribe_by_get),
            Served(DTM_DELETE, self._delete),
            Served(DTM_SCAN, self._scan),
            Served(DTM_QUERY, self._query),
            Served(LIST, self._list, _refusal_answer),
            Served(SUBSCRIBE, self._subscribe, _refusal_answer),
            Served(UNSUBSCRIBE, self._unsubscribe, _refusal_answer),
            Served(SHOW, self._show, _refusal_answer),
            Served(DELETE, self._delete_ours, _refusal_answer),
        ]

    async def _subscribe_by_get(self, request: Request) -> Answer:
        query = request.query_params
        caller_of(request).require_address(query.get("url", ""))
        await self._topics.subscribe(
            query.get("topic", ""), query.get("url", ""), query.get("remark", ""), actor_of(request)
        )
        return _SUCCESS

    async def _unsubscribe_by_get(self, request: Request) -> Answer:
        query = request.query_params
        await self._topics.unsubscribe(query.get("topic", ""), query.get("url", ""), actor_of(request))
        return _SUCCESS

    async def _query(self, request: Request) -> Answer:
        query = request.query_params
        if query.get("cat", "") != _CATEGORY:
            return _json(KeyValues([]))
        topics, name = (await self._topics.refresh()).by_name, query.get("key", "")
        if not name:  # as dtm: all of the category
            return _json(KeyValues([_as_dtm(topic) for topic in topics.values()]))
        return _json(KeyValues([_as_dtm(topics[name])] if name in topics else []))

    async def _scan(self, request: Request) -> Answer:
        query = request.query_params
        limit = min(max(1, _number("limit", query.get("limit", "") or str(_LIMIT))), _LIMIT_MAX)
        before = _number("position", query.get("position", "") or str(2**63))
        if query.get("cat", "") != _CATEGORY:
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
            raise _no_topic(name)
        return _json(_shown(topic))

    async def _subscribe(self, request: Request) -> Answer:
        subscription = await _subscription(request)
        caller_of(request).require_address(subscription.url)
        await self._topics.subscribe(subscription.topic, subscription.url, subscription.remark, actor_of(request))
        return _SUCCESS

    async def _unsubscribe(self, request: Request) -> Answer:
        subscription = await _subscription(request)
        await self._topics.unsubscribe(subscription.topic, subscription.url, actor_of(request))
        return _SUCCESS

    async def _delete(self, request: Request) -> Answer:
        await self._topics.delete(request.path_params["name"], actor_of(request))
        return _SUCCESS

    async def _delete_ours(self, request: Request) -> Answer:
        try:
            return await self._delete(request)
        except TopicRefused:  # in dtm's words; there is one reason
            raise _no_topic(request.path_params["name"]) from None


def _no_topic(name: str) -> TopicNotFound:
    return TopicNotFound(f"there is no topic {name[:200]!r}.", remedy="See `twophase topic list`.")


def _refusal_answer(error: TwophaseError) -> Answer:
    """Refine dtm's 500 where HTTP has a better status."""
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
        [ShownSubscriber(subscriber.url, subscriber.remark) for subscriber in topic.subscribers],
    )
