"""The bytes of a run.

They follow the wire format, have the requested size, and carry the number where the sink looks for it.
"""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.load.workload import FIRST_NUMBER, NUMBER_AT, NUMBER_DIGITS, Gids, Mode, Template, Workload
from twophase.core.errors import ConfigurationError
from twophase.core.gid import GID_CHARACTERS, born_ms
from twophase.core.options import Durability
from twophase.http_client.address import parse_address
from twophase.server.codecs.decode import Decoder

_SERVER = parse_address("http://127.0.0.1:36789/api/dtmsvr")
_SINK = "http://127.0.0.1:5000/a1b2c3d4"


def _template(**options: object) -> Template:
    return Template(_SERVER, msgspec.convert(options, Workload), _SINK)


@pytest.mark.parametrize("payload_bytes", [22, 23, 31, 32, 33, 500])
@pytest.mark.parametrize("branches", [1, 2, 17])
def test_body_is_a_message_the_server_reads(payload_bytes: int, branches: int) -> None:
    body = _template(payload_bytes=payload_bytes, branches=branches).body(b"g" * GID_CHARACTERS, 7)
    message = Decoder(lambda _url: None).message(body)

    assert [branch.url for branch in message.branches] == [f"{_SINK}/{number:02}" for number in range(1, branches + 1)]
    for branch in message.branches:
        assert len(branch.payload) == payload_bytes
        assert branch.payload[NUMBER_AT : NUMBER_AT + NUMBER_DIGITS] == b"%d" % (FIRST_NUMBER + 7)
        assert msgspec.json.decode(branch.payload)["message"] == FIRST_NUMBER + 7


def test_heads_name_the_length_every_body_has() -> None:
    template = _template(branches=3)
    lengths = {len(template.body(Gids().new(), number)) for number in (0, 9, 999_999_999)}

    assert len(lengths) == 1
    assert b"content-length: %d\r\n" % lengths.pop() in template.prepare_head
    assert template.submit_head.startswith(b"POST /api/dtmsvr/submit HTTP/1.1\r\nhost: 127.0.0.1:36789\r\n")


def test_options_go_with_the_message() -> None:
    body = _template(durability="check-back", timeout_to_fail_s=10).body(b"g" * GID_CHARACTERS, 0)
    options = Decoder(lambda _url: None).message(body).options

    assert (options.durability, options.timeout_to_fail_ms) == (Durability.CHECK_BACK, 10_000)


def test_gids_are_ours_and_differ() -> None:
    gids = Gids()
    made = [gids.new() for _ in range(10_000)]

    assert len(set(made)) == len(made)
    assert all(born_ms(gid.decode()) is not None for gid in made)


@pytest.mark.parametrize(
    ("workload", "option"),
    [
        (Workload(connections=0), "--connections"),
        (Workload(rate=-1.0), "--rate"),
        (Workload(seconds=0.0), "--seconds"),
        (Workload(payload_bytes=21), "--payload"),
        (Workload(branches=0), "--branches"),
        (Workload(durability="perhaps"), "--durability"),
    ],
)
def test_a_workload_that_cannot_be_run_is_refused_by_the_name_of_its_option(workload: Workload, option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        workload.check()


def test_a_workload_that_can_be_run_is_taken() -> None:
    assert Workload(Mode.SUBMIT, rate=500.0).check().mode is Mode.SUBMIT
