"""A session that was exported and brought in elsewhere is the same session."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lango.core.values import json_text, json_value
from lango.errors import ImportSourceError, SessionExistsError, SessionNotFoundError
from lango.store.db.statement import CoreTransaction
from lango.store.files.artifacts import SqlArtifactStore
from lango.store.files.contents import CHUNK
from lango.store.files.rows import NewArtifact
from lango.store.memory.store import NewMemory, SqlMemoryStore
from lango.store.schema.tables import artifacts, memories, messages, sessions, state_changes
from lango.store.sessions.entries import Rewind, SessionKey, SessionRef, StateChange
from lango.store.sessions.store import SqlSessionStore, create_session
from lango.store.transfer.export import PAGE, SESSION_COLUMNS, open_export
from lango.store.transfer.restore import NewNames, RestoreResult, restore_session
from tests.store.rows import key, said
from tests.store.sessions.test_fork import first_turn, second_turn

BIG = bytes(range(256)) * 5_000  # more than one chunk
FACT = NewMemory("fact", "", "user", 1_760_000_000.5, "My favourite dessert: crème", {"n": 1})
TABLES = (messages, state_changes)


@pytest.fixture(params=["to-postgresql", "to-sqlite"])
def way(request: pytest.FixtureRequest, sqlite_url: str, postgres_url: str) -> tuple[str, str]:
    """From one database to the other."""
    to_postgres = request.param == "to-postgresql"
    return (sqlite_url, postgres_url) if to_postgres else (postgres_url, sqlite_url)


async def eventful(store: SqlSessionStore, where: SessionKey) -> None:
    """A session with all that one can have: files, states, a child, and something taken back."""
    given = StateChange({"given": True}, {"name": "Ann"}, {"limit": 1.0})
    stored = await store.create(where, given, title="Röm 👩‍👧")
    for entry in (*first_turn("first"), *second_turn("second")):
        await store.append(stored.ref, entry)
    back = said("r", invocation_id="back", role="control", counts=False, rewind=Rewind("second"))
    await store.append(stored.ref, back)
    await store.append(stored.ref, said("last", "after\u2028all", timestamp=1_760_000_000.123456))
    files = SqlArtifactStore(store.database)
    for data in (b"", b"one", BIG):
        await files.save(where, NewArtifact("f", data, {"inline_data": {}}, "text/plain", {"n": 1}))
    async with store.database.begin() as connection:
        child = key(where.tenant, f"{where.session_id}/call", user=where.user_id)
        made = await create_session(
            CoreTransaction(connection),
            child,
            f"ses_{where.tenant}c",
            StateChange({"x": 1}),
            "",
            stored.pk,
        )
    await store.append(made.ref, said("c1", "inner"))
    memory = SqlMemoryStore(store.database)
    await memory.add_session(stored.ref)
    await memory.add(SessionRef(replace(where, session_id="")), [FACT])


async def exported(store: SqlSessionStore, where: SessionKey, **options: Any) -> list[bytes]:
    export = await open_export(store.database, where, **options)
    return [line async for line in export.lines()]


async def restored(
    store: SqlSessionStore, lines: list[bytes], tenant: str, **names: str
) -> RestoreResult:
    return await restore_session(store.database, lambda: iter(lines), NewNames(tenant, **names))


async def rows(store: SqlSessionStore, where: SessionKey) -> dict[str, list[Any]]:
    """All that tables hold of a session, but for keys."""
    found: dict[str, list[Any]] = {}
    async with store.database.snapshot() as connection:
        condition = (sessions.c.tenant == where.tenant, sessions.c.id == where.session_id)
        kept = SESSION_COLUMNS.values()
        found["session"] = [
            tuple(one) for one in await connection.execute(_select(kept, *condition))
        ]
        pk = await connection.scalar(sa.select(sessions.c.pk).where(*condition))
        for table in TABLES:
            kept = [column for column in table.c if column.name != "session_pk"]
            read = _select(kept, table.c.session_pk == pk).order_by(table.c.seq)
            found[table.name] = [tuple(one) for one in await connection.execute(read)]
        names = {"pk", "tenant", "metadata"}
        kept = [column for column in artifacts.c if column.name not in names]
        condition = (artifacts.c.tenant == where.tenant, artifacts.c.session_id == where.session_id)
        read = _select([*kept, artifacts.c.metadata.label("about")], *condition)
        order = (artifacts.c.kind, artifacts.c.name, artifacts.c.version)
        found["artifacts"] = [tuple(one) for one in await connection.execute(read.order_by(*order))]
    return {name: [_timeless(row) for row in table] for name, table in found.items()}


async def remembered(store: SqlSessionStore, where: SessionKey) -> list[tuple[Any, ...]]:
    """The entries of a user, but for keys: their words are those of their owner."""
    left_out = {"pk", "tenant", "session_pk", "metadata"}
    kept = [column for column in memories.c if column.name not in left_out]
    read = _select([*kept, memories.c.metadata.label("about")], memories.c.tenant == where.tenant)
    async with store.database.snapshot() as connection:
        return [
            tuple(row)
            for row in await connection.execute(read.order_by(memories.c.session_id, memories.c.pk))
        ]


def _select(columns: Any, *where: Any) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(*columns).where(*where)


def _timeless(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row whose times have no zone, as SQLite gives them."""
    return tuple(value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in row)


