"""The parts of every error: a stable code, the fate of the message, and a remedy."""

from __future__ import annotations

import enum
from typing import ClassVar


class Fate(enum.Enum):
    """The meaning of an error for the message that it names."""

    UNCHANGED = "unchanged"
    """No message was changed by this request."""
    NOT_STARTED = "not started"
    """The local transaction did not run; it delivers nothing."""
    ROLLED_BACK = "rolled back"
    """The local transaction is rolled back for ever; no branch will be called."""
    COMMITTED = "committed"
    """The local transaction is committed; the branches are or will be called."""
    UNDECIDED = "undecided"
    """Not known yet; the check-back decides.

    Do not repeat the operation under a new gid.
    """
    CONTRADICTED = "contradicted"
    """One side committed, the other failed.

    A rule was broken, and a person must look.
    """


class TwophaseError(Exception):
    """Something went wrong in twophase."""

    code: ClassVar[str] = "TP-0000"
    fate: Fate = Fate.UNCHANGED
    concerns_a_message: ClassVar[bool] = True
    """False: there is no message that could have a fate, as with a setting."""
    remedy: str = "Read the message; report it if it does not say what to do."

    gid: str | None

    def __init_subclass__(cls) -> None:
        """Give the class the module that users import it from, also in a traceback."""
        if cls.__module__.startswith(f"{__package__}."):
            cls.__module__ = str(__package__)

    def __init__(self, message: str | None = None, *, gid: str | None = None, remedy: str | None = None) -> None:
        """Make the error.

        Arguments:
            message: what happened, naming field and limit where there is one; the class docstring by default.
            gid: the message concerned, when there is one.
            remedy: what to do, where it is more exact than the class' own.
        """
        self.message = message or (type(self).__doc__ or type(self).__name__).strip().split("\n", 1)[0]
        self.gid = gid
        if remedy is not None:
            self.remedy = remedy
        super().__init__(self.message)

    def __str__(self) -> str:
        about = f" gid={self.gid!r}." if self.gid is not None else ""
        fate = f" Fate: {self.fate.value}." if self.concerns_a_message or self.gid is not None else ""
        return f"{self.code}: {self.message}{about}{fate} {self.remedy}"


TwophaseError.__module__ = str(__package__)
