"""Each drill has a database of its own: the fleet's metrics are of a whole database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.databases import temporary_postgres
from tests.telemetry.runbook.drills import Drill


@pytest_asyncio.fixture
async def own_database() -> AsyncIterator[str]:
    """A new database with lango's tables."""
    async with temporary_postgres() as url:
        yield url


@pytest.fixture
def drill(tmp_path: Path, own_database: str) -> Drill:
    """A folder with the settings of a drill."""
    drill = Drill(tmp_path, own_database)
    drill.write()
    return drill
