"""The explanation in docs/how-to/unblock-a-message.md.

The command prints the same for such a message.
"""

from __future__ import annotations

from tests.docs.pages import ROOT
from twophase.cli.operating.explain import text_of
from twophase.cli.operating.explanation import explain
from twophase.core.operating import ShownAttempt, ShownBranch, ShownMessage

_PAGE = (ROOT / "docs" / "how-to" / "unblock-a-message.md").read_text()
_NOW_MS = 1_700_000_100_000


def test_the_sample_is_what_is_printed() -> None:
    message = ShownMessage(
        gid="order-17",
        state="submitted",
        check_url="http://bank-a/check",
        created_ms=_NOW_MS - 60_000,
        decided_ms=_NOW_MS - 50_000,
        decided_by="submit",
        due_ms=_NOW_MS + 30_000,
        branches=[ShownBranch("01", "http://bank-b/in", done=True), ShownBranch("02", "http://mail/send")],
        log=[ShownAttempt(_NOW_MS - 5_000, "branch", "02", "http://mail/send", 500, 3, "error", "no such box")],
    )

    assert f"```text\n{text_of(explain(message, _NOW_MS))}\n```" in _PAGE
