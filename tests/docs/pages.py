"""The documentation as the tests read it: pages, links, code blocks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_EXAMPLE = re.compile(r"<!-- example: ([\w-]+) -->\n```python\n(.*?)```", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([\w.-]+)"></a>')


def tracked_files() -> list[Path]:
    """Return every file of the repository as it would be committed.

    The result is empty outside a git checkout.
    """
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def pages() -> list[Path]:
    """Return every page written for people."""
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("packages/*/*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[str]:
    """Return the targets of a page's links, code blocks aside."""
    return _LINK.findall(_FENCE.sub("", page.read_text()))


def fences(text: str) -> list[str]:
    """Return the code blocks of a page."""
    return _FENCE.findall(text)


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings make, and those that it names."""
    text = page.read_text()
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in plain} | set(_ANCHOR.findall(text))


def examples(page: Path) -> dict[str, str]:
    """Return named examples of a page, exactly as a reader copies them."""
    return dict(_EXAMPLE.findall(page.read_text()))
