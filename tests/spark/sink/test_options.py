"""The sink's options, which Spark shows: references to secrets, no secrets."""

from __future__ import annotations

import pytest

from twophase.core.errors import ConfigurationError
from twophase_spark.sink.options import parse

NEEDED = {
    "coordinator": "http://127.0.0.1:36789",
    "ledger": "sqlite:///ledger.db",
    "publisher": "orders",
    "keyColumns": "id",
    "checkUrl": "http://127.0.0.1:36791/twophase/spark/check",
}


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://me:s3cr@shipping/x"},
        {"url": "HTTPS://s3cr@shipping?then=http://x"},
        {"url": "http://x?then=http://me:s3cr@shipping"},
        {"url": "http://me:s3/cr@shipping/x"},
        {"url": "me:s3cr@shipping:58080/pay.Shipping/Ship"},
        {"url": "http://shipping/x?id=7&access_token=s3cr"},
        {"url": "http://shipping/x?API%2DKEY=s3cr"},
        {"urlTemplate": "http://me:s3cr@shipping/${id}"},
        {"urlTemplate": "http://shipping/${id}?password=s3cr"},
        {"urlTemplate": "http://shipping/${id}?password=s3cr${password}"},
        {"urlTemplate": "http://shipping/${id}?password=${password}&then=http://me:s3cr@h/"},
        {"urlTemplate": "http://shipping/${id}?then=http://h/?password=s3cr"},
        {"url": "http://shipping/x?clientSecret=s3cr"},
        {"url": "http://shipping/x?id=7&dbpassword=s3cr"},
        {"url": "http://shipping", "coordinator": "http://h/?token=s3cr"},
        {"url": "http://shipping", "checkUrl": "http://me:s3cr@h/check"},
        {"url": "http://shipping", "branchHeaders": '{"authorization":"Bearer s3cr"}'},
        {"url": "http://shipping", "branchHeaders": '{"X-Api-Key":"s3cr"}'},
        {"url": "http://shipping", "branchHeaders": '{"Cookie":"id=s3cr"}'},
        {"url": "http://shipping", "branchHeaders": '{"x-auth-token":"s3cr"}'},
        {"url": "http://shipping", "branchHeaders": '{"x-who":"basic s3cr"}'},
    ],
)
def test_a_secret_is_refused_and_not_repeated(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"Spark shows options") as raised:
        parse({**NEEDED, **options})
    assert "s3cr" not in raised.value.message


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://shipping/@me/x?mail=a@b&tokens=5&key=7"},
        {"url": "shipping:58080/pay.Shipping/Ship"},
        {"urlTemplate": "http://shipping/${id}@eu?token=${token}"},
        {"urlTemplate": "http://shipping/${id}?password=${password}"},
        {"urlTemplate": "http://shipping/?id=${id}&pwd=${pwd}&sslpassword=${one}${two}&clientSecret=${secret}#x"},
        {"topic": "orders"},
        {"url": "http://s", "branchHeaders": '{"authorization":"env:KEY","x-tenant":"7","x-api-key":"file:/k"}'},
        {"url": "http://s", "branchHeaders": '{"x-author":"me","x-signed-by":"me","x-basic":"basics"}'},
    ],
)
def test_what_is_none_may_stand_there(options: dict[str, str]) -> None:
    parse({**NEEDED, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://shipping/x?gid=7"},
        {"urlTemplate": "http://shipping/${id}?%6Fp=1"},
        {"url": "http://shipping/x?barrier=7f"},
        {"url": "http://shipping/x", "checkUrl": "http://h/check?barrier=7f"},
        {"url": "http://shipping/x", "branchHeaders": '{"X-Twophase-Oldest":"1"}'},
        {"url": "http://shipping/x", "branchHeaders": '{"dtm-gid":"1"}'},
    ],
)
def test_what_belongs_to_the_coordinator_is_refused_before_a_row_is_read(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"coordinator|only a check address|twice"):
        parse({**NEEDED, **options})


def test_what_spark_adds_of_its_own_is_no_option_of_ours() -> None:
    added = {"path": "/x", "checkpointLocation": "/y", "queryName": "orders"}

    assert parse({**NEEDED, "topic": "orders", **added}, streaming=True) == parse({**NEEDED, "topic": "orders"})


def test_a_topic_is_the_address_of_every_row() -> None:
    assert parse({**NEEDED, "topic": "orders"}).url == "topic://orders"


def test_an_option_without_text_is_not_given() -> None:
    given = {"delay": "", "durability": "", "payloadColumns": "", "ca": ""}

    assert parse({**NEEDED, "topic": "orders", **given}) == parse({**NEEDED, "topic": "orders"})
