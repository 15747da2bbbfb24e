"""A part of twophase that is used without its extra names that extra.

The user has to install it, not to guess it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

_HIDDEN = """
import importlib.machinery

finder = importlib.machinery.PathFinder
found = finder.find_spec
finder.find_spec = lambda name, *rest: None if name.split(".")[0] == {package!r} else found(name, *rest)
{statement}
"""


@pytest.mark.parametrize(
    ("package", "statement", "extra"),
    [
        ("structlog", "from twophase.testing import InProcessCoordinator", "server"),
        ("sqlalchemy", "import twophase.barrier; twophase.barrier.metadata()", "sqlalchemy"),
    ],
)
def test_what_is_missing_is_named_with_its_extra(package: str, statement: str, extra: str) -> None:
    program = _HIDDEN.format(package=package, statement=statement)

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    last = ended.stderr.strip().splitlines()[-1]
    assert (ended.returncode, repr(package) in last) == (1, True), last
    assert f"`pip install 'twophase[{extra}]'`" in last
