"""The errors of twophase, as one flat tree under `TwophaseError`.

Each tells what happened, what became of the message (`fate`) and what to do next (`remedy`), and has a stable `code`.
`docs/reference/errors.md` lists them.

>>> from twophase.errors import RolledBack, TransactionError
>>> issubclass(RolledBack, TransactionError), RolledBack.code
(True, 'TP-5001')
"""

from twophase.core.errors import *  # noqa: F403 -- the tree is declared there
from twophase.core.errors import __all__  # noqa: F401 -- the names that the line above takes
