"""The attacks of the floods are taken as they are meant, and go on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scenarios.flood import ATTACKS, BOUNDED, OWNER, ROCKETMQ, Attack
from benchmarks.servers.started import REPOSITORY
from benchmarks.servers.tokens import added
from tests.integration.server.running import running
from tests.support.certificates import Certificates

_PATIENCE_S = 60.0
_PLAYED_S = 0.3
"""Time for an attack to be refused, which would end it."""


def _server(attack: Attack) -> str:
    if attack.port == ROCKETMQ:
        return "rocketmq, tokens" if attack.token else "rocketmq"
    return "tls" if attack.tls else "tokens" if attack.token else "plain"


@pytest.mark.parametrize("kind", ["plain", "tls", "tokens", "rocketmq", "rocketmq, tokens"])
async def test_an_attack_goes_on_until_it_is_ended(kind: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = Certificates(tmp_path).settings() if kind == "tls" else {}
    tokens: dict[str, str] = {}
    if "tokens" in kind:
        file = tmp_path / "tokens.toml"
        settings = {"tokens": str(file)}
        tokens = {name: added(file, name, ["produce", "observe"]) for name in (OWNER, BOUNDED)}
    attacks = {name: attack for name, attack in ATTACKS.items() if _server(attack) == kind}
    assert attacks
    second: dict[str, Any] = {"grpc_port": "off", ROCKETMQ: 0} if "rocketmq" in kind else {"grpc_port": 0}
    async with running(tmp_path, **second, **settings) as one:
        ports = [url.rpartition(":")[2] for url in one.server.urls]
        for name, attack in attacks.items():
            command = (sys.executable, "-m", "benchmarks.scenarios.flood", name, *ports, tokens.get(attack.token, ""))
            playing = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE)
            try:
                assert playing.stdout is not None
                async with asyncio.timeout(_PATIENCE_S):
                    assert await playing.stdout.readline(), name
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(_PLAYED_S):
                        await playing.wait()
                assert playing.returncode is None, name
            finally:
                if playing.returncode is None:
                    playing.kill()
                await playing.communicate()
