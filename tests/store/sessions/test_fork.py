"""A fork is what the session was at that point, on both databases."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lango.core.values import json_text
from lango.errors import SessionNotFoundError
from lango.store.files.artifacts import SqlArtifactStore
from lango.store.files.cleanup import ObjectCleanup
from lango.store.files.objects import ObjectStore
from lango.store.files.rows import NewArtifact
from lango.store.schema.tables import messages, sessions, state_changes
from lango.store.sessions import fork as forking
from lango.store.sessions.conversations import ConversationPoint
from lango.store.sessions.entries import Blob, Entry, Rewind, SessionKey, StateChange
from lango.store.sessions.fork import fork
from lango.store.turns.rows import Turn
from tests.store.rows import beside, key, until_waiting
from tests.store.rows import said as entry
from tests.store.turns.turn_stores import TurnStores, opened

OWN = {"pk", "session_pk", "id", "public_id", "created", "updated", "last_activity", "timestamp"}


def _change(state: dict[str, Any], **others: Any) -> dict[str, Any]:
    changes = json_text({"state_delta": state, **others})
    return {"changes": changes, "state": StateChange(session=state)}


def first_turn(turn: str) -> list[Entry]:
    blob = Blob("data-1", "event", "image/png", b"png", {"inline_data": {}})
    return [
        entry("e1", "hi", invocation_id=turn),
        entry("e2", "calls", invocation_id=turn, role="assistant", opens_calls=("call",)),
        entry("e3", "an image", invocation_id=turn, role="tool", blobs=(blob,)),
        entry("e4", "ho", invocation_id=turn, role="assistant", **_change({"a": 1, "b": 1})),
        entry(
            "e5",
            invocation_id=turn,
            state_only=True,
            counts=False,
            tokens=0,
            changes=json_text({"b": 2}),
            state=StateChange(session={"b": 2}),
        ),
        entry(
            "e6", "file", invocation_id=turn, role="tool", **_change({}, artifact_delta={"f": 0})
        ),
    ]


def second_turn(turn: str) -> list[Entry]:
    return [
        entry("f1", "more", invocation_id=turn, answers_calls=("call",)),
        entry("f2", "sum", invocation_id=turn, role="control", counts=False, compaction=True),
        entry("f3", "well", invocation_id=turn, role="assistant", **_change({"a": 3, "c": 3})),
        entry(
            "f4", "file", invocation_id=turn, role="tool", **_change({}, artifact_delta={"f": 1})
        ),
    ]


async def append(stores: TurnStores, where: SessionKey, entries: Sequence[Entry]) -> None:
    ref = await stores.sessions.locate(where)
    for one in entries:
        await stores.sessions.append(ref, one)


async def point_of(stores: TurnStores, turn: Turn) -> ConversationPoint:
    public_id = (await stores.sessions.summary(turn.session)).public_id
    return ConversationPoint(
        turn.session, turn.session_pk, public_id, turn.number, turn.id, 2, False, False
    )


async def begun(stores: TurnStores, where: SessionKey) -> Turn:
    """A session that began with some state, and its first turn."""
    await stores.sessions.create(where, StateChange(session={"given": True}), title="Trip")
    turn = await stores.submit(where)
    await append(stores, where, first_turn("first"))
    await save(stores, where, b"one")
    await name(stores, turn, "first")
    return turn


async def name(stores: TurnStores, turn: Turn, invocation_id: str) -> None:
    """Give a turn this invocation id."""
    async with stores.sessions.database.begin() as connection:
        named = sa.text("update turns set invocation_id = :name where id = :id")
        await connection.execute(named, {"name": invocation_id, "id": turn.id})


async def save(stores: TurnStores, where: SessionKey, data: bytes) -> None:
    await SqlArtifactStore(stores.sessions.database).save(where, NewArtifact("f", data, {}))


async def rows(url: str, where: SessionKey) -> dict[str, list[dict[str, Any]]]:
    """All there is of a session, but for its name and times."""
    pk = sa.select(sessions.c.pk).where(
        sessions.c.tenant == where.tenant, sessions.c.id == where.session_id
    )
    found: dict[str, list[dict[str, Any]]] = {}
    async with beside(url) as connection:
        for table, column in (
            (sessions, "pk"),
            (messages, "session_pk"),
            (state_changes, "session_pk"),
        ):
            statement = sa.select(table).where(table.c[column] == pk.scalar_subquery())
            order = table.c.seq if "seq" in table.c else table.c.pk
            read = (await connection.execute(statement.order_by(order))).mappings()
            found[table.name] = [
                {name: value for name, value in row.items() if name not in OWN} for row in read
            ]
    return found


async def test_a_fork_is_what_the_session_was(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        turn = await begun(stores, key(tenant, "source"))
        before = await rows(store_url, key(tenant, "source"))
        assert len(before["messages"]) == 5
        await stores.submit(key(tenant, "source"))
        await append(stores, key(tenant, "source"), second_turn("second"))
        await save(stores, key(tenant, "source"), b"two")
        after = await rows(store_url, key(tenant, "source"))
        assert after["sessions"] != before["sessions"]
        await fork(
            stores.sessions.database,
            await point_of(stores, turn),
            key(tenant, "to"),
            f"ses_{tenant}",
        )
        assert await rows(store_url, key(tenant, "to")) == before
        assert await rows(store_url, key(tenant, "source")) == after
        loaded = await stores.sessions.load(key(tenant, "to"), None)
        assert loaded is not None
        assert loaded.session.state == {"given": True, "a": 1, "b": 2}
        assert await stores.sessions.read_blobs(key(tenant, "to"), ["data-1"]) == {"data-1": b"png"}
        files = SqlArtifactStore(stores.sessions.database)
        newest = await files.load(key(tenant, "to"), "f")
        assert newest is not None
        assert newest.data == b"one"


async def test_a_fork_keeps_the_objects_of_a_deleted_source(
    store_url: str, tenant: str, tmp_path: Path
) -> None:
    source, to = key(tenant, "source"), key(tenant, "to")
    async with opened(store_url) as stores:
        database = stores.sessions.database
        database.objects = ObjectStore(f"file://{tmp_path}/objects")
        turn = await begun(stores, source)
        await fork(database, await point_of(stores, turn), to, f"ses_{tenant}")
        for deleted, count in ((source, 2), (to, 0)):
            await stores.sessions.delete(deleted)
            await ObjectCleanup(database).run()
            files = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
            assert len(files) == count
            if count:
                assert await stores.sessions.read_blobs(to, ["data-1"]) == {"data-1": b"png"}
                newest = await SqlArtifactStore(database).load(to, "f")
                assert newest is not None
                assert newest.data == b"one"


async def test_a_source_that_is_being_forked_keeps_its_objects(
    postgres_url: str, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion waits for the copy of the row: the object is never without one."""
    source, to, deletions = key(tenant, "source"), key(tenant, "to"), list[asyncio.Task[None]]()
    async with opened(postgres_url) as stores:
        database = stores.sessions.database
        database.objects = ObjectStore(f"file://{tmp_path}/objects")
        files, turn, copy = (
            SqlArtifactStore(database),
            await begun(stores, source),
            forking.copy_artifacts,
        )

        async def then_delete(*arguments: Any) -> None:
            await copy(*arguments)
            deletions.append(asyncio.create_task(files.delete(source, "f")))
            await until_waiting(postgres_url)

        monkeypatch.setattr(forking, "copy_artifacts", then_delete)
        await fork(database, await point_of(stores, turn), to, f"ses_{tenant}")
        await deletions[0]
        await ObjectCleanup(database).run()
        copied = await files.load(to, "f")
        assert copied is not None
        assert copied.data == b"one"


