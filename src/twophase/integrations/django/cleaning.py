"""Django: old barrier rows are removed beside the project's work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.signals import request_finished
from django.db import connections

from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.client.cleaner import BarrierCleaner


def clean_barrier(alias: str, coordinators: Sequence[str], **options: Any) -> BarrierCleaner:
    """Let old barrier rows be removed beside the project's work.

    They are removed at most once a minute; see `BarrierCleaner`. Call it once for each table, in `AppConfig.ready`. The
    project's requests are its hints; no request waits.

    Arguments:
        alias: the database.
        coordinators, options: as `BarrierCleaner`.

    Raises:
        ConfigurationError: no coordinator is named, or an option cannot work.
    """
    # Django gives the thread its own connections, and only the thread can close them.
    cleaner = BarrierCleaner(alias, coordinators, ended=connections.close_all, **options)
    table = options.get("table", DEFAULT_TABLE)
    request_finished.connect(lambda **_: cleaner.hint(), weak=False, dispatch_uid=f"twophase cleaning {alias} {table}")
    return cleaner
