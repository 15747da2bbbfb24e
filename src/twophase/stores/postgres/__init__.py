"""The shared store: one PostgreSQL database and several nodes.

A flush is one function call and one commit.
"""

from twophase.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
