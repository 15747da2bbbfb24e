"""Processes are found by the kernel's accounts: ports, connections, children."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from benchmarks.servers.ports import KeptPort
from benchmarks.servers.processes import OWN_NAME, Meter, Process, connected_to, listening, tree
from benchmarks.servers.setups import set_up


def test_a_server_is_found_by_its_port() -> None:
    kept = KeptPort()  # no other program listens there afterwards
    with socket.create_server(("127.0.0.1", kept.number)):
        assert listening(kept.number) == os.getpid()

    assert listening(kept.number) is None
    kept.release()


@pytest.mark.postgres
def test_a_server_on_postgres_leads_to_its_database() -> None:
    with set_up("postgres") as started:
        server, database = started.processes
        port = int(started.url.rpartition(":")[2])

        assert listening(port) == server.pid
        assert connected_to(server.pid) == [database.pid]
        assert len(list(tree(database.pid))) > 3


def test_children_are_accounted_even_after_their_end() -> None:
    child = "import time\nwhile time.process_time() < 0.1: pass"
    busy = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        own, other = Meter([Process("parent", parent.pid)]).read()
        parent.communicate("\n")

    assert (own.name, other.name) == (OWN_NAME, "parent")
    assert other.cpu_s >= 0.09
    assert other.memory_bytes > 1_000_000


def test_a_process_that_is_gone_is_left_out() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert [reading.name for reading in Meter([Process("gone", ended.pid)]).read()] == [OWN_NAME]
