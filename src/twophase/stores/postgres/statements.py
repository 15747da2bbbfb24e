"""The store's statements, each in its own file under `sql/`."""

from __future__ import annotations

import importlib.resources
import re
from typing import Final

_FOLDER = importlib.resources.files("twophase.stores.postgres") / "sql"
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def read(name: str) -> str:
    """The statement in `sql/<name>.sql`, without its comment."""
    return _COMMENT.sub("", (_FOLDER / f"{name}.sql").read_text())


FLUSH: Final = read("flush")
SETTLE: Final = read("settle")
TAKE_PLACE: Final = read("take_place")
ADD_PLACE: Final = read("add_place")
LEAVE_PLACE: Final = read("leave_place")

GET: Final = read("get")
DUE: Final = read("due")
ATTEMPTS: Final = read("attempts")
OVERVIEW: Final = read("overview")
HORIZON: Final = read("horizon")
NOW: Final = read("now")

WHAT_IS_THERE: Final = read("what_is_there")
LOCK_SCHEMA: Final = read("lock_schema")
SET_VERSION: Final = read("set_version")
