"""What is left of a deleted session: nothing, even while turns write to it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from faults.store.leftovers import leftovers
from lango.core.context.model_calls import PromptPart
from lango.core.turns.events import MessageDelta
from lango.errors import Fenced, SessionNotFoundError
from lango.store.db.statement import CoreTransaction
from lango.store.files import rows as artifact_rows
from lango.store.files.artifacts import SqlArtifactStore
from lango.store.files.contents import BytesInMemory
from lango.store.files.rows import NewArtifact
from lango.store.files.uploads import NewFile, SqlFileStore
from lango.store.model_calls import ModelCallStore
from lango.store.schema.tables import turns
from lango.store.sessions.conversations import ConversationStore
from lango.store.sessions.entries import Blob, SessionKey, SessionRef, StateChange
from lango.store.sessions.store import create_session
from lango.store.turns.claimed_writes import ClaimedWrites
from lango.store.turns.ledger import ToolRun
from lango.store.turns.rows import Claim
from tests.store.rows import beside, key, said, until_waiting
from tests.store.test_model_calls import call
from tests.store.turns.turn_stores import TurnStores, opened

CANARY = "canary-4711"


def artifact(name: str = "note.txt") -> NewArtifact:
    return NewArtifact(name, CANARY.encode(), {"text": ""}, "text/plain")


async def found(url: str, *pks: int | None) -> list[str]:
    async with beside(url) as connection:
        return await leftovers(
            connection, canaries=[CANARY], pks=[pk for pk in pks if pk is not None]
        )


async def claimed(stores: TurnStores, where: SessionKey) -> Claim:
    ref = await stores.session(where)
    await stores.submit(where, CANARY)
    return await stores.claim(ref.pk, await stores.worker())


async def fill(stores: TurnStores, claim: Claim) -> int:
    """Write to a session, its turn and a child session of it all that can be; the child's key."""
    where, database, writes = claim.turn.session, stores.sessions.database, None
    writes = ClaimedWrites(database, claim)
    blob = Blob("moved", artifact_rows.EVENT_DATA, "text/plain", CANARY.encode(), {})
    await stores.sessions.append(claim.ref, said("e1", CANARY, blobs=(blob,)), claim.epoch)
    state = said("e2", changes=f'{{"k": "{CANARY}"}}', state_only=True)
    await stores.sessions.append(claim.ref, state, claim.epoch)
    run = ToolRun(claim.turn.invocation_id, "call-1", "tool", {"said": CANARY})
    await stores.ledger.start(claim, run)
    await stores.ledger.finish(claim, run, CANARY)
    await stores.log.append(claim, [MessageDelta("m", CANARY)])
    await writes.save_artifact(where, artifact())
    await SqlFileStore(database).save(
        where, NewFile(CANARY, "text/plain", BytesInMemory(b"upload"))
    )
    child = replace(where, session_id=f"{claim.turn.id}/call-1")
    await writes.open_child(child, StateChange({"k": CANARY}))
    ref = await stores.sessions.locate(child)
    await writes.append(ref, said("e3", CANARY))
    record = call(system=PromptPart(CANARY), tools=PromptPart(f"tools {CANARY}"), agent=CANARY)
    known = replace(record, session_pk=claim.turn.session_pk)
    await ModelCallStore(database).add(where.tenant, [known])
    await ConversationStore(database).add(claim.turn, CANARY)
    return ref.pk or 0


