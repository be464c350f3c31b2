"""Saving artifacts: once, also if the reply to a COMMIT is lost."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.db.database import Database
from lango.store.files.artifacts import SqlArtifactStore
from lango.store.files.rows import NewArtifact
from lango.store.sessions.entries import SessionKey
from lango.store.turns.claimed_writes import ClaimedWrites
from tests.store.rows import key
from tests.store.turns.turn_stores import opened

NEW = NewArtifact("notes.txt", b"a", {"text": "a"})


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Errors that stand for lost replies: each is raised once, after a transaction's COMMIT."""
    errors, begin = list[Exception](), Database.begin

    @asynccontextmanager
    async def losing(
        self: Database, session: SessionKey | None = None, **options: Any
    ) -> AsyncGenerator[AsyncConnection]:
        async with begin(self, session, **options) as connection:
            yield connection
        if errors:
            raise errors.pop()

    monkeypatch.setattr(Database, "begin", losing)
    return errors


async def test_a_save_whose_reply_is_lost_is_one_version(
    lost: list[Exception], store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        artifacts = SqlArtifactStore(stores.sessions.database)
        lost.append(ConnectionResetError())
        assert await artifacts.save(key(tenant), NEW) == 0
        assert lost == []
        assert await artifacts.save(key(tenant), NEW) == 1


async def test_a_save_of_a_claimed_turn_outside_of_tools_likewise(
    lost: list[Exception], store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.submit(key(tenant))
        writes = ClaimedWrites(
            stores.sessions.database, await stores.claim(ref.pk, await stores.worker())
        )
        lost.append(ConnectionResetError())
        assert await writes.save_artifact(key(tenant), NEW) == 0
        assert lost == []
        assert await writes.save_artifact(key(tenant), NEW) == 1
