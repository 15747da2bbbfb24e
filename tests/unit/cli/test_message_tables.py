"""Tables of messages on a terminal of 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from twophase.cli.operating.message_tables import table_of
from twophase.core.operating import ShownBranch, ShownMessage

GID = "tp01m82xpchgn1jk473yegxgvkjg"


def test_a_gid_can_be_copied_from_a_narrow_terminal() -> None:
    branches = [ShownBranch("01", url="http://a-consumer.example.org:19622/reserve")]
    message = ShownMessage(GID, "submitted", 1, decided_by="submit", attempts=3, due_ms=9, branches=branches)
    console = Console(file=io.StringIO(), width=80)

    console.print(table_of([message], 5))

    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert (GID in shown, " submitted " in shown) == (True, True), shown
