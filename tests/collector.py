"""The garbage collector, which does not walk the tests again and again.

A worker keeps every collected test, some 700,000 objects, until its end. A full collection would take a third of a
second for them each time, and they are never garbage.
"""

import atexit
import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what pytest collects out of every collection of garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        atexit.register(gc.unfreeze)  # at its end Python frees them as ever; libraries report what it does not free
        gc.enable()
