"""twophase-spark imports few modules of twophase, each listed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import twophase_spark

ALLOWED = {
    "twophase.barrier",
    "twophase.barrier.dialect",
    "twophase.barrier.fault",
    "twophase.barrier.http_answer",
    "twophase.barrier.open",
    "twophase.barrier.producer",
    "twophase.barrier.signing",
    "twophase.barrier.transaction",
    "twophase.cli.console",
    "twophase.cli.findings",
    "twophase.client.transport.sync",
    "twophase.client.transport.wire",
    "twophase.core.address",
    "twophase.core.audit_chain",
    "twophase.core.audit_log",
    "twophase.core.credentials",
    "twophase.core.errors",
    "twophase.core.failpoint",
    "twophase.core.gid",
    "twophase.core.headers",
    "twophase.core.hooks",
    "twophase.core.lifecycle",
    "twophase.core.limits",
    "twophase.core.many",
    "twophase.core.message",
    "twophase.core.options",
    "twophase.core.printable",
    "twophase.core.probe",
    "twophase.core.queue_message",
    "twophase.core.schedule",
    "twophase.core.shell",
    "twophase.core.signature",
    "twophase.core.topic",
    "twophase.core.trust",
    "twophase.core.verdict",
    "twophase.http_client.blocking",
    "twophase.http_client.outcome",
}


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules of twophase that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if _is_module(name) else node.module


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # below a module that is no package
        return False


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "twophase"


def test_only_the_listed_modules_of_twophase_are_imported() -> None:
    folder = Path(twophase_spark.__file__).parent
    assert {name for path in folder.rglob("*.py") for name in _imports(path)} == ALLOWED