@pytest.mark.parametrize("where_from", ["objects", "database"])
@pytest.mark.parametrize("where_to", ["objects", "database"])
async def test_bytes_in_an_object_store_are_part_of_it(
    where_from: str, where_to: str, sqlite_url: str, postgres_url: str, tenant: str, tmp_path: Path
) -> None:
    where, urls = key(tenant), {"objects": f"file://{tmp_path}/objects"}
    async with (
        SqlSessionStore(sqlite_url, objects=urls.get(where_from)) as source_store,
        SqlSessionStore(postgres_url, objects=urls.get(where_to)) as target_store,
    ):
        await eventful(source_store, where)
        lines = await exported(source_store, where)
        assert not any(b"object_key" in line for line in lines)
        await restored(target_store, lines, tenant)
        assert await target_store.read_blobs(where, ["data-1"]) == {"data-1": b"png"}
        files = SqlArtifactStore(target_store.database)
        found = [await files.load(where, "f", version) for version in range(3)]
        assert [one.data for one in found if one] == [b"", b"one", BIG]
        assert await exported(target_store, where) == lines
        keys = sa.select(artifacts.c.object_key).where(artifacts.c.tenant == tenant)
        async with target_store.database.snapshot() as connection:
            stored = [name for name in (await connection.execute(keys)).scalars() if name]
        assert len(stored) == len(set(stored)) == (3 if where_to == "objects" else 0)


async def test_it_is_the_same_in_another_database(way: tuple[str, str], tenant: str) -> None:
    source, target = way
    where = key(tenant)
    async with SqlSessionStore(source) as source_store, SqlSessionStore(target) as target_store:
        await eventful(source_store, where)
        lines = await exported(source_store, where)
        done = await restored(target_store, lines, tenant)
        assert (done.key, done.entries, done.artifacts) == (where, 13, 4)
        assert done.memories == len(await remembered(source_store, where)) > 2
        assert done.public_id == (await source_store.summary(where)).public_id
        for one in (where, key(tenant, "s/call")):
            assert await rows(target_store, one) == await rows(source_store, one)
        for budget in (None, 10, 35, 60):
            loaded, known = (
                await target_store.load(where, budget),
                await source_store.load(where, budget),
            )
            assert loaded is not None
            assert known is not None
            assert loaded.messages == known.messages
            assert loaded.session.state == known.session.state
            assert loaded.session.user_state == {"name": "Ann"}
            assert loaded.session.app_state == {"limit": 1.0}
        assert await target_store.read_blobs(where, ["data-1"]) == {"data-1": b"png"}
        assert await remembered(target_store, where) == await remembered(source_store, where)
        files = SqlArtifactStore(target_store.database)
        found = [await files.load(where, "f", version) for version in range(3)]
        assert [one.data for one in found if one] == [b"", b"one", BIG]
        assert len(BIG) > CHUNK
        again = await exported(target_store, where)
        assert again == lines


async def found(store: SqlSessionStore, where: SessionKey, query: str) -> list[str]:
    memory = SqlMemoryStore(store.database)
    return [entry.text for entry in await memory.search(where, query, 10)]


