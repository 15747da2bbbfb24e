"""A text of elsewhere, in a command that is printed, is one argument."""

from __future__ import annotations

import subprocess

import pytest

from twophase.core.shell import argument


@pytest.mark.parametrize(
    "text",
    ["order-17", "order 17", "--server=http://evil", "-h", "it's", '"', "`id` $(id) $HOME", "a\nb", "\x1b[2J", "\\"],
)
def test_a_shell_gives_the_text_as_it_is_and_behind_it_no_option(text: str) -> None:
    program = ["/bin/bash", "-c", f"printf '%s\\0' twophase explain {argument(text)}"]
    words = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split("\0")

    assert words[:2] == ["twophase", "explain"]
    assert words[2:-1] == (["--", text] if text.startswith("-") else [text])
