"""The check itself: it plants in a copy, and a misfit never counts as caught."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.faults import table
from tests.faults.__main__ import ROOT, main
from tests.faults.report import page
from tests.faults.running import Ended, Outcome, Result, judge, last_line
from tests.faults.table import Fault
from tests.faults.tree import Tree, WrongCode

_RULE = "def may_go(age):\n    return age > 10\n"
_TEST = """
import subprocess, sys
from twophase.core.rule import may_go

def test_what_is_young_stays():
    assert not may_go(5)

def test_another_process_runs_the_same_code():
    asked = "from twophase.core.rule import may_go; sys.exit(may_go(5))"
    assert subprocess.run([sys.executable, "-c", "import sys; " + asked], check=False).returncode == 0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A product of one function, and its tests."""
    root = tmp_path / "checkout"
    files = {
        "src/twophase/__init__.py": "",
        "src/twophase/testing/__init__.py": "",
        "src/twophase/testing/pytest_plugin.py": "",
        "src/twophase/core/__init__.py": "",
        "src/twophase/core/rule.py": _RULE,
        "tests/test_rule.py": _TEST,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _table(root: Path, **faults: tuple[str, str]) -> Path:
    """Write a table of faults by name: the text and what stands there instead."""
    folder = root.parent / "table"
    folder.mkdir()
    lines = []
    for name, (text, instead) in faults.items():
        fields = {"breaks": "It breaks.", "file": "src/twophase/core/rule.py", "text": text, "instead": instead}
        lines += [f"[{name}]", "rule = 3", 'tests = ["tests/test_rule.py"]']
        lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in fields.items()]
    (folder / "core.toml").write_text("\n".join(lines))
    return folder


def _fault(**changes: object) -> Fault:
    fault = Fault("f", 3, "It breaks.", "src/twophase/core/rule.py", "age > 10", "True", ("tests/test_rule.py",))
    return msgspec.structs.replace(fault, **changes)


def test_what_tests_notice_is_caught_and_what_they_do_not_notice_survives(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _table(
        checkout,
        noticed=("age > 10", "age > 1"),
        unnoticed=("age > 10", "age > 9"),
        broken=("def may_go", "def could_go"),
    )
    report, kept = tmp_path / "report.md", tmp_path / "kept.json"
    words = ["--json", "--report", str(report), "--kept", str(kept)]
    status = main(words, root=checkout, folder=folder)
    results = msgspec.json.decode(capsys.readouterr().out, type=list[Result])
    assert status == 1
    assert {result.name: result.outcome for result in results} == {
        "noticed": Outcome.CAUGHT,
        "unnoticed": Outcome.SURVIVED,
        "broken": Outcome.BROKEN,
    }
    assert [result.by for result in results if result.by.startswith("tests/test_rule.py::")] == [
        "tests/test_rule.py::test_what_is_young_stays"
    ]
    assert (checkout / "src/twophase/core/rule.py").read_text() == _RULE
    assert "**unnoticed**" in report.read_text()

    main([*words, "--resume"], root=checkout, folder=folder)
    assert "without a fault" not in capsys.readouterr().err, "the results still hold, so nothing is run again"


def test_nothing_is_planted_where_the_tests_fail_already(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "src/twophase/core/rule.py").write_text(_RULE.replace("10", "1"))
    folder = _table(checkout, noticed=("age > 1", "age > 0"))
    status = main(["--kept", str(tmp_path / "kept.json")], root=checkout, folder=folder)
    said = capsys.readouterr()
    assert status == 2
    assert "nothing was planted" in said.err
    assert "caught" not in said.out


def test_a_fault_that_no_longer_applies_is_named_and_never_caught(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _table(checkout, moved=("age >= 10", "age >= 1"))
    status = main([], root=checkout, folder=folder)
    said = capsys.readouterr()
    assert status == 2
    assert "no longer applies: moved: text not found: 'age >= 10' in src/twophase/core/rule.py" in said.err
    assert "caught" not in said.out + said.err


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (_fault(text="age"), "text found 2 times, not once: 'age' in src/twophase/core/rule.py"),
        (_fault(file="src/twophase/gone.py"), "file not found: src/twophase/gone.py; it stands in"),
        (_fault(tests=("tests/test_gone.py",)), "test not found: tests/test_gone.py"),
        (_fault(tests=("tests/test_rule.py::test_gone",)), "test not found: tests/test_rule.py::test_gone"),
    ],
)
def test_why_a_fault_does_not_apply_is_reported(fault: Fault, why: str, checkout: Path) -> None:
    (misfit,) = table.misfits([fault], checkout)
    assert misfit.why.startswith(why)


def test_a_fault_that_applies_is_no_misfit(checkout: Path) -> None:
    assert table.misfits([_fault(tests=("tests/test_rule.py::test_what_is_young_stays",))], checkout) == []


def test_the_copy_imports_no_code_but_its_own(checkout: Path, tmp_path: Path) -> None:
    tree = Tree(checkout, tmp_path / "copy")
    assert tree.root.joinpath("src/twophase/core/rule.py").is_file()
    (checkout / "src" / "twophase").rename(checkout / "src" / "elsewhere")
    with pytest.raises(WrongCode, match="No module named 'twophase'"):
        Tree(checkout, tmp_path / "another")


def test_tests_that_take_too_long_are_no_catch() -> None:
    assert judge(Ended(None, "", 9.0))[0] is Outcome.TIMED_OUT


def test_the_test_that_noticed_is_reported_whatever_its_parameters() -> None:
    output = "FAILED tests/test_a.py::test_b[two words] - assert False\n1 failed\n"
    assert judge(Ended(1, output, 0.1)) == (Outcome.CAUGHT, "tests/test_a.py::test_b[two words]", "assert False")
    assert last_line(output) == "1 failed"


def test_the_report_keeps_the_runs_before() -> None:
    fault = _fault()
    first = page("", "2026-01-01 10:00 UTC", "abc", [fault], [Result("f", 3, "core", Outcome.SURVIVED, 1.0)])
    second = page(first, "2026-01-02 10:00 UTC", "def", [fault], [Result("f", 3, "core", Outcome.CAUGHT, 1.0, "t")])
    assert "| 2026-01-01 10:00 UTC | abc | 1 | 0 | 0 | 1 | 0 | 0 % |" in second
    assert "| 2026-01-02 10:00 UTC | def | 1 | 1 | 0 | 0 | 0 | 100 % |" in second


def test_the_faults_are_enough_and_spread_over_the_rooms() -> None:
    faults = table.load()
    assert len(faults) >= 60
    assert {fault.room for fault in faults} >= {"core", "coordinator", "stores", "barrier", "client", "server"}
    assert {fault.rule for fault in faults} == {*range(1, table.RULES + 1), table.EDGES}
    assert any(fault.file.endswith(".sql") for fault in faults)
    assert ROOT.joinpath("src", "twophase").is_dir()
