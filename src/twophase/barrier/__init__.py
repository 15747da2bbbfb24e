"""The rows in the business database that decide a message.

They also keep a branch from taking effect twice.

barrier.install(url)                              once per database
barrier.check_back(engine, gid)                   what a check-back route answers with
barrier.once(engine, request, function)           a branch that takes effect at most once
barrier.require_signature(keys, method, …)        refuses a call that the coordinator has not signed
barrier.clean(engine, …)                          removes rows that are no longer needed
barrier.metadata()                                the tables, for SQLAlchemy's and Alembic's use
barrier.install_within(connection)                `install` inside a migration's transaction

With an a in front, the functions take async engines; cleaning has no such form, and takes a blocking engine.
"""

from twophase.barrier.asking import CheckBackAnswer, acheck_back, check_back
from twophase.barrier.branch import BranchOngoing, BranchRefused, aonce, once
from twophase.barrier.cleaning import Cleaned, clean
from twophase.barrier.installing import ainstall, install
from twophase.barrier.migrating import install_within, metadata
from twophase.barrier.signing import require_signature, sign_verdict

__all__ = [
    "BranchOngoing",
    "BranchRefused",
    "CheckBackAnswer",
    "Cleaned",
    "acheck_back",
    "ainstall",
    "aonce",
    "check_back",
    "clean",
    "install",
    "install_within",
    "metadata",
    "once",
    "require_signature",
    "sign_verdict",
]
