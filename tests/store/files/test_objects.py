"""The bytes of files in an object store: S3, Azure and a folder."""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.objects import MOST, measured
from faults.database.own_cluster import free_port
from lango.errors import ConfigError, Fenced, ObjectStoreError, StoreError, UnknownFileError
from lango.store.db.database import Database
from lango.store.files import rows as artifact_rows
from lango.store.files.artifacts import SqlArtifactStore
from lango.store.files.cleanup import ObjectCleanup
from lango.store.files.contents import CHUNK, BytesInMemory, ObjectContent, SpooledContent
from lango.store.files.objects import PART, ObjectStore
from lango.store.files.rows import NewArtifact
from lango.store.files.uploads import NewFile, SqlFileStore, StoredFile
from lango.store.quotas import sum_file_bytes
from lango.store.schema.tables import artifact_chunks, artifacts, object_deletions, object_store
from lango.store.sessions.entries import Blob, SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.claimed_writes import ClaimedWrites
from tests.store.rows import created, key, said
from tests.store.turns.turn_stores import opened

BIG = os.urandom(2 * PART + CHUNK + 7)
NOW = timedelta(0)
NEW = NewArtifact("notes.txt", b"words of a user", {"text": ""})


def file(data: bytes, name: str = "a.png") -> NewFile:
    return NewFile(name, "image/png", BytesInMemory(data))


async def content_of(files: SqlFileStore, found: StoredFile) -> bytes:
    return b"".join([piece async for piece in files.chunks(found)])


async def keys_in(database: Database) -> list[str]:
    """The keys of the database's objects."""
    assert database.objects is not None
    statement = sa.select(object_store.c.folder)
    folder = await database.read(lambda connection: connection.scalar(statement))
    if folder is None:
        return []
    pages = database.objects.older_than(folder, -timedelta(days=1))
    return sorted([name async for page in pages for name in page])


async def counted(database: Database, table: sa.Table, where: SessionKey | None = None) -> int:
    statement = sa.select(sa.func.count()).select_from(table)
    if where is not None:
        statement = statement.where(table.c.tenant == where.tenant)
    return await database.read(lambda connection: connection.scalar(statement)) or 0


@pytest_asyncio.fixture
async def store(sqlite_url: str, objects_url: str) -> AsyncIterator[SqlSessionStore]:
    """A store on SQLite with an object store of each kind in turn."""
    async with SqlSessionStore(sqlite_url, objects=objects_url) as made:
        yield made


@pytest_asyncio.fixture
async def either(store_url: str, folder_url: str) -> AsyncIterator[SqlSessionStore]:
    """A store on either database with a folder of objects."""
    async with SqlSessionStore(store_url, objects=folder_url) as made:
        yield made


