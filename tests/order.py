"""The order of the tests: long ones begin first.

So no worker is left alone with one at the end of a run.
"""

import os

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal the tests marked `long` to the heads of the workers' first stretches.

    xdist's worksteal cuts the list into as many stretches as there are workers, and a worker begins at the head of its
    own; what is stolen is taken from a tail. Among the rest, and among the long ones, the order stays, which is the
    same in every worker.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("long") is not None]
    rest = [item for item in items if item.get_closest_marker("long") is None]
    dealt: list[pytest.Item] = []
    for worker in range(workers):
        size = (len(items) - len(dealt)) // (workers - worker)
        dealt += long[worker::workers]
        taken = max(0, size - len(long[worker::workers]))
        dealt += rest[:taken]
        rest = rest[taken:]
    items[:] = [*dealt, *rest]
