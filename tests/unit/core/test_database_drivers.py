"""Drivers: twophase's where a URL names none.

An error always names the distribution to install.
"""

from __future__ import annotations

import pytest

from twophase.core.database_drivers import DRIVERS, EXTRAS, driver_missing, extra_of, with_driver


@pytest.mark.parametrize(
    ("scheme", "known"),
    [
        ("postgresql", "postgresql+psycopg"),
        ("postgres", "postgresql+psycopg"),
        ("mysql", "mysql+pymysql"),
        ("mariadb", "mariadb+pymysql"),
        ("postgresql+asyncpg", "postgresql+asyncpg"),
        ("sqlite", "sqlite"),
    ],
)
def test_a_scheme_gets_our_driver_unless_it_names_one(scheme: str, known: str) -> None:
    assert with_driver(scheme) == known


def test_every_database_with_a_driver_has_an_extra() -> None:
    assert DRIVERS.keys() <= EXTRAS.keys()
    assert (extra_of("mysql+asyncmy"), extra_of("oracle")) == ("mysql", None)


def test_a_missing_driver_names_package_and_extra() -> None:
    told = str(driver_missing(ModuleNotFoundError(name="pymysql"), "mysql"))
    assert "'pymysql' is missing" in told
    assert "pip install 'twophase[mysql]'" in told


@pytest.mark.parametrize(
    ("module", "scheme", "package"),
    [
        ("aiomysql", "mysql+aiomysql", "aiomysql"),
        ("MySQLdb", "mysql+mysqldb", "mysqlclient"),
        ("mysql.connector", "mysql+mysqlconnector", "mysql-connector-python"),
        ("psycopg2", "postgresql+psycopg2", "psycopg2-binary"),
        ("asyncpg", "postgresql+asyncpg", "'twophase[postgres]'"),
    ],
)
def test_the_named_installation_brings_the_missing_module(module: str, scheme: str, package: str) -> None:
    error = driver_missing(ModuleNotFoundError(name=module), scheme)
    assert error.remedy == f"Run `pip install {package}`."
