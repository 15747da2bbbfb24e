"""The tables of options: each is explained, and a misspelt one refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twophase.core.errors import ConfigurationError
from twophase_spark import fleet, mysql_url
from twophase_spark.locations import PARAMETERS
from twophase_spark.option_table import Option, unknown
from twophase_spark.sink import options as sink_options
from twophase_spark.source.options import read_options

TEXTS = {"source": read_options.OPTIONS, "sink": sink_options.OPTIONS, "location": PARAMETERS}
TABLES = {**TEXTS, "audit": fleet.OPTIONS, "mysql": mysql_url.PARAMETERS}


@pytest.mark.parametrize("options", TABLES.values(), ids=TABLES)
def test_every_option_says_what_it_means(options: tuple[Option, ...]) -> None:
    assert [option.name for option in options if not option.meaning] == []


@pytest.mark.parametrize("options", TEXTS.values(), ids=TEXTS)
def test_every_default_is_what_the_page_shows(options: tuple[Option, ...]) -> None:
    """A default that is shown as text reads as the field's own."""
    for option in options:
        text = option.default_shown.strip("`")
        if f"`{text}`" == option.default_shown and text.replace("_", "a").isalnum() and text.islower() | text.isdigit():
            assert option.read(option.name, text) == option.default, option.name


@pytest.mark.parametrize(
    ("parse", "whose"), [(read_options.parse, "this source"), (sink_options.parse, "this sink")], ids=["source", "sink"]
)
def test_a_misspelt_option_is_refused_with_the_nearest(parse: Callable[[dict[str, str]], Any], whose: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse({"ulr": "sqlite:///tp.db"})

    assert raised.value.message.startswith(f"There is no option 'ulr' of {whose}. Did you mean url")


def test_a_name_that_resembles_nothing_has_no_hint() -> None:
    assert "mean" not in unknown("qqqq", ["table", "url"], "this source").message
