"""The rows in the business database that decide a message, and that keep a branch from taking effect twice.

barrier.install(url)                              once per database
barrier.check_back(engine, gid)                   what a check-back route answers with
barrier.once(engine, request, function)           a branch that takes effect at most once
"""

from twophase.barrier.branch import BranchOngoing, BranchRefused, aonce, once
from twophase.barrier.check_back import CheckBackAnswer, acheck_back, check_back
from twophase.barrier.install import ainstall, install

__all__ = [
    "BranchOngoing",
    "BranchRefused",
    "CheckBackAnswer",
    "acheck_back",
    "ainstall",
    "aonce",
    "check_back",
    "install",
    "once",
]
