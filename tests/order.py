"""Long tests are begun first, so that no worker is left alone with one at the end of a run."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put those marked `long` in front; each half keeps its order, which every worker finds alike."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
