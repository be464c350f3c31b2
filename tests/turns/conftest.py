"""A workspace for each test."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from faults.turns.workspace import TurnProcess, Workspace, turn_process


@pytest.fixture
def workspace(store_url: str, tmp_path: Path) -> Workspace:
    """Either database in turn; the app is this test's own, so are its turns."""
    return Workspace(store_url, f"app_{uuid.uuid4().hex}", tmp_path)


@pytest_asyncio.fixture
async def process(workspace: Workspace) -> AsyncIterator[TurnProcess]:
    """This process, with the dead time of a test."""
    async with turn_process(workspace, dead_after=1.5) as opened:
        yield opened
