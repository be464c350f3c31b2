"""A SQLite file that is damaged: what the commands say."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lango.errors import StoreError
from lango.store.db.connection_errors import in_words
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import created, key


def damage(file: Path, table: str) -> None:
    """Overwrite the first pages of a table and of its indexes."""
    with closing(sqlite3.connect(file)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        where = "select rootpage from sqlite_master where tbl_name = ? and rootpage > 0"
        pages = [page for (page,) in connection.execute(where, (table,))]
    with file.open("r+b") as data:
        for page in pages:
            data.seek((page - 1) * size)
            data.write(b"\xff" * size)


async def test_a_prepared_statement_on_a_damaged_file_fails_in_words(sqlite_url: str) -> None:
    async with SqlSessionStore(sqlite_url) as store:
        await created(store, key("t"))
    damage(Path(sqlite_url.removeprefix("sqlite:///")), "sessions")
    with pytest.raises(StoreError, match="malformed"), in_words(sqlite_url):
        async with SqlSessionStore(sqlite_url) as store:
            await store.page("t", "a")