async def test_memory_is_found_under_another_name(way: tuple[str, str], tenant: str) -> None:
    """The words of an entry name its owner: those of another owner are made anew."""
    source, target = way
    where = key(tenant)
    async with SqlSessionStore(source) as source_store, SqlSessionStore(target) as target_store:
        ref = (await source_store.create(where)).ref
        for event_id in ("kept", "deleted"):
            await source_store.append(ref, said(event_id, f"Minka is {event_id}"))
        memory = SqlMemoryStore(source_store.database)
        await memory.add_session(ref)
        await memory.add(SessionRef(replace(where, session_id="")), [FACT])
        (gone,) = [entry for entry in await memory.search(where, "deleted", 10)]
        assert await memory.delete(tenant, gone.pk)
        lines = await exported(source_store, where)
        assert b"Minka is deleted" not in b"".join(line for line in lines if b'"memory"' in line)
        moved = replace(where, user_id="ben", session_id="moved")
        for number in range(2):
            names = {"user_id": "ben", "session_id": f"moved{number or ''}"}
            done = await restored(target_store, lines, tenant, **names)
            assert done.memories == 3
        assert await found(target_store, moved, "Minka") == ["Minka is kept"] * 2
        assert await found(target_store, moved, "favourite") == [FACT.text]  # stored once
        assert await found(target_store, where, "Minka favourite") == []
        await SqlMemoryStore(target_store.database).add_session(await target_store.locate(moved))
        assert await found(target_store, moved, "deleted") == []  # it does not come back
        await target_store.delete(moved)
        assert await found(target_store, moved, "Minka") == ["Minka is kept"]


