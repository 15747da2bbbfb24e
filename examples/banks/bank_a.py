"""Bank A, the producer: it debits an account, and bank B must credit one.

Both happen or neither.

    BANK_DATABASE=sqlite:///a.db COORDINATOR=http://127.0.0.1:36789 OWN_URL=http://127.0.0.1:8001 \\
    BANK_B=http://127.0.0.1:8002 python -m examples.banks.serve examples.banks.bank_a:app
"""

from __future__ import annotations

import os
import threading
import time

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy import event, select, update
from sqlalchemy.exc import IntegrityError

from examples.banks.schema import account, open_engine, transfer_out
from twophase import Client, RetryPolicy, TwophaseError
from twophase.integrations.fastapi import check_router

engine = open_engine(os.environ["BANK_DATABASE"])
coordinator = Client(os.environ["COORDINATOR"], retry=RetryPolicy(total=float(os.environ.get("PATIENCE_S", "10"))))
own_url = os.environ["OWN_URL"]
bank_b = os.environ["BANK_B"]
timeout_to_fail_s = int(os.environ.get("TIMEOUT_TO_FAIL_S", "2"))

_before_begin = threading.local()


@event.listens_for(engine, "engine_connect")
def _think(*_: object) -> None:
    """Wait once, if this thread has a time to wait.

    It waits when it takes a connection for its local transaction.
    """
    hold_s, _before_begin.hold_s = getattr(_before_begin, "hold_s", 0.0), 0.0
    time.sleep(hold_s)


app = FastAPI(title="Bank A")
app.include_router(check_router(engine))


class Transfer(BaseModel):
    """A wish to move money from A to B."""

    transfer_id: str
    amount: int = Field(gt=0)
    hold_s: float = 0.0
    """Keep the local transaction open that long, as if a person thinks before commit."""
    hold_before_begin_s: float = 0.0
    """Wait that long between prepare and the local transaction.

    The engine must have been used before.
    """


class NotEnoughMoneyError(Exception):
    """The account does not hold the amount."""


@app.post("/transfer")
def transfer(wish: Transfer) -> JSONResponse:
    """Debit account A and have bank B credit account B."""
    message = coordinator.message(check_after=timeout_to_fail_s)
    message.add(f"{bank_b}/transfer-in", {"transfer_id": wish.transfer_id, "amount": wish.amount})
    check = f"{own_url}/twophase/check"
    try:
        _before_begin.hold_s = wish.hold_before_begin_s
        with message.transaction(engine, check=check) as connection:
            debit = update(account).where(account.c.id == "A", account.c.balance >= wish.amount)
            if connection.execute(debit.values(balance=account.c.balance - wish.amount)).rowcount != 1:
                raise NotEnoughMoneyError
            connection.execute(
                transfer_out.insert().values(transfer_id=wish.transfer_id, gid=message.gid, amount=wish.amount)
            )
            time.sleep(wish.hold_s)
    except NotEnoughMoneyError:
        return JSONResponse({"outcome": "rolled_back", "gid": message.gid, "why": "not enough money"}, 409)
    except TwophaseError as error:
        outcome = error.fate.value.replace(" ", "_")
        return JSONResponse({"outcome": outcome, "gid": message.gid, "why": str(error)}, 409)
    except IntegrityError:
        return JSONResponse({"outcome": "rolled_back", "gid": message.gid, "why": "transfer_id exists"}, 409)
    return JSONResponse({"outcome": "committed", "gid": message.gid})


@app.get("/balance")
def balance() -> dict[str, int]:
    """Return the balance of account A."""
    with engine.connect() as connection:
        return {"A": connection.execute(select(account.c.balance)).scalar_one()}
