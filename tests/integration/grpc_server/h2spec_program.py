"""The public conformance tests of HTTP/2 (h2spec, in Go).

They are built once, and kept in `.clients/` of the checkout.
"""

from __future__ import annotations

from pathlib import Path

from tests.clients.go_program import built

_SOURCES = Path(__file__).parent / "h2spec"
_COMMAND = "github.com/summerwind/h2spec/cmd/h2spec"
_BUILD_SECONDS = 100


def program() -> Path:
    """Return the built program; build it when its versions have changed.

    Raises:
        CannotBuild: no toolchain, or no modules.
    """
    return built("h2spec", _SOURCES, [_SOURCES / "go.sum"], _COMMAND, _BUILD_SECONDS)
