"""A database in a SQLite file of the test's own."""

from collections.abc import AsyncIterator

import pytest

from lango.store.db.database import Database
from tests.store.db.sqlite.copies import Copies


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    database = Database(sqlite_url)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    return Copies(monkeypatch)
