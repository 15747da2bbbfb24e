"""The Django app: a real project's `migrate`, `makemigrations` and test run.

They create the barrier tables, or leave them alone.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy

from tests.integration.barrier.conftest import empty_bank
from tests.support.business_databases import new_gid
from twophase.barrier import check_back, install
from twophase.core.verdict import Verdict

_SETTINGS = """
SECRET_KEY = "only for tests"
INSTALLED_APPS = ["shop", "twophase.integrations.django"]
DATABASES = {database}
USE_TZ = True
"""
_TESTS = """
from django.db import connection
from django.test import TestCase, TransactionTestCase
from twophase.barrier import check_back


class Barrier(TransactionTestCase):
    def test_a_first_check_back_is_answered(self):
        self.assertEqual(check_back("default", "gid-1").verdict.name, "ROLLED_BACK")

    def test_a_second_check_back_is_answered(self):
        self.assertEqual(check_back("default", "gid-2").verdict.name, "ROLLED_BACK")
"""


class Project:
    """A project with one app of its own and twophase's."""

    def __init__(self, folder: Path, database: Mapping[str, object]) -> None:
        (folder / "shop").mkdir(parents=True)
        (folder / "shop" / "__init__.py").touch()
        (folder / "shop" / "tests.py").write_text(_TESTS)
        (folder / "shop_settings.py").write_text(_SETTINGS.format(database=repr({"default": database})))
        self.folder = folder

    def manage(self, *command: str) -> str:
        """Run `manage.py …` and return what it printed."""
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "shop_settings", "PYTHONPATH": str(self.folder)}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "django", *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def _on_sqlite(folder: Path) -> tuple[Project, Path]:
    file = folder / "shop.db"
    return Project(folder / "project", {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}), file


def test_migrate_installs_the_barrier_once(tmp_path: Path) -> None:
    project, file = _on_sqlite(tmp_path)
    assert "Applying twophase.0001_barrier... OK" in project.manage("migrate")
    with closing(sqlite3.connect(file)) as bank:
        assert install(bank) == []
        assert check_back(bank, new_gid()).verdict is Verdict.ROLLED_BACK
    assert "No migrations to apply" in project.manage("migrate")


def test_migrate_keeps_an_installed_barrier_and_its_rows(tmp_path: Path) -> None:
    project, file = _on_sqlite(tmp_path)
    with closing(sqlite3.connect(file)) as bank:
        install(bank)
        check_back(bank, "barred-before")
        before = bank.execute("select * from twophase_meta").fetchall()
        project.manage("migrate")
        project.manage("migrate", "twophase", "zero")
        assert bank.execute("select gid from barrier").fetchall() == [("barred-before",)]
        assert bank.execute("select * from twophase_meta").fetchall() == before


def test_makemigrations_finds_nothing_to_change(tmp_path: Path) -> None:
    project, _ = _on_sqlite(tmp_path)
    project.manage("migrate")
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")


def test_a_test_database_has_the_barrier_in_each_test(tmp_path: Path) -> None:
    project, _ = _on_sqlite(tmp_path)
    assert "Ran 2 tests" in project.manage("test", "shop")


@pytest.mark.postgres
def test_migrate_installs_the_barrier_on_postgresql(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    for bank in empty_bank(request, "postgresql", tmp_path):
        url = sqlalchemy.make_url(bank.url("psycopg"))
        account = {"NAME": url.database, "USER": url.username, "PASSWORD": url.password}
        database = {"ENGINE": "django.db.backends.postgresql", "HOST": url.host, "PORT": url.port, **account}
        assert "Applying twophase.0001_barrier... OK" in Project(tmp_path / "project", database).manage("migrate")
        with bank.engine() as engine:
            assert install(engine) == []
            assert check_back(engine, new_gid()).verdict is Verdict.ROLLED_BACK
