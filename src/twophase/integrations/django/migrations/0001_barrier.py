"""Install the barrier in every database that is migrated.

A database router may select the databases. Going back leaves the tables: they hold decisions, and an unused barrier
does no harm.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations

from twophase.barrier.migrating import install_within


def install(_apps: Any, schema_editor: Any) -> None:
    """Create the tables, or complete those that are there."""
    install_within(schema_editor.connection)


class Migration(migrations.Migration):
    """The first and only one."""

    initial = True
    dependencies = ()
    operations = (migrations.RunPython(install, migrations.RunPython.noop),)
