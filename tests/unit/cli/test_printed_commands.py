"""Commands that are printed to be pasted quote what stands in them.

A new one fails until it is quoted, or is in the list with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from twophase.coordinator.queues.weighing import Hold, Weighed, why_held
from twophase.core.bearer import token_in
from twophase.core.errors import ConfigurationError
from twophase.server.identity.tokens import read_tokens

ROOT: Final = Path(__file__).parents[3]
SOURCES: Final = ("src/twophase", "packages/twophase-spark/src/twophase_spark")
_COMMAND: Final = re.compile(
    r"(?:\b(?:chmod|curl)\s|\btwophase (?:barrier|explain|groups|halves|letters|log|messages|queues|token|topic)\b)"
    r"[^.;,:)\n]*$"
)
QUOTED: Final = {
    ("cli/operating/explanation.py", "gid"): "argument(message.gid)",
    ("cli/operating/explanation.py", "elsewhere"): "quoted by _redirect",
    ("cli/operating/explanation.py", "override"): "our own option",
    ("cli/operating/queue_explanation.py", "gid"): "argument(message.gid)",
    ("cli/server.py", "name"): "argument(str(config))",
    ("twophase_spark/rules/repairs.py", "name"): "argument(gid)",
}


def _unquoted(tree: ast.Module) -> Iterator[str]:
    """Yield each expression in a command that no call quotes."""
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr):
            continue
        before = ""
        for part in text.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
                continue
            assert isinstance(part, ast.FormattedValue), "the only other part"
            if _COMMAND.search(before):
                shown = ast.unparse(part.value)
                if not shown.startswith(("argument(", "shlex.quote(")):
                    yield shown
            before += "X"


def test_what_stands_in_a_printed_command_is_quoted() -> None:
    found = {
        (str(file.relative_to(ROOT / source if source.startswith("src") else (ROOT / source).parent)), shown)
        for source in SOURCES
        for file in (ROOT / source).rglob("*.py")
        for shown in _unquoted(ast.parse(file.read_text()))
    }
    assert found == QUOTED.keys()


def test_a_name_that_a_client_has_chosen_is_no_command_in_the_remedy_of_a_topic() -> None:
    held = Weighed(9, 900, 500, 7, {Hold.GROUP: 10, Hold.HISTORY: 20}, "billing|reboot")
    _, remedy = why_held("-orders|halt", held)
    assert "twophase groups remove 'billing|reboot'" in remedy
    assert "twophase queues change --retention-bytes BYTES -- '-orders|halt'" in remedy


@pytest.mark.parametrize("read", [token_in, read_tokens])
def test_the_command_that_closes_a_file_is_safe_whatever_its_name(read: object, tmp_path: Path) -> None:
    file = tmp_path / "a b;reboot"
    file.touch(0o644)
    file.chmod(0o644)
    assert callable(read)
    with pytest.raises(ConfigurationError) as refused:
        read(file)
    assert refused.value.remedy == f"chmod 600 '{file}'"
