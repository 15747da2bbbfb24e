"""A report of the parts that could not be tested.

A test that needs a part that this machine does not have calls `not_tested`. The run then ends with a section that names
the part, the reason and the number of tests; with `TESTS_REQUIRE=all` a missing part fails them.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

REQUIRE_VARIABLE = "TESTS_REQUIRE"
PREFIX = "NOT TESTED: "


def everything_required() -> bool:
    """Return True when a missing part fails the run."""
    return os.environ.get(REQUIRE_VARIABLE) == "all"


def not_tested(part: str, reason: str) -> NoReturn:
    """End the present test: its part is missing here.

    Arguments:
        part: what is missing ("PostgreSQL", "Java").
        reason: why, and what to do about it.

    Raises:
        Failed: everything is required.
        Skipped: otherwise; reported in the section of what was not tested.
    """
    text = f"{PREFIX}{part}: {reason}"
    if everything_required():
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def not_to_be_had(part: str, reason: str) -> NoReturn:
    """End the present test: its part is available nowhere.

    So requiring everything cannot bring it.

    Raises:
        Skipped: always; reported in the section of what was not tested.
    """
    pytest.skip(f"{PREFIX}{part}: {reason}")
