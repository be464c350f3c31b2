"""`lango db import-adk`, from the shell's side."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.adk.events.event import Event
from google.adk.sessions.schemas import v0
from sqlalchemy import create_engine

from lango.adk.sessions.service import SessionServiceAdapter
from tests.cli.running import run
from tests.store.rows import execute
from tests.store.transfer.adk_databases import APP, BUSY, USER, adk_service, empty_database


async def fill(url: str) -> None:
    async with adk_service(url) as service:
        session = await service.create_session(
            app_name=APP, user_id=USER, session_id=BUSY, state={"app:currency": "EUR"}
        )
        for text in ("hello", "again"):
            await service.append_event(session, Event(author="user", output=text))


@pytest.fixture
def source(tmp_path: Path) -> str:
    """ADK's SQLite file with one session, by its path."""
    path = str(tmp_path / "adk.db")
    asyncio.run(fill(path))
    return path


def test_it_copies_and_reports(source: str, store_url: str, tenant: str) -> None:
    done = run("db", "import-adk", source, "--url", store_url, "--tenant", tenant)
    assert done.code == 0, done
    assert "sessions  1 (1 new)" in done.out
    assert "events    2 (2 added)" in done.out
    assert "Verified: every session has the same events, order and state" in done.out
    again = run("db", "import-adk", source, "--url", store_url, "--tenant", tenant)
    assert "sessions  1 (0 new)" in again.out

    async def outputs() -> list[object]:
        async with SessionServiceAdapter(store_url, tenant=tenant) as service:
            session = await service.get_session(app_name=APP, user_id=USER, session_id=BUSY)
            assert session is not None
            assert session.state == {"app:currency": "EUR"}
            return [event.output for event in session.events]

    assert asyncio.run(outputs()) == ["hello", "again"]


def test_both_in_one_postgresql_database(tmp_path: Path) -> None:
    """ADK's tables stay where they are, ours are in a schema of their own."""

    async def both() -> None:
        async with empty_database("postgresql", tmp_path) as url:
            await fill(url)
            store_options = ("--url", url, "--schema", "lango")
            assert (await asyncio.to_thread(run, "db", "upgrade", *store_options)).code == 0
            done = await asyncio.to_thread(run, "db", "import-adk", url, *store_options)
            assert done.code == 0, done
            assert "Verified" in done.out

    asyncio.run(both())


def test_what_is_not_the_same_is_said(source: str, sqlite_url: str) -> None:
    run("db", "import-adk", source, "--url", sqlite_url)
    asyncio.run(execute(sqlite_url, "update messages set author = 'changed' where seq = 2"))
    done = run("db", "import-adk", source, "--url", sqlite_url)
    assert done.code == 1
    assert f"{APP} / {USER} / {BUSY}: Here are 2 entries (sha256 " in done.out
    assert "Not the same: 1 problem" in done.out


def test_the_pickle_format_is_refused(tmp_path: Path, sqlite_url: str) -> None:
    old = f"sqlite:///{tmp_path / 'old.db'}"
    engine = create_engine(old)
    v0.Base.metadata.create_all(engine)
    engine.dispose()
    done = run("db", "import-adk", old, "--url", sqlite_url)
    assert done.code == 1
    assert f"adk migrate session --source_db_url={old} --dest_db_url=" in done.err
    assert done.err.count("\n") == 1


def test_tables_must_be_there_first(source: str, postgres_url: str) -> None:
    done = run("db", "import-adk", source, "--url", postgres_url, "--schema", "not_there_yet")
    assert (done.code, done.out) == (1, "")
    assert "has no lango tables yet" in done.err
