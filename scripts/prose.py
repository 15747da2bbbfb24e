"""Count unclear English in docstrings and pages; the counts may only fall.

`scripts/prose` prints the counts of each package, and 1 is its exit code when one is larger than `scripts/prose.toml`
allows. `scripts/prose PATH …` lists each finding of files or folders with file and line.

`scripts/prose --update` lowers the counts in the file. Where files moved between packages, `--update --moved` lets a
package grow, as long as no sum over all packages does.

What is counted, in texts without code (`…`, fenced blocks, doctest lines):

* marked: docstrings that contain a marker, whichever it is; headless: those that begin with a headless clause. A text
  under an attribute is a docstring, too.
* long: docstrings whose first line has more than 80 characters.
* lines: lines of a Markdown page that contain a marker other than a headless beginning.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
RATCHET: Final = Path(__file__).with_name("prose.toml")
FOLDERS: Final = ("src", "packages", "tests", "benchmarks", "demo", "examples", "scripts", "docs")
KINDS: Final = ("marked", "headless", "long", "lines")
FIRST_LINE_MAX: Final = 80
_SKIPPED: Final = frozenset({".venv", "build", "dist", "node_modules", "__pycache__"})


class Marker(NamedTuple):
    """A turn of phrase that a reader must parse twice, and what to write instead."""

    name: str
    pattern: str
    instead: str


HEADLESS: Final = Marker(
    "headless clause",
    r"\A\W*(What|Whether|How|Who|Of|As)\b",
    "begin with an imperative verb, or with the noun that the clause describes",
)
MARKERS: Final = (
    Marker("said", r"\bsaid\b", "name the thing: the request, the text, the value"),
    Marker("told", r"\btold\b", "name the call: is notified, returns, reports"),
    Marker(
        "nobody", r"\b(nobody|somebody|anybody|everybody|whoever)\b", "name the actor: a client, an operator, a node"
    ),
    Marker("he", r"\b(he|his|him)\b", "name the actor again, or use the plural"),
    Marker("of ours", r"\bof ours\b", "name the owner: this node's, twophase's"),
    Marker("is none", r"\b(is|are) none\b", "negate the verb: there is no, is not"),
    Marker("so many", r"\bso many\b", "give the number, the unit or the limit's name"),
    Marker("comes to", r"\b(comes?|came) to\b", "say what happens: results in, reaches, arrives at"),
    Marker("sees to", r"\b(sees?|saw|seen) to\b", "name the action: drives, dispatches, ensures"),
    Marker("at hand", r"\bat hand\b", "in memory, available, current"),
    Marker("lest", r"\blest\b", "so that … does not"),
    Marker("oneself", r"\b(by )?oneself\b", "drop it, or name the actor"),
    Marker("mine", r"\bmine\b", "owned"),
    Marker("gone on with", r"\b(goes|go|gone|went) on with\b", "resumes, continues"),
)
_CODE: Final = re.compile(r"``.*?``|`[^`\n]*`|^\s*(>>>|\.\.\.).*$", re.MULTILINE)
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1|<!--.*?-->", re.DOTALL | re.MULTILINE)
_COMPILED: Final = tuple((marker, re.compile(marker.pattern, re.IGNORECASE)) for marker in MARKERS)
_HEADLESS: Final = re.compile(HEADLESS.pattern)


class Finding(NamedTuple):
    """One passage in a file that counts, and why."""

    file: Path
    line: int
    kind: str
    name: str
    text: str

    def __str__(self) -> str:
        file = self.file.relative_to(ROOT) if self.file.is_relative_to(ROOT) else self.file
        return f"{file}:{self.line}: {self.name}: {self.text}"


class Report(NamedTuple):
    """The findings of some files, and how many docstrings each package has."""

    findings: list[tuple[str, Finding]]
    docstrings: Counter[str]

    def counts(self) -> dict[str, dict[str, int]]:
        """Count by package and kind; a docstring counts once for a kind."""
        passages = {(package, found.kind, found.file, found.line) for package, found in self.findings}
        result: dict[str, dict[str, int]] = defaultdict(dict)
        for (package, kind), count in Counter(passage[:2] for passage in passages).items():
            result[package][kind] = count
        return dict(result)


def findings_in_python(file: Path, source: str) -> tuple[int, list[Finding]]:
    """Return the number of a module's docstrings, and what counts in them."""
    found: list[Finding] = []
    number = 0
    for line, text in docstrings(ast.parse(source)):
        number += 1
        first = text.strip().split("\n", 1)[0]
        if len(first) > FIRST_LINE_MAX:
            found.append(Finding(file, line, "long", f"first line of {len(first)} characters", first))
        if _HEADLESS.search(text):
            found.append(Finding(file, line, "headless", HEADLESS.name, first))
            found.append(Finding(file, line, "marked", HEADLESS.name, first))
        plain = _CODE.sub(" ", text)
        for marker, pattern in _COMPILED:
            match = pattern.search(plain)
            if match:
                found.append(Finding(file, line, "marked", marker.name, _around(plain, match)))
    return number, found


def findings_in_page(file: Path, source: str) -> list[Finding]:
    """Find the lines of a Markdown page that contain a marker."""
    plain = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), source)
    return [
        Finding(file, number, "lines", marker.name, _around(line, match))
        for number, raw in enumerate(plain.split("\n"), 1)
        for line in [_CODE.sub(" ", raw)]
        for marker, pattern in _COMPILED
        for match in [pattern.search(line)]
        if match
    ]


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring and of each text under an attribute."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for before, statement in zip([None, *node.body], node.body, strict=False):
            if before is not None and not isinstance(before, ast.Assign | ast.AnnAssign):
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                if isinstance(value, str):
                    yield statement.lineno, value


