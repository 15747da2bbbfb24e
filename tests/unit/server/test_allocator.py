"""Large blocks stay apart from the heap of the C library, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from twophase.server.allocator import keep_large_blocks_apart

_PROGRAM = """
import ctypes, sys
from twophase.server.allocator import keep_large_blocks_apart

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

try:
    mallinfo = ctypes.CDLL(None).mallinfo2
except AttributeError:
    print("none")
    sys.exit()
mallinfo.restype = Info
kept = keep_large_blocks_apart() if sys.argv[1] == "kept" else None
first = bytes(1 << 20)
del first
before = mallinfo().hblkhd
second = bytes(1 << 20)
print(kept, mallinfo().hblkhd - before >= 1 << 20)
"""


def _said(*arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **environment})
    if said.stdout.strip() == "none":
        pytest.skip("the C library tells nothing of its blocks")
    return said.stdout.strip()


def test_a_large_block_is_apart_also_after_one_was_freed() -> None:
    assert _said("usual") == "None False"
    assert _said("kept") == "True True"


def test_the_environment_goes_before() -> None:
    assert _said("kept", MALLOC_MMAP_THRESHOLD_="4194304") == "False False"


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert not keep_large_blocks_apart()