async def test_nothing_is_left_of_a_deleted_session(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await claimed(stores, key(tenant))
        pks = (claim.turn.session_pk, await fill(stores, claim))
        tables = {line.split(" ")[3] for line in await found(store_url, *pks)}
        assert tables == {
            *("sessions", "messages", "state_changes", "turns", "turn_events", "tool_ledger"),
            *("artifacts", "artifact_chunks", "model_calls", "prompt_parts"),
            *("prompt_part_sessions", "conversations"),
        }
        await stores.sessions.delete(key(tenant))
        assert await found(store_url, *pks) == []


@pytest.mark.parametrize("what", ["artifact", "child"])
async def test_a_write_of_its_turn_that_is_under_way_is_waited_for(
    postgres_url: str, tenant: str, what: str
) -> None:
    """SQLite has one writer at a time, so there is nothing to wait for."""
    where = key(tenant)
    async with opened(postgres_url) as stores:
        claim = await claimed(stores, where)
        pk = claim.turn.session_pk
        async with beside(postgres_url) as other:
            await other.execute(sa.select(turns).where(turns.c.session_pk == pk).with_for_update())
            deleting = asyncio.create_task(stores.sessions.delete(where))
            await until_waiting(postgres_url)
            if what == "artifact":
                await artifact_rows.add_version(other, where, artifact())
            else:
                named = replace(where, session_id="child")
                state = StateChange({"k": CANARY})
                await create_session(
                    CoreTransaction(other), named, f"ses_{tenant}", state, parent_pk=pk
                )
        await deleting
        assert await found(postgres_url, pk) == []
        with pytest.raises(Fenced):
            await ClaimedWrites(stores.sessions.database, claim).save_artifact(where, artifact())


async def test_an_artifact_is_refused_without_its_session(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        store = SqlArtifactStore(stores.sessions.database)
        with pytest.raises(SessionNotFoundError):
            await store.save(key(tenant), artifact(), requires_session=True)
        assert await found(store_url) == []
        ref = await stores.session(key(tenant))
        await store.save(key(tenant), artifact(), requires_session=True)
        await store.save(key(tenant, ""), replace(artifact(), data=b"of the user"))
        await stores.sessions.delete(key(tenant))
        assert await found(store_url, ref.pk) == []
        assert await store.names(key(tenant, "")) == ["note.txt"]


async def test_a_save_without_a_turn_keeps_a_delete_out(postgres_url: str, tenant: str) -> None:
    where = key(tenant)
    async with opened(postgres_url) as stores:
        ref = await stores.session(where)
        async with beside(postgres_url) as other:
            assert await artifact_rows.hold_session(other, where)
            deleting = asyncio.create_task(stores.sessions.delete(where))
            await until_waiting(postgres_url)
            await artifact_rows.add_version(other, where, artifact())
        await deleting
        assert await found(postgres_url, ref.pk) == []


async def test_what_is_meant_for_a_deleted_session_does_not_reach_the_next(
    store_url: str, tenant: str
) -> None:
    """One of the same name, made since: a file, a delete, and records of model calls."""
    where = key(tenant)
    async with opened(store_url) as stores:
        old = await stores.sessions.create(where)
        await stores.sessions.delete(where)
        new = await stores.sessions.create(where)
        files, calls = (
            SqlFileStore(stores.sessions.database),
            ModelCallStore(stores.sessions.database),
        )
        file = NewFile(CANARY, "text/plain", BytesInMemory(b"upload"))
        with pytest.raises(SessionNotFoundError):
            await files.save(where, file, public_id=old.public_id)
        record = call(system=PromptPart(CANARY))
        await calls.add(tenant, [replace(record, session_pk=old.pk)])
        assert await calls.of_session(where) == []
        assert await found(store_url) == []
        await stores.sessions.delete(where, public_id=old.public_id)
        assert (await stores.sessions.locate(where)).pk == new.pk
        await files.save(where, file, public_id=new.public_id)
        await calls.add(tenant, [replace(record, session_pk=new.pk)])
        assert len(await calls.of_session(where)) == 1
        await stores.sessions.delete(where, public_id=new.public_id)
        assert await found(store_url, old.pk, new.pk) == []


# --- prompt parts ----------------------------------------------------------------------------


async def sent(
    calls: ModelCallStore, ref: SessionRef, *, parts_only: bool, **parts: PromptPart
) -> None:
    """A request of a session is recorded, or only the parts of its prompt."""
    record = call(ref.key.session_id, session_pk=ref.pk, **parts)
    await (calls.add_parts if parts_only else calls.add)(ref.key.tenant, [record])


@pytest.mark.parametrize("parts_only", [False, True])
async def test_a_part_is_kept_as_long_as_one_session_has_sent_it(
    store_url: str, tenant: str, parts_only: bool
) -> None:
    shared, own = PromptPart(f"shared {CANARY}"), PromptPart(f"own {CANARY}")
    async with opened(store_url) as stores:
        calls = ModelCallStore(stores.sessions.database)
        refs = [await stores.session(key(tenant, name)) for name in ("a", "b")]
        await sent(calls, refs[0], parts_only=parts_only, system=shared, tools=own)
        await sent(calls, refs[1], parts_only=parts_only, system=shared)
        await stores.sessions.delete(key(tenant, "a"))
        assert await calls.prompt_part(tenant, own.hash) is None
        assert await calls.prompt_part(tenant, shared.hash) == shared.text
        # Known, and yet deleted:
        await sent(calls, refs[1], parts_only=parts_only, system=shared, tools=own)
        assert await calls.prompt_part(tenant, own.hash) == own.text
        await stores.sessions.delete(key(tenant, "b"))
        assert await found(store_url, *(ref.pk for ref in refs)) == []


@pytest.mark.parametrize("parts_only", [False, True])
async def test_parts_that_are_sent_and_deleted_at_once(
    store_url: str, tenant: str, parts_only: bool
) -> None:
    """Every session that is left has its texts, and the others have left none."""
    part = PromptPart(f"shared {CANARY}")
    async with opened(store_url) as stores:
        calls = [ModelCallStore(stores.sessions.database) for _ in range(2)]

        async def one(number: int) -> None:
            name = f"s{number}"
            ref = await stores.session(key(tenant, name))
            await sent(calls[number % 2], ref, parts_only=parts_only, system=part)
            assert await calls[0].prompt_part(tenant, part.hash) == part.text
            if number % 4:
                await stores.sessions.delete(key(tenant, name))

        for _ in range(3):
            await asyncio.gather(*map(one, range(8)))
            assert await calls[0].prompt_part(tenant, part.hash) == part.text
            for number in (0, 4):
                await stores.sessions.delete(key(tenant, f"s{number}"))
            assert await found(store_url) == []


async def test_parts_of_a_deleted_session_are_not_written(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.sessions.delete(key(tenant))
        calls = ModelCallStore(stores.sessions.database)
        await sent(calls, ref, parts_only=True, system=PromptPart(CANARY))
        assert await found(store_url, ref.pk) == []


async def test_a_part_that_is_being_deleted_is_written_again(
    postgres_url: str, tenant: str
) -> None:
    part = PromptPart("Be brief.")
    async with opened(postgres_url) as stores:
        calls = ModelCallStore(stores.sessions.database)
        old, new = [await stores.session(key(tenant, name)) for name in ("old", "new")]
        await sent(calls, old, parts_only=True, system=part)
        async with beside(postgres_url) as other:
            lock = "select 1 from prompt_parts where tenant = :tenant for update"
            await other.execute(sa.text(lock), {"tenant": tenant})
            writing = asyncio.create_task(sent(calls, new, parts_only=True, system=part))
            await until_waiting(postgres_url)
            gone = sa.text("delete from prompt_parts where tenant = :tenant")
            await other.execute(gone, {"tenant": tenant})
        await writing
        assert await calls.prompt_part(tenant, part.hash) == part.text


# --- artifacts of a user ---------------------------------------------------------------------


@pytest.mark.parametrize("is_claimed", [True, False])
async def test_sessions_of_a_user_save_one_artifact_at_once(
    store_url: str, tenant: str, is_claimed: bool
) -> None:
    of_user = key(tenant, "")
    async with opened(store_url) as stores:
        database = stores.sessions.database
        claims = [await claimed(stores, key(tenant, f"s{number}")) for number in range(8)]
        new = NewArtifact("user:profile.txt", b"x" * 300_000, {"text": ""}, "text/plain")

        def save(claim: Claim) -> Any:
            if is_claimed:
                return ClaimedWrites(database, claim).save_artifact(of_user, new)
            return SqlArtifactStore(database).save(of_user, new)

        versions = await asyncio.gather(*map(save, claims))
        assert sorted(versions) == list(range(8))
        for claim in claims:
            await stores.sessions.delete(claim.turn.session)
