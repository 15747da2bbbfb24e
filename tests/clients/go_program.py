"""Programs in Go, the bank above all, built once for a state of their sources.

They are kept in `.clients/` of the checkout. The Go toolchain is the machine's, or the one in the virtual environment,
which `scripts/setup` puts there where the machine has none. The environment decides the source of modules.

`python -m tests.clients.go_program` builds ahead of the tests, as `scripts/test` does, so that none waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

PART = "Go clients of dtm"
SOURCES = Path(__file__).parent / "go"
BUILT = Path(__file__).parents[2] / ".clients"
_LEAST = (1, 19)
_BUILD_SECONDS = 540


class CannotBuild(Exception):
    """A Go program cannot be built here; the text names the cause and the remedy."""


def toolchain() -> str:
    """Return a Go compiler that is new enough.

    Raises:
        CannotBuild: no compiler is found, or it is too old.
    """
    packaged = str(Path(sysconfig.get_path("purelib")) / "go" / "bin")
    for place in (os.environ.get("PATH", os.defpath), packaged, "/usr/local/go/bin"):
        found = shutil.which("go", path=place)
        if found is not None and _version(found) >= _LEAST:
            return found
    raise CannotBuild("there is no Go 1.19 or newer; `make setup` brings one, or install it")


def _version(go: str) -> tuple[int, ...]:
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=_environment())
    number = re.match(r"go(\d+)\.(\d+)", said.stdout.strip())
    return tuple(int(part) for part in number.groups()) if number else (0,)


def _environment() -> dict[str, str]:
    # No C compiler is needed, and no other toolchain is downloaded; the environment decides the source of modules.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def program() -> Path:
    """Return the built program; build it when its sources have changed since.

    Raises:
        CannotBuild: no toolchain, no modules, or it does not compile.
    """
    return built("bank", SOURCES, sorted(SOURCES.iterdir()), ".")


def built(name: str, folder: Path, decisive: Sequence[Path], package: str, seconds_max: float = _BUILD_SECONDS) -> Path:
    """Return a Go program of a module, built when a decisive file has changed since.

    Arguments:
        name: what it is called in `BUILT`.
        folder: where the module is.
        decisive: the files that say which program it is.
        package: of the program, as `go build` takes it.
        seconds_max: how long building it may take.

    Raises:
        CannotBuild: no toolchain, no modules, or it does not compile.
    """
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in decisive)).hexdigest()[:16]
    wanted = BUILT / f"{name}-{digest}"
    if wanted.exists():
        return wanted
    go = toolchain()
    BUILT.mkdir(exist_ok=True)
    with (BUILT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.exists():
            _build(go, folder, package, wanted, seconds_max)
            for old in BUILT.glob(f"{name}-*"):
                if old != wanted:
                    old.unlink()
    return wanted


def _build(go: str, folder: Path, package: str, wanted: Path, seconds_max: float) -> None:
    unfinished = wanted.with_suffix(".unfinished")
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(unfinished), package]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_max,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"building it took more than {seconds_max:g} s") from error
    if done.returncode:
        raise CannotBuild(f"`go build` failed: {done.stderr.strip()[-600:]}")
    unfinished.rename(wanted)


def main() -> None:
    """Build, and print what was done."""
    try:
        print(f"clients: the Go bank is built: {program().name}")
    except CannotBuild as error:
        sys.exit(f"clients: the Go bank is not built: {error}")


if __name__ == "__main__":
    main()
