"""Topics in a database: rows of `topics.sql`, and subscribers as JSON text.

They are the same in every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from twophase.stores.rows import Subscriber, Topic, Topics

_decode: Final = msgspec.json.Decoder(tuple[Subscriber, ...]).decode
_encode: Final = msgspec.json.Encoder().encode


def subscribers_text(subscribers: Sequence[Subscriber]) -> str:
    """Return subscribers as text, as dtm writes them.

    >>> subscribers_text([Subscriber("http://b/in", "the bank")])
    '[{"url":"http://b/in","remark":"the bank"}]'
    """
    return _encode(subscribers).decode()


def topics_of(rows: Sequence[Sequence[Any]]) -> Topics | None:
    """Return the topics in the rows of `topics.sql`; None without rows.

    >>> topics_of([(7, None, None, None, None, None, None)])
    Topics(revision=7, by_name={})
    """
    if not rows:
        return None
    topics = [
        Topic(name, id_, version, created_ms, changed_ms, _decode(text))
        for _, name, id_, version, created_ms, changed_ms, text in rows
        if name is not None
    ]
    return Topics(rows[0][0], {topic.name: topic for topic in topics})
