"""The Django app whose migration installs the barrier."""

from __future__ import annotations

from django.apps import AppConfig


class TwophaseConfig(AppConfig):
    """The app of `INSTALLED_APPS = ["twophase.integrations.django"]`.

    It has a migration, and neither models nor signals.
    """

    name = "twophase.integrations.django"
    label = "twophase"
    verbose_name = "twophase"
