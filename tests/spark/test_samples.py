"""The messages that are shown: the first of every class, whatever else they are."""

from __future__ import annotations

from typing import Any

from twophase_spark.rules.samples import SAMPLES_PER_FLAG, chosen


def combination(*flags: str, gids: list[str]) -> dict[str, Any]:
    return {"flags": list(flags), "gids": gids}


def test_the_first_of_a_class_come_from_all_its_combinations() -> None:
    alone = [f"a{number:02}" for number in range(SAMPLES_PER_FLAG)]
    together = [f"{letter}{number:02}" for letter in "0b" for number in range(SAMPLES_PER_FLAG // 2)]

    found = chosen([combination("lost", gids=alone), combination("lost", "ghost", gids=together)])

    assert found == {*together, *alone[: SAMPLES_PER_FLAG // 2]}, "the last of `together` are first of the ghosts"


def test_what_is_in_order_or_in_flight_is_not_shown() -> None:
    assert chosen([combination(gids=["a"]), combination("in_flight", gids=["b"])]) == set()
