"""Every Java that a test of this folder starts finds its classes kept; the session they share is in `plugin`."""

from __future__ import annotations

from tests.spark import java_classes

java_classes.use()
