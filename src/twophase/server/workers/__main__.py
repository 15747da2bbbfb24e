"""`python -m twophase.server.workers`: one worker, started by its supervisor."""

from __future__ import annotations

import sys

from twophase.core.printable import drop_output
from twophase.server.app import run
from twophase.server.workers.assignment import read_assignment

if __name__ == "__main__":
    assignment = read_assignment()
    code = run(assignment.settings, assignment)
    drop_output()
    sys.exit(code)
