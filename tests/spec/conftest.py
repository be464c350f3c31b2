"""Adds each scenario's name to its test's report, for `scripts/spec.py` to count."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("scenario")
        if marker is not None:
            (name,) = marker.args
            item.user_properties.append(("scenario", str(name)))
