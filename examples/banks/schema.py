"""The two banks' business tables, and the engine to reach them.

The ledger deliberately has no unique key on (gid, branch): were an effect ever applied twice, both rows would
stand there for the audit and the checker to find.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table, create_engine, event, select
from sqlalchemy.engine import make_url

metadata = MetaData()

account = Table(
    "account",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("balance", BigInteger, nullable=False),
)
transfer_out = Table(
    "transfer_out",
    metadata,
    Column("transfer_id", String(64), primary_key=True),
    Column("gid", String(128), nullable=False),
    Column("amount", BigInteger, nullable=False),
)
ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("gid", String(128), nullable=False),
    Column("branch_id", String(128), nullable=False),
    Column("amount", BigInteger, nullable=False),
)


def open_engine(url: str) -> Engine:
    """Return an engine whose commits are durable when they return."""
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url, pool_size=24, max_overflow=8, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": 5.0}, pool_size=24, max_overflow=8)

    @event.listens_for(engine, "connect")
    def configure(connection: object, _: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]
        cursor.execute("pragma journal_mode=wal")
        cursor.execute("pragma synchronous=full")
        cursor.close()

    return engine


def open_bank(engine: Engine, name: str, balance: int) -> None:
    """Create the tables, and one account with `balance` unless it exists."""
    metadata.create_all(engine)
    with engine.begin() as connection:
        if connection.execute(select(account.c.id).where(account.c.id == name)).first() is None:
            connection.execute(account.insert().values(id=name, balance=balance))
