"""Every Java that a test of this folder starts maps the kept classes.

The session that the tests share is in `plugin`.
"""

from __future__ import annotations

from tests.spark import home, java_classes

java_classes.use()
home.use()
