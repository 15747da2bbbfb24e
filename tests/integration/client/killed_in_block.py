"""A producer that is killed inside its block, after the block committed by itself.

Arguments: the database's SQLAlchemy URL, the coordinator's URL, the check address, the branch's address, the gid.
"""

from __future__ import annotations

import os
import signal
import sys

from sqlalchemy import create_engine

from tests.integration.client.ledgers import TRANSFER
from twophase import Message


def main(database: str, coordinator: str, check: str, branch: str, gid: str) -> None:
    """Prepare an open message, commit inside its block, add a branch, die."""
    message = Message(coordinator, gid=gid, allow_late_branches=True).add(branch)
    with message.transaction(create_engine(database), check=check) as connection:
        connection.exec_driver_sql(TRANSFER)
        connection.exec_driver_sql("commit")
        message.add(branch + "/receipt")
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
