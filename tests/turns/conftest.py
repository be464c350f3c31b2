"""A place for each test."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from faults.turns.place import Place, Process, process


@pytest.fixture
def place(store_url: str, tmp_path: Path) -> Place:
    """Either database in turn; the app is this test's own, so are its turns."""
    return Place(store_url, f"app_{uuid.uuid4().hex}", tmp_path)


@pytest_asyncio.fixture
async def here(place: Place) -> AsyncIterator[Process]:
    """This process, with the dead time of a test."""
    async with process(place, dead_after=1.5) as opened:
        yield opened
