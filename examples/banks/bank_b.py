"""Bank B, the receiver: credits an account once, however often it is asked.

BANK_DATABASE=sqlite:///b.db python -m examples.banks.serve examples.banks.bank_b:app
"""

from __future__ import annotations

import os

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from sqlalchemy import Connection, select, update

from examples.banks.schema import account, ledger, open_engine
from twophase.integrations.fastapi import once

engine = open_engine(os.environ["BANK_DATABASE"])
app = FastAPI(title="Bank B")


class TransferIn(BaseModel):
    """The other half of a transfer."""

    transfer_id: str
    amount: int


@app.post("/transfer-in")
def transfer_in(body: TransferIn, request: Request) -> Response:
    """Credit account B, at most once for this branch of this message."""

    def credit(connection: Connection) -> None:
        connection.execute(update(account).where(account.c.id == "B").values(balance=account.c.balance + body.amount))
        connection.execute(
            ledger.insert().values(
                gid=request.query_params["gid"], branch_id=request.query_params["branch_id"], amount=body.amount
            )
        )

    return once(engine, request, credit)


@app.get("/balance")
def balance() -> dict[str, int]:
    """Return the balance of account B."""
    with engine.connect() as connection:
        return {"B": connection.execute(select(account.c.balance)).scalar_one()}
