"""The shared store: one PostgreSQL database, several nodes, one function call and one commit a flush."""

from twophase.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