async def test_what_was_taken_back_later_is_there(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        turn = await begun(stores, key(tenant, "source"))
        before = await rows(store_url, key(tenant, "source"))
        back = entry(
            "r", invocation_id="back", role="control", counts=False, rewind=Rewind("first")
        )
        await append(stores, key(tenant, "source"), [back])
        await fork(
            stores.sessions.database,
            await point_of(stores, turn),
            key(tenant, "to"),
            f"ses_{tenant}",
        )
        forked = await rows(store_url, key(tenant, "to"))
        for name in ("messages", "state_changes"):
            assert forked[name] == before[name]


async def test_a_fork_has_the_late_answers_before_the_next_message(
    store_url: str, tenant: str
) -> None:
    """An answer to a call of the first turn came between the second message and the third."""
    async with opened(store_url) as stores:
        where = key(tenant, "source")
        asking = await begun(stores, where)
        first = await rows(store_url, where)
        second = await stores.submit(where)
        await name(stores, second, "second")
        await append(stores, where, second_turn("second"))
        await name(stores, await stores.submit(where), "first")
        await append(stores, where, [entry("late", "paid", invocation_id="first", role="tool")])
        with_answer = await rows(store_url, where)
        await name(stores, await stores.submit(where), "third")
        await append(stores, where, [entry("g1", "thanks", invocation_id="third")])
        for turn, to, expected in ((asking, "one", first), (second, "two", with_answer)):
            point = await point_of(stores, turn)
            await fork(stores.sessions.database, point, key(tenant, to), f"ses_{to}_{tenant}")
            forked = await rows(store_url, key(tenant, to))
            for table in ("messages", "state_changes"):
                assert forked[table] == expected[table]


async def test_a_fork_goes_on_and_is_made_once(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        turn = await begun(stores, key(tenant, "source"))
        point = await point_of(stores, turn)
        await fork(stores.sessions.database, point, key(tenant, "to"), f"ses_{tenant}")
        await append(stores, key(tenant, "to"), second_turn("second"))
        await fork(stores.sessions.database, point, key(tenant, "to"), f"ses_{tenant}")
        summary = await stores.sessions.summary(key(tenant, "to"))
        assert (summary.title, summary.public_id) == ("Trip", f"ses_{tenant}")
        assert summary.message_count == 8
        assert summary.total_tokens == 90


async def test_a_session_that_is_gone_cannot_be_forked(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        turn = await begun(stores, key(tenant, "source"))
        point = await point_of(stores, turn)
        await stores.sessions.delete(key(tenant, "source"))
        with pytest.raises(SessionNotFoundError):
            await fork(stores.sessions.database, point, key(tenant, "to"), f"ses_{tenant}")
