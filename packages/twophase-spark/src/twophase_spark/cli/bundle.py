"""`twophase spark bundle`: the package for a cluster's executors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from twophase.cli.console import echo
from twophase_spark.cli.ending import exit_codes

BUNDLE_EXAMPLES: Final = """\b
Example:
  twophase spark bundle -o twophase-spark.zip
  spark-submit --master spark://host:7077 --py-files twophase-spark.zip job.py"""


def bundle(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The zip to write.")] = Path(
        "twophase-spark.zip"
    ),
) -> None:
    """Write the package as a zip for `--py-files` of a cluster.

    Compiled packages are not in it; the executors' Python must have them.
    """
    with exit_codes(command="bundle", failed="Not written."):
        from twophase_spark.cluster.bundle import bundle as write  # noqa: PLC0415 -- costs nothing elsewhere

        done = write(output)
        echo(f"{done.path}: {done.files} files, {done.size_bytes} bytes")
        echo("The executors' Python needs these besides:")
        for name, version in done.versions.items():
            echo(f"  {name}=={version}")
