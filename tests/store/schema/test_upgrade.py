"""Upgrades beside others: newer tables under older code, and tables that are in use."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from faults.database.newer_schema import newer
from lango.errors import SchemaBusyError, SchemaError, StoreError
from lango.store.schema import migrate
from lango.store.schema.revisions import OURS
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, key, raw, said, texts
from tests.support.databases import temporary_postgres

PATIENCE = 60.0


@pytest_asyncio.fixture
async def url(postgres_url: str) -> AsyncIterator[str]:
    """A database of the test's own, for upgrades that no other test may see."""
    async with temporary_postgres(postgres_url) as made:
        yield made


def columns(connection: sa.Connection) -> set[str]:
    return {column["name"] for column in sa.inspect(connection).get_columns("messages")}


async def test_older_code_goes_on_and_starts_on_newer_tables(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, starting = SqlSessionStore(url), SqlSessionStore(url)
    ref = await created(running, key("t"))
    await running.append(ref, said("1", "before"))
    with monkeypatch.context() as newer_lango:
        newer_lango.setattr(migrate, "carried", newer(tmp_path))
        assert await migrate.upgrade(url) == await migrate.check(url) == "9001"
    try:
        await running.append(ref, said("2", "running"))
        await running.check()
        await starting.open()
        await starting.append(ref, said("3", "started"))
        assert await texts(running, key("t")) == ["before", "running", "started"]
    finally:
        await running.close()
        await starting.close()
    assert await migrate.check(url) == await migrate.upgrade(url) == "9001"
    async with beside(url) as connection:
        assert "added_9000" in await connection.run_sync(columns)


async def test_code_older_than_the_schema_raises(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = SqlSessionStore(url)
    await running.open()
    with monkeypatch.context() as newer_lango:
        newer_lango.setattr(migrate, "carried", newer(tmp_path, additive=False))
        await migrate.upgrade(url)
    try:
        for doing in (running.check, SqlSessionStore(url).open):
            with pytest.raises(SchemaError, match="at schema 9001, which this version of lango do"):
                await doing()
    finally:
        await running.close()


async def test_newer_code_does_not_start_before_the_upgrade(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "carried", newer(tmp_path))
    with pytest.raises(SchemaError, match=rf"at schema {OURS.head}, this lango needs 9001"):
        await SqlSessionStore(url).open()


def test_every_migration_declares_whether_older_code_works() -> None:
    scripts = list(ScriptDirectory.from_config(OURS.config()).walk_revisions())
    assert scripts
    assert {type(vars(script.module).get("additive")) for script in scripts} == {bool}


@pytest.mark.parametrize(("additive", "oldest"), [(True, OURS.head), (False, "9001")])
def test_additive_migrations_keep_the_oldest_code(
    tmp_path: Path, additive: bool, oldest: str
) -> None:
    assert newer(tmp_path, additive=additive).oldest_code("9001") == oldest


async def test_an_upgrade_waits_for_a_moment_lets_others_pass_and_tries_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A long transaction reads; a write queued after the waiting upgrade gets through."""
    monkeypatch.setattr("lango.store.schema.upgrade.LOCK_WAIT", 0.2)
    monkeypatch.setattr(migrate, "carried", newer(tmp_path))
    caplog.set_level(logging.INFO, logger="lango.store.schema.upgrade")
    async with raw(url) as reader, raw(url) as writer:
        reading = reader.transaction()
        await reading.start()
        await reader.fetch("select count(*) from messages")
        upgrading = asyncio.create_task(migrate.upgrade(url))
        async with asyncio.timeout(PATIENCE):
            while "trying again" not in caplog.text:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        await writer.execute("update messages set content = '' where seq = -1")
        await reading.rollback()
        assert await upgrading == "9001"
    async with beside(url) as connection:
        assert "added_9000" in await connection.run_sync(columns)


async def test_tables_that_are_never_let_go_are_told_of(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.schema.upgrade.LOCK_WAIT", 0.05)
    monkeypatch.setattr("lango.store.schema.upgrade.ATTEMPTS", 2)
    monkeypatch.setattr(migrate, "carried", newer(tmp_path))
    async with raw(url) as reader:
        await reader.execute("set application_name = 'report'")
        async with reader.transaction():
            await reader.fetch("select count(*) from messages")
            pid = await reader.fetchval("select pg_backend_pid()")
            locked = r"other transactions kept them locked\."
            expected = rf"{locked} .*process {pid} \(report\), for \d+ s.*again"
            with pytest.raises(SchemaBusyError, match=expected) as caught:
                await migrate.upgrade(url)
    assert caught.value.retryable
    assert await migrate.current(url) == OURS.head
    assert await migrate.upgrade(url) == "9001"


async def test_an_upgrade_that_fails_keeps_the_migrations_before_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says why: it is no lock, so it is not tried again."""
    revisions = newer(tmp_path)
    broken = tmp_path / "9001_newer.py"
    right = broken.read_text()
    # Of another length: Python would take the compiled file of this second for the mended one.
    broken.write_text(right.replace('["created", "seq"]', '["no_such_column_here"]'))
    monkeypatch.setattr(migrate, "carried", revisions)
    with pytest.raises(StoreError, match="no_such_column"):
        await migrate.upgrade(url)
    assert await migrate.current(url) == "9000"
    broken.write_text(right)
    assert await migrate.upgrade(url) == "9001"


async def test_upgrades_at_once_build_an_index_without_waiting_for_each_other(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A concurrent build waits for all transactions, also for one that waits for the build."""
    monkeypatch.setattr(migrate, "carried", newer(tmp_path, 2))
    assert await asyncio.gather(*(migrate.upgrade(url) for _ in range(4))) == ["9003"] * 4
