"""Where a test's database is reached; plain values that travel between processes."""

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
        """Address of the server's machine: this one."""
        return self.address.host

    @property
    def port(self) -> int:
        """TCP port."""
        return self.address.port

    @property
    def user(self) -> str:
        """A user who may do everything."""
        return self.address.user

    @property
    def password(self) -> str:
        """That user's password."""
        return self.address.password

    def sqlalchemy_url(self, driver: str) -> str:
        """The URL for SQLAlchemy.

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
        """The URL without a driver, as psycopg and asyncpg take it."""
        dialect = "postgresql" if self.address.kind == "postgresql" else "mysql"
        return f"{dialect}://{self.user}:{self.password}@{self.host}:{self.port}/{self.name}"
