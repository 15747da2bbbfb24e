"""One hostile client beside an ordinary one.

Each attack has a server of its own. The ordinary client submits 50 messages a second from another address; its receiver
answers. It may notice the attack, but must not wait for long, and the server must stay within its memory.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Final

import msgspec
import trustme

from benchmarks.compare import API_PATH
from benchmarks.load.histogram import Histogram
from benchmarks.load.run import Run
from benchmarks.load.workload import Mode, Workload
from benchmarks.scenarios.figure import Figure, Stage, api, play
from benchmarks.scenarios.flood import ATTACKS, BOUNDED, OWNER
from benchmarks.servers.ports import KeptPort
from benchmarks.servers.processes import highest_memory_mb
from benchmarks.servers.setups import store
from benchmarks.servers.started import REPOSITORY, Started, directory_on_disk
from benchmarks.servers.tokens import added

SECONDS: Final = 6.0
_WARMUP_S: Final = 0.5
_RATE: Final = 50.0
_CONNECTIONS: Final = 16
_MIDDLE_MS: Final = 100.0
_SLOWEST_MS: Final = 1_500.0
_MEMORY_MB: Final = 400.0
_QUOTA_BYTES: Final = 64 * 1024 * 1024
_ORDINARY: Final = "ordinary"


def play_floods(stage: Stage) -> list[Figure]:
    """Play the scenario of the module.

    `seconds` is the time of each attack, `size` the number of attacks.
    """
    figures: list[Figure] = []
    attacks = {name: attack for name, attack in ATTACKS.items() if stage.kind in attack.stores}
    with directory_on_disk(stage.directory) as folder:
        clients = _Clients.of(folder)
        for name in list(attacks)[: stage.size or None]:
            stage.tell(f"{name}, for {stage.seconds or SECONDS:g} s")
            attack, grpc = attacks[name], KeptPort()
            settings = [f"{attack.port}={grpc.number}", *attack.settings]
            settings += [] if attack.port == "grpc_port" else ["grpc_port=off"]
            settings += clients.certified if attack.tls else []
            settings += clients.known if attack.token else []
            with store(stage.kind, stage.directory) as made, made.served(settings) as server:
                figures += play(_beside(stage, server, grpc.number, name, clients))
    return figures


class _Clients(msgspec.Struct, frozen=True):
    """The files that servers know their clients by, and the clients' side of them."""

    tokens: dict[str, str]
    """The token of each client, by its name."""
    known: list[str]
    """The settings of a server that knows them."""
    certified: list[str]
    """The settings of a server with a certificate."""
    tls: ssl.SSLContext
    """The context of its clients."""

    @classmethod
    def of(cls, folder: Path) -> _Clients:
        """Write the files that servers read."""
        tokens = folder / "tokens.toml"
        found = {
            _ORDINARY: added(tokens, _ORDINARY, ["produce"]),
            OWNER: added(tokens, OWNER, ["produce", "observe"]),
            BOUNDED: added(tokens, BOUNDED, ["produce"], f"--bytes-stored={_QUOTA_BYTES}"),
        }
        return cls(found, [f"tokens={tokens}"], *_certified(folder))


def _certified(folder: Path) -> tuple[list[str], ssl.SSLContext]:
    """Return the settings of a server with a certificate, and its clients' context."""
    authority, certificate, key = trustme.CA(), folder / "certificate.pem", folder / "key.pem"
    issued = authority.issue_cert("127.0.0.1")
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.touch(0o600)
    key.write_bytes(issued.private_key_pem.bytes())
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    return [f"tls_certificate={certificate}", f"tls_key={key}"], tls


async def _beside(stage: Stage, server: Started, grpc: int, name: str, clients: _Clients) -> list[Figure]:
    attack, port = ATTACKS[name], api(server.url).port
    path = f"/t/{clients.tokens[_ORDINARY]}{API_PATH}" if attack.token else ""
    token = [clients.tokens[attack.token]] if attack.token else []
    arguments = ("-m", "benchmarks.scenarios.flood", name, str(port), str(grpc), *token)
    attacker = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=REPOSITORY, stdout=PIPE)
    workload = Workload(Mode.SUBMIT, _CONNECTIONS, _RATE, seconds=stage.seconds or SECONDS, warmup_s=_WARMUP_S)
    memory = asyncio.ensure_future(highest_memory_mb(server.processes[0]))
    try:
        assert attacker.stdout is not None
        await attacker.stdout.readline()  # it begins
        run = await Run(api(server.url + path), workload, tls=clients.tls).measure(server.processes)
        assert attacker.returncode is None, "it attacks until it is ended"
    finally:
        if attacker.returncode is None:
            attacker.kill()
        await attacker.wait()
        memory.cancel()
    (highest_mb,) = await asyncio.gather(memory, return_exceptions=True)
    assert isinstance(highest_mb, float), "it ends only by being told to"
    submits = run.histograms.get("submit", Histogram())
    return [
        Figure(f"{name}: another client's submit, p50", submits.percentile_ms(50), "ms", _MIDDLE_MS),
        Figure(f"{name}: another client's submit, slowest", submits.percentile_ms(100), "ms", _SLOWEST_MS),
        Figure(f"{name}: another client's messages at their receiver", run.findings.delivered, "messages"),
        Figure(f"{name}: highest memory", highest_mb, "MB", _MEMORY_MB),
        Figure(
            f"{name}: another client's messages lost or refused",
            run.findings.lost + sum(run.findings.errors.values()),
            "messages",
            0,
        ),
    ]
