"""The public conformance tests of HTTP/2 (h2spec, in Go): built once and kept in `.clients/` of the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

from tests.clients.go_program import BUILT, CannotBuild, toolchain

_SOURCES = Path(__file__).parent / "h2spec"
_COMMAND = "github.com/summerwind/h2spec/cmd/h2spec"
_BUILD_SECONDS = 100


def program() -> Path:
    """The built program; builds it when its versions have changed.

    Raises:
        CannotBuild: no toolchain, or no modules.
    """
    digest = hashlib.sha256((_SOURCES / "go.sum").read_bytes()).hexdigest()[:16]
    wanted = BUILT / f"h2spec-{digest}"
    if wanted.exists():
        return wanted
    go = toolchain()
    BUILT.mkdir(exist_ok=True)
    with (BUILT / "h2spec-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.exists():
            _build(go, wanted)
    return wanted


def _build(go: str, wanted: Path) -> None:
    unfinished = BUILT / "h2spec-unfinished"
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(unfinished), _COMMAND]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    try:
        done = subprocess.run(
            command,
            cwd=_SOURCES,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"building it took more than {_BUILD_SECONDS} s") from error
    if done.returncode:
        raise CannotBuild(f"`go build` failed: {done.stderr.strip()[-600:]}")
    unfinished.rename(wanted)