def package_of(file: Path) -> str:
    """Name the package or folder of two levels that a file belongs to.

    >>> package_of(ROOT / "src/twophase/stores/sqlite/writer.py"), package_of(ROOT / "tests/unit/core/test_gid.py")
    ('twophase.stores', 'tests.unit')
    >>> package_of(ROOT / "src/twophase/__init__.py"), package_of(ROOT / "docs/how-to/topics.md")
    ('twophase', 'docs/how-to')
    """
    parts = file.relative_to(ROOT).parent.parts
    if file.suffix == ".md":
        return "/".join(parts[:2]) or "pages"
    if "src" in parts:
        parts = parts[parts.index("src") + 1 :]
    return ".".join(parts[:2])


def files_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the Python files and Markdown pages of files and folders, sorted."""
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.suffix in {".py", ".md"} and not _SKIPPED.intersection(file.parts) and file.is_file():
                yield file


def report(paths: Iterable[Path]) -> Report:
    """Read files and folders, and find what counts."""
    result = Report([], Counter())
    for file in files_in(paths):
        source = file.read_text(encoding="utf-8")
        package = package_of(file) if file.is_relative_to(ROOT) else "elsewhere"
        if file.suffix == ".md":
            found = findings_in_page(file, source)
        else:
            number, found = findings_in_python(file, source)
            result.docstrings[package] += number
        result.findings.extend((package, one) for one in found)
    return result


def everything() -> Report:
    """Read the whole repository."""
    return report([*sorted(ROOT.glob("*.md")), *(ROOT / folder for folder in FOLDERS)])


Counts = dict[str, dict[str, int]]


def larger(counts: Counts, allowed: Counts) -> list[str]:
    """Compare counts with those allowed; return a sentence for each that is larger.

    >>> larger({"a": {"marked": 3}, "b": {"long": 1}}, {"a": {"marked": 2}})
    ['a: 3 marked, 2 are allowed', 'b: 1 long, 0 are allowed']
    """
    return [
        f"{package}: {count} {kind}, {allowed.get(package, {}).get(kind, 0)} are allowed"
        for package, kinds in sorted(counts.items())
        for kind, count in kinds.items()
        if count > allowed.get(package, {}).get(kind, 0)
    ]


def sums(counts: Counts) -> dict[str, int]:
    """Add up each kind over all packages."""
    return {kind: sum(kinds.get(kind, 0) for kinds in counts.values()) for kind in KINDS}


def ratchet() -> Counts:
    """Read the counts that are allowed."""
    return tomllib.loads(RATCHET.read_text(encoding="utf-8")) if RATCHET.is_file() else {}


def ratchet_text(counts: Counts) -> str:
    """Write counts as the ratchet's text; a package without any has no table."""
    head = (
        "# Docstrings and lines with unclear English that are left, by package; `scripts/prose --update` lowers them.\n"
    )
    tables = (
        f'\n["{package}"]\n' + "".join(f"{kind} = {kinds[kind]}\n" for kind in KINDS if kind in kinds)
        for package, kinds in sorted(counts.items())
    )
    return head + "".join(tables)


def update(counts: Counts, *, moved: bool) -> list[str]:
    """Write the ratchet, unless a count would rise; return what rises."""
    allowed = ratchet()
    if moved:
        risen = larger({"all packages": sums(counts)}, {"all packages": sums(allowed)})
    else:
        risen = larger(counts, allowed)
    if not risen or not allowed:
        RATCHET.write_text(ratchet_text(counts), encoding="utf-8")
        return []
    return risen


def _around(text: str, match: re.Match[str]) -> str:
    return " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())


def _table(read: Report) -> str:
    counts = read.counts()
    lines = [f"{'package':<28}{'docstrings':>11}" + "".join(f"{kind:>16}" for kind in KINDS)]
    rows = [
        (package, read.docstrings[package], counts.get(package, {})) for package in sorted({*counts, *read.docstrings})
    ]
    rows.append(("all", read.docstrings.total(), sums(counts)))
    for package, number, kinds in rows:
        cells = [f"{kinds.get(kind, 0):>8}{_share(kinds.get(kind, 0), number, kind):>8}" for kind in KINDS]
        lines.append(f"{package:<28}{number:>11}{''.join(cells)}")
    return "\n".join(lines)


def _share(count: int, number: int, kind: str) -> str:
    return "" if kind == "lines" or not number else f"{100 * count / number:.1f} %"


def main(arguments: Sequence[str]) -> int:
    """Print counts or findings; 1 when there are findings, or more than allowed."""
    parser = argparse.ArgumentParser(prog="scripts/prose", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="list the findings of these files and folders"
    )
    parser.add_argument("--update", action="store_true", help="lower scripts/prose.toml to the present counts")
    parser.add_argument("--moved", action="store_true", help="with --update: files moved; only the sums may not rise")
    parser.add_argument("--quiet", action="store_true", help="print only what is larger than allowed")
    parser.add_argument("--markers", action="store_true", help="explain the markers")
    options = parser.parse_args(arguments)

    if options.markers:
        print("\n".join(f"{marker.name}: {marker.instead}" for marker in (HEADLESS, *MARKERS)))
        return 0
    if options.paths:
        found = [one for _, one in report(path.resolve() for path in options.paths).findings if one.kind != "headless"]
        print("\n".join(str(one) for one in found) or "no findings")
        return 1 if found else 0
    read = everything()
    if not options.quiet:
        print(_table(read))
    risen = update(read.counts(), moved=options.moved) if options.update else larger(read.counts(), ratchet())
    if risen:
        hint = "`scripts/prose PATH` lists them; after a move of files: `scripts/prose --update --moved`"
        print("\n".join(risen), hint, sep="\n", file=sys.stderr)
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
