"""The public conformance tests of HTTP/2, run against the port."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.clients.go_program import CannotBuild
from tests.integration.grpc_server.h2spec_program import program
from tests.integration.grpc_server.served import serving
from tests.servers.missing import not_tested

# Both set the header table to 4 096 bytes, which the port's SETTINGS_HEADER_TABLE_SIZE of 0 forbids: RFC 7541, 6.3,
# demands that it refuses this, and so does another of these tests ("larger than the value of
# SETTINGS_HEADER_TABLE_SIZE").
NOT_FOR_US = {"Sends a dynamic table size update", "Sends multiple dynamic table size update"}
TESTS_LEAST = 140


@pytest.mark.parametrize("path", ["/", "/s/Echo"])
async def test_the_public_conformance_tests_pass(tmp_path: Path, path: str) -> None:
    try:
        h2spec = await asyncio.to_thread(program)
    except CannotBuild as error:
        not_tested("HTTP/2 conformance (h2spec)", str(error))
    report = tmp_path / "report.xml"
    async with serving() as served:
        host, _, port = served.address.partition(":")
        command = [h2spec, "-h", host, "-p", port, "-P", path, "-o", "20", "-j", report, "generic", "http2", "hpack"]
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(60):
            said, _ = await process.communicate()
        assert served.crashes == []
    cases = [case for case in ET.parse(report).iter("testcase") if case.find("skipped") is None]
    failed = {case.get("classname", "") for case in cases if len(case)}
    assert len(cases) >= TESTS_LEAST
    assert failed == NOT_FOR_US, said.decode()
