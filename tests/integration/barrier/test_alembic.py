"""Alembic beside a barrier: real revisions of a real project, on each database."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import alembic.command
import alembic.config
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.docs.pages import ROOT, examples
from tests.integration.barrier.conftest import MARKS, empty_bank
from tests.support.business_databases import SYNC_DRIVERS, SYNC_WAYS, Bank, new_gid
from twophase.barrier import check_back, install, metadata
from twophase.core.verdict import Verdict
from twophase.integrations.alembic import include_object

_ENV = """{configure}
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, pool

orders = MetaData()
Table("orders", orders, Column("id", Integer, primary_key=True))
url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url, poolclass=pool.NullPool).connect() as connection:
        configure(connection, orders)
        with context.begin_transaction():
            context.run_migrations()
"""
_PAGE = examples(ROOT / "docs" / "how-to" / "migrate-with-alembic-or-django.md")
_INSTALLING = _PAGE["revision"].replace('"0001"', "None")
_TEMPLATE = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = ${repr(up_revision)}, ${repr(down_revision)}
def upgrade():
    ${upgrades or "pass"}
"""


@pytest.fixture(params=[pytest.param(kind, marks=MARKS[kind]) for kind in SYNC_WAYS])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    """Each database, without any table."""
    yield from empty_bank(request, request.param, tmp_path)


class Project:
    """An Alembic project whose only model is `orders`."""

    def __init__(self, folder: Path, bank: Bank) -> None:
        (folder / "versions").mkdir(parents=True)
        (folder / "env.py").write_text(_ENV.format(configure=_PAGE["env"]))
        (folder / "script.py.mako").write_text(_TEMPLATE)
        self.folder = folder
        self.written = io.StringIO()
        self.config = alembic.config.Config(output_buffer=self.written, stdout=io.StringIO())
        self.config.set_main_option("script_location", str(folder))
        self.config.set_main_option("path_separator", "os")
        self.config.set_main_option("sqlalchemy.url", bank.url(SYNC_DRIVERS[bank.kind]))

    def add(self, revision: str) -> None:
        """Write a revision by hand."""
        (self.folder / "versions" / "installing.py").write_text(revision)

    def upgrade(self, *, offline: bool = False) -> None:
        """Run `alembic upgrade head`, or with `--sql`."""
        alembic.command.upgrade(self.config, "head", sql=offline)

    def autogenerate(self) -> str:
        """Return the text of the revision that `alembic revision --autogenerate` writes."""
        made = alembic.command.revision(self.config, autogenerate=True)
        script: Any = made[0] if isinstance(made, list) else made
        module: ModuleType = ScriptDirectory.from_config(self.config).get_revision(script.revision).module
        assert module.__file__ is not None
        return Path(module.__file__).read_text()


def works(bank: Bank) -> bool:
    """Return True when a check-back finds both tables and the identity."""
    with bank.engine() as engine:
        identity = bank.query("select value from twophase_meta where name = 'identity'")[0][0]
        return check_back(engine, new_gid(), identity=identity).verdict is Verdict.ROLLED_BACK


def test_autogenerate_leaves_an_installed_barrier_alone(empty: Bank, tmp_path: Path) -> None:
    with empty.engine() as engine:
        install(engine)
    revision = Project(tmp_path / "alembic", empty).autogenerate()
    assert "create_table('orders'" in revision
    assert "drop" not in revision
    assert "barrier" not in revision


def test_a_revision_installs_the_barrier(empty: Bank, tmp_path: Path) -> None:
    project = Project(tmp_path / "alembic", empty)
    project.add(_INSTALLING)
    project.upgrade()
    assert works(empty)


def test_an_offline_revision_writes_the_statements(empty: Bank, tmp_path: Path) -> None:
    project = Project(tmp_path / "alembic", empty)
    project.add(_INSTALLING)
    project.upgrade(offline=True)
    script = "\n".join(line for line in project.written.getvalue().splitlines() if not line.startswith("--"))
    for statement in script.split(";\n"):
        if statement.strip() and statement.strip().lower() not in ("begin", "commit"):
            empty.query(statement)
    assert works(empty)


def differences(bank: Bank, target: sqlalchemy.MetaData) -> list[Any]:
    """Return the operations by which Alembic would bring the database to `target`."""
    with bank.engine() as engine, engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": False}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), target))


def test_the_metadata_describe_what_install_makes(empty: Bank) -> None:
    with empty.engine() as engine:
        install(engine)
    assert differences(empty, metadata()) == []


def test_create_all_makes_what_install_makes(empty: Bank) -> None:
    with empty.engine() as engine:
        exec(_PAGE["create-all"], {"engine": engine})
        assert install(engine) == []
        made = _columns(engine)
        metadata().drop_all(engine)
        install(engine)
        assert _columns(engine) == made
    assert works(empty)


def test_create_all_keeps_the_identity_of_an_installed_barrier(empty: Bank) -> None:
    with empty.engine() as engine:
        install(engine)
        before = empty.query("select * from twophase_meta")
        metadata().create_all(engine)
    assert empty.query("select * from twophase_meta") == before


def _columns(engine: sqlalchemy.Engine) -> dict[str, Any]:
    reflected = sqlalchemy.inspect(engine)
    return {
        table: (
            # On SQLite the id is reported as nullable, which a primary key of integers never is.
            [
                (at["name"], str(at["type"]), at["nullable"] and at["name"] != "id")
                for at in reflected.get_columns(table)
            ],
            [(key["name"], key["column_names"]) for key in reflected.get_unique_constraints(table)],
            reflected.get_pk_constraint(table)["constrained_columns"],
        )
        for table in ("barrier", "twophase_meta")
    }


def test_described_barrier_tables_are_compared_and_others_are_hidden() -> None:
    described = metadata().tables["barrier"]
    assert include_object(described, "barrier", "table", True, described)
    assert not include_object(described, "barrier", "table", True, None)


def test_barrier_tables_of_other_names_are_hidden_when_named() -> None:
    assert include_object(None, "orders_barrier", "table", True, None)
    assert not include_object(None, "orders_barrier", "table", True, None, tables=("orders_barrier",))
