"""Every recorded request to a real dtm server gets the recorded answer.

Only the named differences are excepted.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.server_process import serving
from tests.wire.differences import BY_VECTOR
from tests.wire.replay import replay
from tests.wire.sink import sink
from tests.wire.transcripts import recorded


async def test_every_recorded_request_is_answered_as_dtm_did_but_for_the_named_differences(tmp_path: Path) -> None:
    async with sink() as branches, serving(tmp_path) as server:
        vectors = recorded(branches.address)
        outcomes = await replay(server, branches, vectors, BY_VECTOR.__contains__)
    assert len(outcomes) == len(vectors) >= 200
    unnamed = [
        f"{one.name}: {'; '.join(one.deviations)}" for one in outcomes if one.deviations and one.name not in BY_VECTOR
    ]
    assert unnamed == []
    by_name = {one.name: one for one in outcomes}
    untrue = []
    for name, difference in BY_VECTOR.items():
        ours = by_name[name]
        if not ours.deviations:
            untrue.append(f"{name}: answered as recorded")
        elif ours.status != difference.status or difference.says not in ours.body:
            untrue.append(f"{name}: {ours.status} {ours.body[:300]}")
    assert untrue == []