async def test_a_file_goes_to_the_object_store_and_comes_back(
    store: SqlSessionStore, tenant: str
) -> None:
    database, files, where = store.database, SqlFileStore(store.database), key(tenant)
    await created(store, where)
    for data in (BIG, b"small"):
        saved = await files.save(where, file(data))
        assert (saved.size, saved.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert await content_of(files, saved) == data
    assert await counted(database, artifact_chunks) == 0
    assert len(await keys_in(database)) == 2
    assert await sum_file_bytes(database, tenant) == len(BIG) + len(b"small")


async def test_a_part_of_an_object_is_read_alone(store: SqlSessionStore, tenant: str) -> None:
    objects, where = store.database.objects, key(tenant)
    await created(store, where)
    saved = await SqlFileStore(store.database).save(where, file(BIG))
    assert objects is not None
    assert saved.object_key is not None
    assert await objects.read(saved.object_key, CHUNK, CHUNK + 5) == BIG[CHUNK : CHUNK + 5]
    assert await objects.read(saved.object_key + "0", 0, 1) is None


async def test_what_is_deleted_leaves_no_object(store: SqlSessionStore, tenant: str) -> None:
    database, where, other = store.database, key(tenant), key(tenant, "other")
    for each in (where, other):
        await created(store, each)
        await SqlArtifactStore(database).save(each, NEW)
    files = SqlFileStore(database)
    saved = await files.save(where, file(BIG))
    stream = files.chunks(saved)
    assert await anext(stream) == BIG[:CHUNK]
    await store.delete(where)
    await ObjectCleanup(database).run()
    assert len(await keys_in(database)) == 1
    assert await counted(database, object_deletions) == 0
    with pytest.raises(UnknownFileError):
        _ = [piece async for piece in stream]
    await SqlArtifactStore(database).delete(other, NEW.name)
    await ObjectCleanup(database).run()
    assert await keys_in(database) == []


async def test_a_missing_object_stops_no_deletion_of_others(
    store: SqlSessionStore, tenant: str
) -> None:
    objects, where = store.database.objects, key(tenant)
    await created(store, where)
    await SqlArtifactStore(store.database).save(where, NEW)
    assert objects is not None
    keys = [f"{objects.folder}/{number:02}" for number in range(24)]
    for name in keys[1:]:
        await objects.put(name, BytesInMemory(b"data"))
    await objects.delete(keys)
    assert not set(keys) & set(await keys_in(store.database))


async def test_a_key_tells_nothing_of_its_file(either: SqlSessionStore, tenant: str) -> None:
    where = key(tenant, "secret session", user="ann")
    await created(either, where)
    saved = await SqlFileStore(either.database).save(where, file(b"data", "secret plan.png"))
    assert saved.object_key is not None
    assert not any(word in saved.object_key for word in ("secret", "plan", "ann", tenant))


async def test_a_user_that_is_deleted_leaves_no_object(
    either: SqlSessionStore, tenant: str
) -> None:
    database, where = either.database, key(tenant)
    await created(either, where)
    for each in (where, replace(where, session_id="")):
        await SqlArtifactStore(database).save(each, NEW)
    before = set(await keys_in(database))
    await either.delete_user(tenant, where.user_id)
    await ObjectCleanup(database).run()
    assert len(before - set(await keys_in(database))) == 2


async def test_a_fork_and_its_source_share_objects(either: SqlSessionStore, tenant: str) -> None:
    """The object lives as long as one row has it; here the copy is made as a fork makes it."""
    database, files = either.database, SqlArtifactStore(either.database)
    where, copy = key(tenant), key(tenant, "copy")
    for each in (where, copy):
        await created(either, each)
    await files.save(where, NEW)
    before = set(await keys_in(database))

    async def share(connection: AsyncConnection) -> None:
        row = await artifact_rows.find_version(connection, where, NEW.name, 0, locked=True)
        assert row is not None
        content = (await artifact_rows.read_contents(connection, [row]))[row.pk]
        await artifact_rows.add_version(connection, copy, replace(NEW, data=content))

    await database.write(share)
    await either.delete(where)
    await ObjectCleanup(database).run()
    assert set(await keys_in(database)) == before
    loaded = await files.load(copy, NEW.name)
    assert loaded is not None
    assert loaded.data == NEW.data
    await either.delete(copy)
    await ObjectCleanup(database).run()
    assert len(before - set(await keys_in(database))) == 1


async def test_an_old_version_comes_back_by_a_rewind(either: SqlSessionStore, tenant: str) -> None:
    database, files, where = either.database, SqlArtifactStore(either.database), key(tenant)
    await created(either, where)
    for data in (b"one", b"two"):
        await files.save(where, replace(NEW, data=data))
    before = await keys_in(database)
    assert await database.write(artifact_rows.restore_version, where, NEW.name, 0) == 2
    loaded = await files.load(where, NEW.name)
    assert loaded is not None
    assert loaded.data == b"one"
    assert await keys_in(database) == before


async def test_data_of_messages_is_in_the_object_store(
    either: SqlSessionStore, tenant: str
) -> None:
    ref = await created(either, key(tenant))
    blob = Blob("data-1", artifact_rows.EVENT_DATA, "image/png", BIG, {})
    entry = said("one", blobs=(blob,))
    await either.append(ref, entry)
    again = await either.append(ref, said("one", blobs=(blob,)))
    assert again.duplicate
    assert await either.read_blobs(ref.key, ["data-1", "none"]) == {"data-1": BIG}
    assert await counted(either.database, artifacts, ref.key) == 1


async def test_each_version_is_read_where_it_is(
    store_url: str, folder_url: str, tenant: str
) -> None:
    where, name = key(tenant), NEW.name
    async with SqlSessionStore(store_url) as before:
        await created(before, where)
        await SqlArtifactStore(before.database).save(where, replace(NEW, data=b"in SQL"))
    async with SqlSessionStore(store_url, objects=folder_url) as after:
        files = SqlArtifactStore(after.database)
        await files.save(where, replace(NEW, data=b"in an object"))
        versions = [await files.load(where, name, version) for version in (0, 1)]
        assert [each and each.data for each in versions] == [b"in SQL", b"in an object"]
    async with SqlSessionStore(store_url) as without:
        files = SqlArtifactStore(without.database)
        first = await files.load(where, name, 0)
        assert first is not None
        assert first.data == b"in SQL"
        with pytest.raises(ConfigError, match=r"files\.objects"):
            await files.load(where, name, 1)


async def test_the_same_upload_again_stores_no_object(either: SqlSessionStore, tenant: str) -> None:
    where, files = key(tenant), SqlFileStore(either.database)
    await created(either, where)
    first = await files.save(where, file(b"data"))
    before = await keys_in(either.database)
    assert await files.save(where, file(b"data")) == first
    assert await keys_in(either.database) == before


@pytest.mark.parametrize("kind", ["closed port", "no bucket"])
async def test_a_store_that_refuses_leaves_nothing(
    kind: str, sqlite_url: str, tenant: str, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    server = request.getfixturevalue("s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    if kind == "closed port":
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr("lango.store.db.retry.RETRIES", 1)
    where = key(tenant)
    async with SqlSessionStore(sqlite_url, objects="s3://no-such-bucket") as store:
        ref = await created(store, where)
        blob = Blob("data-1", artifact_rows.EVENT_DATA, "image/png", b"data", {})
        for refused in (
            SqlFileStore(store.database).save(where, file(BIG)),
            SqlArtifactStore(store.database).save(where, NEW),
            store.append(ref, said("one", blobs=(blob,))),
        ):
            with pytest.raises(ObjectStoreError, match="did not answer, or refused"):
                await refused
        assert await counted(store.database, artifacts) == 0
        assert await store.messages(where) == []


async def test_a_lost_claim_writes_no_row(store_url: str, folder_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        database = stores.sessions.database
        database.objects = ObjectStore(folder_url)
        ref = await stores.session(key(tenant))
        await stores.submit(key(tenant))
        lost = await stores.claim(ref.pk, await stores.worker())
        await stores.finish(lost)
        with pytest.raises(Fenced):
            await ClaimedWrites(database, lost).save_artifact(ref.key, NEW)
        assert await counted(database, artifacts, ref.key) == 0
        mine = await keys_in(database)
        assert await ObjectCleanup(database).sweep(NOW) == len(mine) == 1
        assert await keys_in(database) == []


async def test_only_old_objects_of_this_database_are_swept(
    sqlite_url: str, folder_url: str, tenant: str, tmp_path: Path
) -> None:
    other_url = f"sqlite:///{tmp_path / 'other.db'}"
    where = key(tenant)
    async with (
        SqlSessionStore(sqlite_url, objects=folder_url) as first_store,
        SqlSessionStore(other_url, objects=folder_url) as second_store,
    ):
        for each in (first_store, second_store):
            await created(each, where)
            await SqlArtifactStore(each.database).save(where, NEW)
        objects, theirs = first_store.database.objects, await keys_in(second_store.database)
        assert objects is not None
        orphan = f"{objects.folder}/orphan"
        await objects.put(orphan, BytesInMemory(b"unused"))
        cleanup = ObjectCleanup(first_store.database)
        assert await cleanup.sweep(timedelta(hours=24)) == 0
        assert await cleanup.sweep(NOW) == 1
        assert orphan not in await keys_in(first_store.database)
        assert len(await keys_in(first_store.database)) == 1
        assert await keys_in(second_store.database) == theirs


async def test_one_process_in_a_day_sweeps(
    either: SqlSessionStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.files.cleanup.ORPHANED_AFTER", NOW)
    database, objects = either.database, either.database.objects
    await created(either, key(tenant))
    await SqlArtifactStore(database).save(key(tenant), NEW)
    assert objects is not None

    async def runs() -> int:
        """The orphans that two processes leave."""
        await objects.put(f"{objects.folder}/orphan", BytesInMemory(b"unused"))
        await asyncio.gather(*(ObjectCleanup(database).run() for _ in range(2)))
        return sum("orphan" in name for name in await keys_in(database))

    async def age(connection: AsyncConnection) -> None:
        await connection.execute(sa.update(object_store).values(swept=sa.text("'2020-01-01'")))

    await database.write(age)
    assert await runs() == 0
    assert await runs() == 1


async def test_no_row_refers_to_an_object_that_the_sweep_may_delete(
    either: SqlSessionStore, tenant: str
) -> None:
    await created(either, key(tenant))
    old = ObjectContent("db/key", 3, "hash", stored=0.0)
    with pytest.raises(StoreError, match="Save it again"):
        await SqlArtifactStore(either.database).save(key(tenant), replace(NEW, data=old))


async def test_an_object_is_read_again_when_its_upload_is_retried(
    either: SqlSessionStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, files, put, tries = key(tenant), SqlFileStore(either.database), ObjectStore.put, [1]

    async def failing(self: ObjectStore, name: str, content: SpooledContent) -> None:
        await put(self, name, content)
        if tries:
            tries.pop()
            raise ObjectStoreError

    await created(either, where)
    monkeypatch.setattr(ObjectStore, "put", failing)
    with SpooledContent() as content:
        content.write(BIG)
        saved = await files.save(where, NewFile("a.png", "image/png", content))
    assert await content_of(files, saved) == BIG
    assert saved.sha256 == hashlib.sha256(BIG).hexdigest()


KILLED = """
import asyncio, os, signal, sys
from lango.core import failpoints
from lango.store.files.contents import BytesInMemory
from lango.store.files.uploads import NewFile, SqlFileStore
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore

def kill(name):
    if name == "object.stored":
        os.kill(os.getpid(), signal.SIGKILL)

async def main(url, objects, tenant):
    failpoints.armed = kill
    async with SqlSessionStore(url, objects=objects) as store:
        file = NewFile("a.png", "image/png", BytesInMemory(bytes(20 << 20)))
        await SqlFileStore(store.database).save(SessionKey(tenant, "a", "u", "s"), file)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_kill_after_the_upload_leaves_no_orphan_after_the_sweep(
    sqlite_url: str, objects_url: str, tenant: str
) -> None:
    where = key(tenant)
    async with SqlSessionStore(sqlite_url, objects=objects_url) as store:
        await created(store, where)
        arguments = (sys.executable, "-c", KILLED, sqlite_url, objects_url, tenant)
        process = await asyncio.create_subprocess_exec(*arguments)
        assert await process.wait() == -signal.SIGKILL
        assert await counted(store.database, artifacts) == 0
        assert len(await keys_in(store.database)) == 1
        assert await ObjectCleanup(store.database).sweep(NOW) == 1
        assert await keys_in(store.database) == []


def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    assert measured(str(tmp_path), 128)["down"] <= MOST
