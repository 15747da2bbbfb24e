"""The store's statements, each in its own file.

`sql/` is for the running store, `catalog/` for its schema.
"""

from __future__ import annotations

import importlib.resources
import re
from typing import Final

_FOLDER = importlib.resources.files("twophase.stores.postgres")
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def read(name: str, folder: str = "sql") -> str:
    """Return the statement in `<folder>/<name>.sql`, without its comment."""
    return _COMMENT.sub("", (_FOLDER / folder / f"{name}.sql").read_text())


FLUSH: Final = read("flush")
FLUSH_BORN: Final = read("flush_born")
FLUSH_AUDITED: Final = read("flush_audited")
FLUSH_BORN_AUDITED: Final = read("flush_born_audited")
FLUSH_QUEUES: Final = read("flush_queues")
FLUSH_APART: Final = read("flush_apart")
SETTLE: Final = read("settle")

TAKE_SLOT: Final = read("take_slot")
ADD_SLOT: Final = read("add_slot")
FREE_TOPICS: Final = read("free_topics")
OTHER_LEASE: Final = read("other_lease")
LEAVE_SLOT: Final = read("leave_slot")
HEARTBEAT: Final = read("heartbeat")
ADOPT: Final = read("adopt")

GET: Final = read("get")
DUE: Final = read("due")
ATTEMPTS: Final = read("attempts")
OVERVIEW: Final = read("overview")
NODES_SEEN: Final = read("nodes_seen")
WAITING_BY_OWNER: Final = read("waiting_by_owner")
SIZE: Final = read("size")
NOW: Final = read("now")
MOVED: Final = read("moved")
OLDEST_UNDECIDED: Final = read("oldest_undecided")
LATER: Final = read("later")
SEARCH_LIVE: Final = read("search_live")
SEARCH_LIVE_FLOOR: Final = read("search_live_floor")
SEARCH_HISTORY: Final = read("search_history")
SEARCH_HISTORY_FLOOR: Final = read("search_history_floor")

BOUNDS: Final = read("bounds")
NODES: Final = read("nodes")
OLDEST_HISTORY: Final = read("oldest_history")
OLDEST_ATTEMPTS: Final = read("oldest_attempts")
FORGET: Final = read("forget")

AUDIT_APPEND: Final = read("audit_append")
AUDIT_OLDEST: Final = read("audit_oldest")
AUDIT_FORGET: Final = read("audit_forget")
AUDIT_HEAD: Final = read("audit_head")
AUDIT_CHAIN: Final = read("audit_chain")
AUDIT_SEARCH: Final = read("audit_search")

TOKENS: Final = read("tokens")
NOTE_TOKENS: Final = read("note_tokens")

QUEUE_PAGE: Final = read("queue_page")
QUEUE_ENTRIES: Final = read("queue_entries")
QUEUE_ENDS: Final = read("queue_ends")
QUEUE_PLACE: Final = read("queue_place")
QUEUE_PROGRESS: Final = read("queue_progress")
QUEUE_DEFINITIONS: Final = read("queue_definitions")
QUEUE_DEFINE: Final = read("queue_define")
QUEUE_FORGET: Final = read("queue_forget")
QUEUE_SPANS: Final = read("queue_spans")
QUEUE_FIRST: Final = read("queue_first")
QUEUE_WEIGHTS: Final = read("queue_weights")
QUEUE_READERS: Final = read("queue_readers")
QUEUE_EMPTY: Final = read("queue_empty")
QUEUE_CHANGE: Final = read("queue_change")
QUEUE_RESET: Final = read("queue_reset")
QUEUE_ENDS_OF: Final = read("queue_ends_of")

OWN_TOPIC: Final = read("own_topic")
GIVE_UP_TOPIC: Final = read("give_up_topic")
ANNOUNCE: Final = read("announce")
WAKE: Final = read("wake")
PASS_ON: Final = read("pass_on")

TOPICS: Final = read("topics")
CHANGE_TOPIC: Final = read("change_topic")
NOTE_TAKEOVER: Final = read("note_takeover")

WHAT_IS_THERE: Final = read("what_is_there", "catalog")
LOCK_SCHEMA: Final = read("lock_schema", "catalog")
SET_VERSION: Final = read("set_version", "catalog")
