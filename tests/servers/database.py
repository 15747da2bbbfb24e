"""The addresses of a test's databases: plain values that travel between processes."""

from __future__ import annotations

import msgspec


class Address(msgspec.Struct, frozen=True):
    """A running server."""

    kind: str
    host: str
    port: int
    user: str
    password: str
    own_database: str
    directory: str
    guardian_pid: int


class Database(msgspec.Struct, frozen=True):
    """One database of a running server."""

    address: Address
    name: str

    @property
    def host(self) -> str:
        """Return the address of the server's machine: this one."""
        return self.address.host

    @property
    def port(self) -> int:
        """Return the TCP port."""
        return self.address.port

    @property
    def user(self) -> str:
        """Return a user with every right."""
        return self.address.user

    @property
    def password(self) -> str:
        """Return that user's password."""
        return self.address.password

    def sqlalchemy_url(self, driver: str) -> str:
        """Return the URL for SQLAlchemy.

        Arguments:
            driver: `psycopg` or `asyncpg` for PostgreSQL; `pymysql` or `asyncmy` for MariaDB.

        >>> address = Address("postgresql", "127.0.0.1", 5433, "me", "pw", "postgres", "/tmp/x", 1)
        >>> Database(address, "bank").sqlalchemy_url("psycopg")
        'postgresql+psycopg://me:pw@127.0.0.1:5433/bank'
        """
        dialect = "postgresql" if self.address.kind == "postgresql" else "mysql"
        return f"{dialect}+{driver}://{self.user}:{self.password}@{self.host}:{self.port}/{self.name}"

    @property
    def dsn(self) -> str:
        """Return the URL without a driver, as psycopg and asyncpg take it."""
        dialect = "postgresql" if self.address.kind == "postgresql" else "mysql"
        return f"{dialect}://{self.user}:{self.password}@{self.host}:{self.port}/{self.name}"
