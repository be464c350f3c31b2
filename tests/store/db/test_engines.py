"""From one URL to an engine."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from lango.errors import UnsupportedUrlError
from lango.store.db.engines import (
    READ_ONLY,
    create_engine,
    is_sqlite,
    refuse_network_file_system,
    store_url,
)
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, key, said, texts


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgresql://user@host:5433/db", "postgresql+asyncpg"),
        ("postgres://user@host/db", "postgresql+asyncpg"),
        ("postgresql+asyncpg://user@host/db", "postgresql+asyncpg"),
        ("sqlite:///lango.db", "sqlite+aiosqlite"),
        ("sqlite:////var/lib/lango.db", "sqlite+aiosqlite"),
        ("sqlite://", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:///lango.db", "sqlite+aiosqlite"),
    ],
)
def test_our_urls_name_no_driver(url: str, driver: str) -> None:
    parsed = store_url(url)
    assert parsed.drivername == driver
    assert is_sqlite(parsed) == driver.startswith("sqlite")


def test_all_else_in_the_url_is_kept() -> None:
    parsed = store_url("postgresql://me:pass%20word@host:5433/db?sslmode=require")
    assert (parsed.username, parsed.password, parsed.host, parsed.port, parsed.database) == (
        "me",
        "pass word",
        "host",
        5433,
        "db",
    )
    assert parsed.query == {"sslmode": "require"}
    assert store_url("sqlite:////var/lib/lango.db").database == "/var/lib/lango.db"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:s3cret@host/db",
        "postgresql+psycopg2://me:s3cret@host/db",
        "sqlite+pysqlite:///lango.db",
        "https://me:s3cret@host/db",
        "lango.db",
        "me:s3cret@host",
        "",
        "postgresql//me:s3cret@host/db",
        "postgresql://me:s3cret@host:port/db",
    ],
)
def test_other_urls_are_refused_without_showing_secrets(url: str) -> None:
    with pytest.raises(UnsupportedUrlError) as refusal:
        store_url(url)
    assert "s3cret" not in str(refusal.value)
    assert len(str(refusal.value)) > 30
    with pytest.raises(UnsupportedUrlError):
        SqlSessionStore(url)


def test_sqlite_has_no_schemas(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedUrlError, match="SQLite has no schemas"):
        create_engine(store_url(f"sqlite:///{tmp_path / 'lango.db'}"), schema="mine")


async def test_sqlite_is_set_up_for_concurrency(sqlite_url: str) -> None:
    engine = create_engine(store_url(sqlite_url), statement_timeout=7.5)
    try:
        async with engine.connect() as connection:
            found = {
                name: await connection.scalar(sa.text(f"PRAGMA {name}"))
                for name in ("journal_mode", "synchronous", "busy_timeout")
            }
    finally:
        await engine.dispose()
    assert found == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 7_500}


async def test_a_sqlite_writer_takes_the_lock_at_once_and_a_reader_takes_none(
    sqlite_url: str,
) -> None:
    engine = create_engine(store_url(sqlite_url), statement_timeout=0.05)
    count = sa.text("select count(*) from sessions")
    try:
        async with engine.begin():  # nothing written yet
            async with engine.connect() as connection:
                reader = await connection.execution_options(**READ_ONLY)
                assert await reader.scalar(count) == 0
            async with engine.connect() as connection:
                with pytest.raises(OperationalError, match="database is locked"):
                    await connection.scalar(count)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("where", ["file", "memory"])
async def test_a_cancelled_sqlite_writer_leaves_nothing_behind(sqlite_url: str, where: str) -> None:
    url = sqlite_url if where == "file" else "sqlite://"
    engine = create_engine(store_url(url), statement_timeout=0.5)
    busy = sa.text(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 20000) "
        "select count(*) from n"
    )

    async def write() -> None:
        async with engine.begin() as connection:
            await connection.execute(sa.text("insert into kept values (2)"))
            while True:
                await connection.scalar(busy)

    try:
        async with engine.begin() as connection:
            await connection.execute(sa.text("create table kept (number integer)"))
            await connection.execute(sa.text("insert into kept values (1)"))
        writing = asyncio.create_task(write())
        await asyncio.sleep(0.1)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError) as error:  # with what its traceback refers to
            await writing
        async with engine.begin() as connection:
            found = await connection.execute(sa.text("select number from kept"))
            assert found.scalars().all() == [1]
        assert error.value
    finally:
        await engine.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_a_database_in_memory_is_one_database(url: str) -> None:
    async with SqlSessionStore(url) as store:
        ref = await created(store, key("t"))
        await store.append(ref, said("1"))
        assert await texts(store, key("t")) == ["hi"]


async def test_postgresql_settings(postgres_url: str) -> None:
    engine = create_engine(store_url(postgres_url), schema='odd "name"', statement_timeout=1.5)
    try:
        async with engine.connect() as connection:
            timeout = await connection.scalar(sa.text("show statement_timeout"))
            path = await connection.scalar(sa.text("show search_path"))
    finally:
        await engine.dispose()
    assert timeout == "1500ms"
    assert path == '"odd ""name"""'


async def test_errors_hide_the_parameters(store_url: str) -> None:
    """They are people's words, and an error may reach a log."""
    statement = sa.text("insert into app_states (tenant, app_name, key) values (:t, null, null)")
    with pytest.raises(IntegrityError) as error:
        async with beside(store_url) as connection:
            await connection.execute(statement, {"t": "my secret words"})
    assert "parameters hidden" in str(error.value)


MOUNTS = """\
/dev/vda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /data nfs4 rw,vers=4.2 0 0
/dev/vdb1 /data/local xfs rw 0 0
//nas/share /mnt/my\\040share cifs rw 0 0
me@host:/ /home/me/remote fuse.sshfs rw 0 0
host /shared 9p rw 0 0
tmpfs /tmp tmpfs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    file = tmp_path / "mounts"
    file.write_text(MOUNTS)
    return file


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/lango.db", "nfs4"),
        ("/data/deep/er/lango.db", "nfs4"),
        ("/mnt/my share/lango.db", "cifs"),
        ("/home/me/remote/lango.db", "fuse.sshfs"),
        ("/shared/lango.db", "9p"),
        ("/data/local/../lango.db", "nfs4"),
    ],
)
def test_a_network_file_system_is_refused(path: str, kind: str, mounts: Path) -> None:
    with pytest.raises(UnsupportedUrlError, match=rf"network file system \({kind}\)"):
        refuse_network_file_system(Path(path), mounts)


@pytest.mark.parametrize(
    "path",
    [
        "/lango.db",
        "/var/lib/lango.db",
        "/data/local/lango.db",  # the nearest mount decides
        "/database/lango.db",  # not inside /data
        "/mnt/my",
        "/home/me/lango.db",
    ],
)
def test_a_local_disk_is_fine(path: str, mounts: Path) -> None:
    refuse_network_file_system(Path(path), mounts)


def test_a_link_to_a_network_file_system_is_refused_too(tmp_path: Path) -> None:
    far, near = tmp_path / "far", tmp_path / "near.db"
    far.mkdir()
    near.symlink_to(far / "lango.db")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda1 / ext4 rw 0 0\nserver:/export {far} nfs rw 0 0\n")
    with pytest.raises(UnsupportedUrlError, match="network file system"):
        refuse_network_file_system(near, mounts)


def test_where_mounts_cannot_be_read_nothing_is_refused(tmp_path: Path) -> None:
    refuse_network_file_system(Path("/data/lango.db"), tmp_path / "none")
