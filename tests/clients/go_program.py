"""The bank in Go: found, built once for a state of its sources, and kept in `.clients/` of the checkout.

The Go toolchain is the machine's, or the one in the virtual environment, which `scripts/setup` puts there where the
machine has none. Where modules come from is the environment's affair.

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
from pathlib import Path

PART = "Go clients of dtm"
SOURCES = Path(__file__).parent / "go"
BUILT = Path(__file__).parents[2] / ".clients"
_LEAST = (1, 19)
_BUILD_SECONDS = 540


class CannotBuild(Exception):
    """The Go bank cannot be had here; the text says why and what to do."""


def toolchain() -> str:
    """A Go compiler that is new enough.

    Raises:
        CannotBuild: there is none.
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
    # No C compiler is asked for, no other toolchain downloaded; where modules come from is not our affair.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def program() -> Path:
    """The built program; builds it when its sources have changed since.

    Raises:
        CannotBuild: no toolchain, no modules, or it does not compile.
    """
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir()))).hexdigest()[:16]
    wanted = BUILT / f"bank-{digest}"
    if wanted.exists():
        return wanted
    go = toolchain()
    BUILT.mkdir(exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.exists():
            _build(go, wanted)
    return wanted


def _build(go: str, wanted: Path) -> None:
    unfinished = BUILT / "unfinished"
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(unfinished), "."]
    try:
        done = subprocess.run(
            command,
            cwd=SOURCES,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"building it took more than {_BUILD_SECONDS} s") from error
    if done.returncode:
        raise CannotBuild(f"`go build` failed: {done.stderr.strip()[-600:]}")
    for old in BUILT.glob("bank-*"):
        old.unlink()
    unfinished.rename(wanted)


def main() -> None:
    """Build, and say what was done."""
    try:
        print(f"clients: the Go bank is built: {program().name}")
    except CannotBuild as error:
        sys.exit(f"clients: the Go bank is not built: {error}")


if __name__ == "__main__":
    main()
