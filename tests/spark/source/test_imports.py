"""The modules that a process that only plans must not import.

Spark starts a new process for each planning of a read or a write.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark
SLOW = ("pandas", "pyarrow.compute", "sqlalchemy", "psycopg")


def test_the_source_imports_nothing_slow() -> None:
    said = f"import sys, twophase_spark.source.data_source; print(*sorted({set(SLOW)!r} & set(sys.modules)))"

    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)

    assert found.stdout.split() == []
