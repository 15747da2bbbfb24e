"""An act on several messages that ends before the last of them."""

from __future__ import annotations

from typing import Any, cast

import pytest
import typer

from twophase.cli.operating.acting import perform
from twophase.cli.operating.http_api import EXIT_REFUSED, EXIT_UNREACHABLE, Api
from twophase.core.operating import Acted

GIDS = ["a", "b", "c", "d"]


class EndingApi:
    """A server that refuses `b`, and gives no answer about `c`."""

    def __init__(self, ends: BaseException) -> None:
        self._ends = ends

    def post(self, path: str, *_: Any, **__: Any) -> Acted:
        gid = path.split("/")[-2]
        if gid == "b":
            raise typer.Exit(EXIT_REFUSED)
        if gid == "c":
            raise self._ends
        return Acted(gid, "submitted")


@pytest.mark.parametrize("ends", [typer.Exit(EXIT_UNREACHABLE), KeyboardInterrupt()], ids=["no answer", "ctrl-c"])
def test_an_act_that_ends_in_the_middle_says_how_far_it_came(
    ends: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(type(ends)) as raised:
        perform(cast("Api", EndingApi(ends)), "redrive", GIDS, {}, Acted)

    assert raised.value is ends
    assert capsys.readouterr().err == (
        "redrive: 1 of 4 messages are done, 1 refused. There is no answer about c, and the rest was not tried.\n"
    )


def test_a_message_that_is_named_twice_is_one() -> None:
    acted, refused = perform(cast("Api", EndingApi(typer.Exit())), "park", ["a", "a", "b", "b"], {}, Acted)

    assert ([one.gid for one in acted], refused) == (["a"], 1)


def test_an_act_on_one_message_has_nothing_to_add(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        perform(cast("Api", EndingApi(typer.Exit(EXIT_UNREACHABLE))), "redrive", ["c"], {}, Acted)

    assert capsys.readouterr().err == ""
