"""A Django project around the page's `shop` app.

It sends one order, the check-back's question about it, and its branch twice.

python -m tests.docs.django_project DATABASE COORDINATOR        with the folder of `shop` on PYTHONPATH
"""

from __future__ import annotations

import sys
import types
from typing import Any
from urllib.parse import urlencode

import django


def _configure(database: str, coordinator: str) -> None:
    from django.conf import settings

    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database, "ATOMIC_REQUESTS": True}},
        INSTALLED_APPS=["shop"],
        MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
        ROOT_URLCONF="shop.urls",
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="only for tests",
        COORDINATOR=coordinator,
        STOCK_URL="http://stock",
        OWN_URL="http://shop",
    )
    django.setup()


def _define_models() -> None:
    """Define `shop.models`, on the tables that exist."""
    from django.db import models

    class Order(models.Model):
        rowid: Any = models.AutoField(primary_key=True)
        article: Any = models.IntegerField()
        pieces: Any = models.IntegerField()

        class Meta:
            app_label, db_table, managed = "shop", "orders", False

    class Stock(models.Model):
        article: Any = models.IntegerField(primary_key=True)
        free: Any = models.IntegerField()

        class Meta:
            app_label, db_table, managed = "shop", "stock", False

    class Backorder(models.Model):
        rowid: Any = models.AutoField(primary_key=True)
        article: Any = models.IntegerField()
        pieces: Any = models.IntegerField()

        class Meta:
            app_label, db_table, managed = "shop", "backorders", False

    module = types.ModuleType("shop.models")
    module.__dict__.update(Order=Order, Stock=Stock, Backorder=Backorder)
    sys.modules["shop.models"] = module


def main() -> None:
    """Print the statuses and the verdict."""
    _configure(*sys.argv[1:])
    _define_models()
    from django.db import connection
    from django.test import Client

    ordered = Client().post("/orders", {"article": 7, "pieces": 2})
    with connection.cursor() as cursor:
        cursor.execute("select value from twophase_meta where name = 'identity'")
        identity = cursor.fetchone()[0]
    question = {"gid": ordered.json()["gid"], "trans_type": "msg", "branch_id": "00", "op": "msg", "barrier": identity}
    checked = Client().get("/twophase/check", question)
    call = urlencode({"gid": "g1", "branch_id": "01", "op": "action", "trans_type": "msg"})
    coordinator = Client(enforce_csrf_checks=True)
    calls = [
        coordinator.post(f"/reserve?{call}", {"article": 7, "pieces": 2}, content_type="application/json")
        for _ in range(2)
    ]
    print(ordered.status_code, checked.headers["x-twophase-verdict"], *(one.status_code for one in calls))


if __name__ == "__main__":
    main()
