"""The memory of connections whose clients have gone."""

from __future__ import annotations

import asyncio
import gc
from asyncio.sslproto import SSLProtocol
from pathlib import Path

from tests.support.certificates import Certificates
from tests.support.rocketmq_port import serving
from tests.support.waiting import until
from twophase.server.tls import ServerTls

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


async def test_tls_keeps_nothing_for_a_client_that_has_gone(tmp_path: Path) -> None:
    """The collector comes seldom.

    Ten thousand short connections would have some 300 MB by then.
    """
    certificates = Certificates(tmp_path)
    tls = ServerTls(str(certificates.certificate), str(certificates.key))
    async with serving(tls=tls) as server:
        host, _, port = server.address.rpartition(":")
        gc.collect()
        before = len(_kept())
        gc.disable()
        try:
            for _ in range(3):
                reader, writer = await asyncio.open_connection(host, int(port), ssl=certificates.context())
                writer.write(GREETING)
                assert await reader.read(9)
                writer.close()
                await writer.wait_closed()
                del reader, writer
            await until(lambda: len(_kept()) <= before)
        finally:
            gc.enable()


def _kept() -> list[SSLProtocol]:
    """Return what the server's TLS keeps for connections."""
    kept = [one for one in gc.get_objects() if type(one) is SSLProtocol]  # not isinstance, which opens lazy objects
    return [one for one in kept if one._server_side]
