"""The engine of a SQLite file, or of a database in memory."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from lango.errors import UnsupportedUrlError
from lango.store.db.engines import READ_ONLY, create_engine, store_url
from lango.store.db.sqlite.engine import inline_opener, refuse_network_file_system
from lango.store.db.sqlite.log import WriteAheadLog
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import created, key, said, texts


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


def test_a_connection_without_a_thread_leaves_the_log_to_its_caller(sqlite_url: str) -> None:
    log = WriteAheadLog()
    with closing(inline_opener(store_url(sqlite_url), log)()) as connection:
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout", "wal_autocheckpoint")
        }
    log.close()
    assert found == {
        "journal_mode": "wal",
        "synchronous": 1,
        "busy_timeout": 0,  # a statement that waits would block the event loop
        "wal_autocheckpoint": 0,
    }


async def test_a_sqlite_writer_takes_the_lock_at_once_and_a_reader_takes_none(
    sqlite_url: str,
) -> None:
    engine = create_engine(store_url(sqlite_url), statement_timeout=0.05)
    count = sa.text("select count(*) from sessions")
    try:
        async with engine.begin() as writer:
            await writer.scalar(count)  # nothing written yet
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
                await asyncio.sleep(0)  # no statement of a database in memory waits

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


async def test_a_database_in_memory_serves_the_event_loop_of_another_thread() -> None:
    """As ADK's `Runner.run` starts one for each call."""
    async with SqlSessionStore("sqlite://") as store:
        ref = await created(store, key("t"))

        async def elsewhere() -> list[str]:
            await store.append(ref, said("1"))
            return await texts(store, key("t"))

        assert await asyncio.to_thread(asyncio.run, elsewhere()) == ["hi"]
        await store.append(ref, said("2"))


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
