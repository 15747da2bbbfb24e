"""The calls in the sources that make a file, and what keeps others out of it.

A new one fails until it is in the list, and in a test of modes: `tests/integration/server/test_files.py` or
`tests/spark/test_file_modes.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("src/twophase", "packages/twophase-spark/src/twophase_spark")
_MAKING: Final = frozenset(
    {
        *("write_text", "write_bytes", "mkdir", "makedirs", "touch", "mkfifo", "symlink_to"),
        *("mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile", "SpooledTemporaryFile"),
        *(
            "ZipFile",
            "ParquetWriter",
            "write_deltalake",
            "create_write_transaction",
            "open_output_stream",
            "start_unix_server",
        ),
        *("copyfile", "copy2", "copytree", "saveAsTable", "FileHandler", "RotatingFileHandler"),
    }
)
_WRITING: Final = frozenset("wxa+")
OWN: Final = "made with mode 0600 or 0700, whatever the umask"
COMMAND: Final = "made by a command alone, whose umask is 0077"
WITHIN: Final = "within a folder of mode 0700"
PERMITTED: Final = {
    ("src/twophase/server/identity/tokens.py", "open"): OWN,
    ("src/twophase/server/identity/tokens.py", "fdopen"): OWN,
    ("src/twophase/server/workers/supervisor.py", "TemporaryDirectory"): OWN,
    ("src/twophase/server/workers/metrics.py", "start_unix_server"): WITHIN,
    ("src/twophase/stores/sqlite/connection.py", "connect"): COMMAND,
    ("src/twophase/stores/sqlite/file_lock.py", "open"): OWN,
    ("src/twophase/testing/coordinator.py", "TemporaryDirectory"): OWN,
    ("twophase_spark/_java.py", "mkdir"): WITHIN,
    ("twophase_spark/_java.py", "write_text"): WITHIN,
    ("twophase_spark/lake/copying.py", "ParquetWriter"): WITHIN,
    ("twophase_spark/lake/copying.py", "TemporaryFile"): OWN,
    ("twophase_spark/lake/tables.py", "create_write_transaction"): WITHIN,
    ("twophase_spark/lake/tables.py", "mkdir"): OWN,
    ("twophase_spark/lake/tables.py", "open_output_stream"): WITHIN,
    ("twophase_spark/lake/purging.py", "open"): OWN,
    ("twophase_spark/auditing/run.py", "write_bytes"): COMMAND,
    ("twophase_spark/auditing/run.py", "write_text"): COMMAND,
    ("twophase_spark/cli/slo.py", "write_bytes"): COMMAND,
    ("twophase_spark/cli/slo.py", "write_text"): COMMAND,
    ("twophase_spark/cluster/bundle.py", "ZipFile"): COMMAND,
    ("twophase_spark/source/cut.py", "TemporaryDirectory"): OWN,
    ("twophase_spark/source/cut.py", "connect"): WITHIN,
    ("twophase_spark/doctor.py", "TemporaryDirectory"): OWN,
    ("twophase_spark/inputs/baseline.py", "write_bytes"): COMMAND,
    ("twophase_spark/inputs/increment.py", "fdopen"): OWN,
    ("twophase_spark/inputs/increment.py", "mkstemp"): OWN,
    ("twophase_spark/reports/findings.py", "mkdir"): OWN,
    ("twophase_spark/reports/findings.py", "write_deltalake"): WITHIN,
    ("twophase_spark/reports/unmade.py", "write_bytes"): COMMAND,
    ("twophase_spark/session.py", "TemporaryDirectory"): OWN,
    ("twophase_spark/session.py", "mkdir"): WITHIN,
    ("twophase_spark/session.py", "open"): WITHIN,
    ("twophase_spark/session.py", "write_text"): WITHIN,
}
_READING: Final = frozenset({"?mode=ro", "?mode=rw"})
"""Parts of a SQLite URL by which no file is made."""


def _made(call: ast.Call) -> str:
    """Return the name of a call that makes a file; empty for any other call."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    text = ast.unparse(call)
    if name in _MAKING:
        return name
    if name in {"open", "fdopen"}:
        modes = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        writes = any(set(mode) <= set("rwxabt+") and set(mode) & _WRITING for mode in modes)
        return name if writes or "O_CREAT" in text else ""
    if text.startswith("sqlite3.connect(") and not any(part in text for part in _READING):
        return name
    return ""


def _found() -> Iterator[tuple[str, str]]:
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            shown = path.relative_to(ROOT).as_posix().removeprefix("packages/twophase-spark/src/")
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and (name := _made(node)):
                    yield shown, name


def test_every_call_that_makes_a_file_is_known() -> None:
    assert set(_found()) == PERMITTED.keys()
