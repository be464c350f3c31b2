"""Deleting all data of a user: nothing of it is left, and nothing of others is touched."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from faults.store.leftovers import leftovers
from lango.errors import Fenced, SessionNotFoundError
from lango.store.credentials.store import Owner, SqlCredentialStore
from lango.store.files.artifacts import SqlArtifactStore
from lango.store.memory.store import NewMemory, SqlMemoryStore
from lango.store.model_calls import ModelCallStore
from lango.store.schema.tables import metadata, sessions
from lango.store.sessions.entries import SessionKey, SessionRef, StateChange
from lango.store.turns.claimed_writes import ClaimedWrites
from lango.store.users import DeletedData
from tests.store.rows import beside, key, said, until_waiting
from tests.store.sessions.test_delete import CANARY, artifact, claimed, fill, found
from tests.store.test_model_calls import call
from tests.store.turns.turn_stores import TurnStores, opened
from tests.support.credential_agents import KEY


def fact(text: str = CANARY) -> NewMemory:
    return NewMemory(text, "user", "user", 1_760_000_000.0, text)


async def fill_user(stores: TurnStores, where: SessionKey) -> None:
    """Write what a user has beside sessions, and what is kept of sessions stored elsewhere."""
    user, database = replace(where, session_id=""), stores.sessions.database
    await stores.sessions.create(where, StateChange(user={CANARY: CANARY}))
    store = SqlMemoryStore(database)
    await store.add(SessionRef(user), [fact()])
    await store.add(SessionRef(replace(where, session_id="elsewhere")), [fact()])
    await SqlArtifactStore(database).save(user, artifact("user:note.txt"))
    await SqlArtifactStore(database).save(replace(where, session_id="elsewhere"), artifact())
    keys = SqlCredentialStore(database, [KEY])
    await keys.save(Owner(where.tenant, where.app_name, where.user_id), CANARY, "{}", "api_key")
    names = (where.app_name, where.user_id, "elsewhere")
    await ModelCallStore(database).add(where.tenant, [call(agent=CANARY, session=names)])


async def rows_of(url: str, tenant: str) -> dict[str, int]:
    """How many rows each table has of a tenant's."""
    found: dict[str, int] = {}
    async with beside(url) as connection:
        for table in metadata.sorted_tables:
            if "tenant" in table.c:
                count = sa.select(sa.func.count()).where(table.c.tenant == tenant)
                found[table.name] = await connection.scalar(count) or 0
    return found


async def test_nothing_is_left_of_a_user(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await claimed(stores, key(tenant))
        pks = (claim.turn.session_pk, await fill(stores, claim))
        await SqlMemoryStore(stores.sessions.database).add_session(claim.ref)
        await fill_user(stores, key(tenant, "second"))
        tables = {line.split(" ")[3] for line in await found(store_url, *pks)}
        assert {
            *("user_states", "memories", "artifacts", "model_calls", "messages"),
            "credentials",
        } <= tables
        deleted = await stores.sessions.delete_user(tenant, "u", "a")
        assert deleted == DeletedData(
            2, memories=3, artifacts=2, states=1, model_calls=1, credentials=1
        )
        assert await found(store_url, *pks) == []
        assert set((await rows_of(store_url, tenant)).values()) == {0}
        assert not await stores.sessions.delete_user(tenant, "u", "a")


async def test_other_users_apps_and_tenants_are_untouched(store_url: str, tenant: str) -> None:
    others = [key(tenant, user="v"), key(tenant, app="b"), key(f"{tenant}-other")]
    async with opened(store_url) as stores:
        for where in others:
            await fill_user(stores, where)
        before = [await rows_of(store_url, where.tenant) for where in others]
        await fill_user(stores, key(tenant))
        assert (await stores.sessions.delete_user(tenant, "u", "a")).sessions == 1
        assert [await rows_of(store_url, where.tenant) for where in others] == before
        assert (await stores.sessions.delete_user(tenant, "u")).sessions == 1  # that of app b
        for where in (others[0], others[2]):
            assert (await stores.sessions.delete_user(where.tenant, where.user_id)).memories == 2
        assert await found(store_url) == []


async def test_a_turn_that_runs_writes_nothing_for_a_deleted_user(
    store_url: str, tenant: str
) -> None:
    """Neither to its session, nor what all sessions of the user share."""
    async with opened(store_url) as stores:
        claim = await claimed(stores, key(tenant))
        await stores.sessions.delete_user(tenant, "u", "a")
        user = key(tenant, "")
        with pytest.raises(Fenced):
            await ClaimedWrites(stores.sessions.database, claim).save_artifact(user, artifact())
        state = said("e1", CANARY, state=StateChange(user={"k": CANARY}))
        with pytest.raises(Fenced):
            await stores.sessions.append(claim.ref, state, claim.epoch)
        with pytest.raises(SessionNotFoundError):
            await SqlMemoryStore(stores.sessions.database).add(
                SessionRef(user), [fact()], added_in=claim.ref
            )
        assert await found(store_url, claim.turn.session_pk) == []


async def test_a_session_that_is_created_meanwhile_stays_whole(
    postgres_url: str, tenant: str
) -> None:
    """SQLite has one writer at a time; there, the session is created before or after."""
    async with opened(postgres_url) as stores:
        first = await stores.session(key(tenant))
        async with beside(postgres_url) as other:
            await other.execute(
                sa.select(sessions).where(sessions.c.pk == first.pk).with_for_update()
            )
            deleting = asyncio.create_task(stores.sessions.delete_user(tenant, "u", "a"))
            await until_waiting(postgres_url)
            ref = await stores.session(key(tenant, "second"))
            await stores.sessions.append(ref, said("e1", "a new text"))
            await SqlMemoryStore(stores.sessions.database).add_session(ref)
            await SqlArtifactStore(stores.sessions.database).save(ref.key, artifact())
        assert (await deleting).sessions == 1
        assert await stores.sessions.locate(ref.key) == ref
        assert await SqlArtifactStore(stores.sessions.database).names(ref.key) == ["note.txt"]
        assert len(await SqlMemoryStore(stores.sessions.database).page(ref.key, 10)) == 1
        await stores.sessions.delete(ref.key)


async def test_many_sessions(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        for number in range(250):
            await stores.session(key(tenant, f"s{number}"))
        assert (await stores.sessions.delete_user(tenant, "u")).sessions == 250
        async with beside(store_url) as connection:
            assert await leftovers(connection, canaries=[tenant]) == []
