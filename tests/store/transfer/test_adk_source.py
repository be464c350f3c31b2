"""Recognising what ADK wrote, refusing the rest, and changing nothing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from google.adk.events.event import Event
from google.adk.sessions.schemas import v0
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from lango.errors import ImportSourceError, LangoError, StoreUnavailableError
from lango.store.transfer.adk_source import AdkSource
from tests.store.rows import execute
from tests.store.transfer.adk_databases import (
    APP,
    BUSY,
    KINDS,
    USER,
    Kind,
    adk_service,
    empty_database,
)


async def refusal(url: str) -> LangoError:
    with pytest.raises(LangoError) as caught:
        async with AdkSource(url):
            pass
    assert "\n" not in str(caught.value)
    return caught.value


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
async def test_events_come_in_the_order_of_adk(kind: Kind, tmp_path: Path) -> None:
    """Many at the same moment: by id in a database, by insertion in ADK's SQLite file."""
    async with empty_database(kind, tmp_path) as url:
        async with adk_service(url) as service:
            session = await service.create_session(app_name=APP, user_id=USER, session_id=BUSY)
            for number in range(30):
                event = Event(author="a", invocation_id=f"e{number}", timestamp=1.7e9 + number // 9)
                await service.append_event(session, event)
        async with adk_service(url) as service:
            loaded = await service.get_session(app_name=APP, user_id=USER, session_id=BUSY)
        async with AdkSource(url) as source:
            (found,) = [one async for one in source.sessions()]
            batches = [batch async for batch in source.event_batches(found)]
    assert loaded is not None
    assert [event["id"] for batch in batches for event in batch] == [e.id for e in loaded.events]
    assert [Event.model_validate(event) for event in batches[0]] == loaded.events


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
async def test_the_pickle_format_is_refused(kind: Kind, tmp_path: Path) -> None:
    async with empty_database(kind, tmp_path) as url:
        driver = {"postgresql": "postgresql+asyncpg", "sqlite": "sqlite+aiosqlite"}[kind]
        engine = create_async_engine(make_url(url).set(drivername=driver))
        async with engine.begin() as connection:
            await connection.run_sync(v0.Base.metadata.create_all)
        await engine.dispose()
        message = str(await refusal(url))
    assert "pickle" in message
    assert "adk migrate session --source_db_url=" in message


def test_adk_has_the_command_that_the_refusal_names() -> None:
    adk = Path(sys.executable).with_name("adk")
    output = subprocess.run(
        [adk, "migrate", "session", "--help"], capture_output=True, check=True, text=True
    )
    assert "--source_db_url" in output.stdout
    assert "--dest_db_url" in output.stdout


async def test_a_password_is_not_repeated() -> None:
    source = AdkSource("postgresql+psycopg2://ann:s3cret@127.0.0.1:1/adk")
    with pytest.raises(StoreUnavailableError) as caught:
        await source.open()
    assert "127.0.0.1:1/adk" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_other_databases_are_refused(sqlite_url: str, tmp_path: Path) -> None:
    assert "lango database already" in str(await refusal(sqlite_url))
    assert "no file" in str(await refusal(f"sqlite:///{tmp_path / 'typo.db'}"))
    assert not (tmp_path / "typo.db").exists()
    assert "mysql" in str(await refusal("mysql://localhost/adk"))
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    await execute(empty, "create table notes (text text)")
    assert "no table sessions" in str(await refusal(empty))
    (tmp_path / "text.db").write_text("not a database at all")
    assert "not a database" in str(await refusal(str(tmp_path / "text.db")))


async def test_a_newer_schema_of_adk_is_refused(tmp_path: Path) -> None:
    async with empty_database("sqlite", tmp_path) as url:
        async with adk_service(url) as service:
            await service.create_session(app_name=APP, user_id=USER)
        await execute(url, "update adk_internal_metadata set value = '2'")
        error = await refusal(url)
    assert isinstance(error, ImportSourceError)
    assert "schema 2" in str(error)


async def test_tables_that_only_have_the_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        for table in ("sessions", "events", "app_states", "user_states"):
            connection.execute(f"create table {table} (id integer)")
    connection.close()
    assert "is not ADK's" in str(await refusal(str(path)))


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_reading_changes_nothing(kind: Kind, tmp_path: Path) -> None:
    async with empty_database(kind, tmp_path) as url:
        async with adk_service(url) as service:
            await service.create_session(app_name=APP, user_id=USER)
        before = contents(tmp_path)
        async with AdkSource(url) as source:
            assert await source.count() == (1, 0)
        assert contents(tmp_path) == before