async def test_many_entries_come_page_by_page(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        ref = (await store.create(key(tenant))).ref
        for number in range(PAGE + 5):
            await store.append(ref, said(f"e{number}", f"text {number}"))
        memory = SqlMemoryStore(store.database)
        await memory.add_session(ref)
        export = await open_export(store.database, key(tenant))
        await store.append(ref, said("late", "appended during the export"))
        await memory.add_session(ref)
        lines = [line async for line in export.lines()]
        assert b"appended during" not in b"".join(lines)
        assert (await restored(store, lines, f"{tenant}-2")).memories == PAGE + 5


async def test_it_goes_on_where_it_was(way: tuple[str, str], tenant: str) -> None:
    source, target = way
    where = key(tenant)
    async with SqlSessionStore(source) as source_store, SqlSessionStore(target) as target_store:
        await eventful(source_store, where)
        await restored(target_store, await exported(source_store, where), tenant)
        for store in (source_store, target_store):
            ref = await store.locate(where)
            await store.append(ref, said("new", "more", timestamp=1_770_000_000.0))
            assert (await store.append(ref, said("last"))).duplicate
        first, theirs = await source_store.load(where, 15), await target_store.load(where, 15)
        assert first is not None
        assert theirs is not None
        assert theirs.messages == first.messages


async def test_a_long_session_comes_page_by_page(store_url: str, tenant: str) -> None:
    where, count = key(tenant), 2 * PAGE + 3
    async with SqlSessionStore(store_url) as store:
        stored = await store.create(where)
        for number in range(count):
            await store.append(stored.ref, said(str(number), f"m{number}"))
        export = await open_export(store.database, where)
        await store.append(stored.ref, said("later", "not in it"))
        body = [json_value(line.decode()) async for line in export.lines()]
        texts = [one["content"] for one in body if one["kind"] == "message"]
        assert texts == [f"m{number}" for number in range(count)]
        assert (export.entries, body[0]["next_seq"]) == (count, count + 1)


async def test_a_session_that_is_deleted_meanwhile(store_url: str, tenant: str) -> None:
    where = key(tenant)
    async with SqlSessionStore(store_url) as store:
        stored = await store.create(where)
        await store.append(stored.ref, said("1"))
        export = await open_export(store.database, where)
        await store.delete(where)
        with pytest.raises(SessionNotFoundError):
            _ = [line async for line in export.lines()]
        with pytest.raises(SessionNotFoundError):
            await open_export(store.database, where)


async def test_under_another_name(store_url: str, tenant: str) -> None:
    where = key(tenant)
    async with SqlSessionStore(store_url) as store:
        await eventful(store, where)
        lines = await exported(store, where)
        with pytest.raises(SessionExistsError, match="another name"):
            await restored(store, lines, tenant)
        done = await restored(store, lines, tenant, user_id="bob", session_id="copy")
        assert done.key == key(tenant, "copy", user="bob")
        assert done.public_id != (await store.summary(where)).public_id
        copy, known = await store.load(done.key, None), await store.load(where, None)
        assert copy is not None
        assert known is not None
        assert copy.messages == known.messages


async def test_states_that_are_there_stay(store_url: str, tenant: str) -> None:
    where = key(tenant)
    async with SqlSessionStore(store_url) as store:
        await eventful(store, where)
        lines = await exported(store, where)
        other = f"{tenant}-other"
        own = StateChange({}, {"name": "Bob"}, {"more": 1})
        await store.create(key(other, "mine"), own)
        await restored(store, lines, other)
        loaded = await store.load(key(other), None)
        assert loaded is not None
        assert loaded.session.user_state == {"name": "Bob"}
        assert loaded.session.app_state == {"more": 1, "limit": 1.0}


async def test_the_apps_state_can_be_left_out(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await eventful(store, key(tenant))
        for with_it in (True, False):
            lines = await exported(store, key(tenant), with_app_state=with_it)
            assert (b"limit" in b"".join(lines)) == with_it


Change = Callable[[list[bytes]], list[bytes]]


def _replaced(number: int, **fields: Any) -> Change:
    def change(lines: list[bytes]) -> list[bytes]:
        body = {**json_value(lines[number].decode()), **fields}
        changed = list(lines)
        changed[number] = json.dumps(body).encode() + b"\n"
        return changed

    return change


def _sealed(change: Change) -> Change:
    """The same change, followed by an end line with the right checksum."""

    def sealed(lines: list[bytes]) -> list[bytes]:
        *changed, _ = change(lines)
        end = {
            "kind": "end",
            "lines": len(changed),
            "sha256": sha256(b"".join(changed)).hexdigest(),
        }
        return [*changed, json_text(end).encode() + b"\n"]

    return sealed


NO_ROLE = b'{"kind": "memory", "scope": "user", "event_id": "e", "author": "", "role": "tool", \
"timestamp": 1.0, "text": "x", "metadata": null}\n'

UNSOUND: list[tuple[Change, str]] = [
    (lambda lines: lines[:0], "its end is missing"),
    (lambda lines: lines[:-1], "its end is missing"),
    (lambda lines: lines[1:], "does not belong there"),
    (lambda lines: [*lines, lines[-1]], "does not belong there"),
    (lambda lines: [lines[0], *lines], "does not belong there"),
    (lambda lines: [lines[0], b"{\n"], "not JSON"),
    (lambda lines: [lines[0], b"\xff\n"], "not JSON"),
    (lambda lines: [lines[0], b"[" * 100_000], "not JSON"),
    (lambda lines: [lines[0], b"1\n"], "no object"),
    (lambda lines: [lines[0], lines[-2], lines[-1]], "is of no artifact"),
    (lambda lines: [lines[0], b'{"kind": "memory"}\n'], "event_id is not what it should be"),
    (lambda lines: [lines[0], NO_ROLE], "has no entry of memory"),
    (lambda lines: [lines[0], NO_ROLE.replace(b"tool", b"user")], "its end is missing"),
    (lambda lines: [*lines[:3], *lines[4:]], "not those that were written"),
    (_replaced(0, version=2), "its version is not 1"),
    (_replaced(0, title=None), "title is not what it should be"),
    (_replaced(0, next_seq="1"), "next_seq is not what it should be"),
    (_replaced(0, next_seq=True), "next_seq is not what it should be"),
    (_replaced(0, next_seq=1 << 70), "next_seq is not what it should be"),
    (_replaced(0, created="soon"), "created is no time"),
    (_replaced(1, scope="all"), "has no state"),
    (_replaced(3, content=None), "content is not what it should be"),
    (_sealed(_replaced(4, seq=1)), "it has something twice"),
    (_sealed(_replaced(3, event={"text": "\ud800"})), "text with invalid characters"),
    (_replaced(-2, data="!"), "not base64"),
    (_replaced(-2, data="AAAA"), "are not those it had"),
]


@pytest.mark.parametrize(("change", "said_why"), UNSOUND)
async def test_what_is_not_sound_leaves_nothing_behind(
    change: Change, said_why: str, store_url: str, tenant: str
) -> None:
    async with SqlSessionStore(store_url) as store:
        stored = await store.create(key(tenant))
        for number in range(3):
            await store.append(stored.ref, said(str(number)))
        artifact = NewArtifact("f", b"data", {}, None)
        await SqlArtifactStore(store.database).save(key(tenant), artifact)
        lines = await exported(store, key(tenant))
        with pytest.raises(ImportSourceError, match=said_why):
            await restored(store, change(lines), f"{tenant}-2")
        assert await store.app_names(f"{tenant}-2") == []


async def test_an_empty_session(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await store.create(key(tenant))
        lines = await exported(store, key(tenant))
        done = await restored(store, lines, tenant, session_id="copy")
        assert (done.entries, len(lines)) == (0, 4)
