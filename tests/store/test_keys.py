"""API keys on both databases."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio
import sqlalchemy as sa

from lango.core.keys import KeyLimits, KeyText
from lango.core.turns.states import NewTurn
from lango.errors import InvalidIdError, InvalidKeyError, KeyNotFoundError
from lango.store.db.clock import now
from lango.store.keys import KeyStore
from lango.store.schema.tables import api_keys
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.submit import SqlTurnStore
from tests.store.rows import created, key

GONE = -7200.0  # seconds


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[SqlSessionStore]:
    async with SqlSessionStore(store_url) as store:
        yield store


@pytest.fixture
def keys(store: SqlSessionStore) -> KeyStore:
    return KeyStore(store.database)


def sent(text: str) -> KeyText:
    """A key as a client sends it."""
    read = KeyText.read(text)
    assert read is not None
    return read


async def set_time(store: SqlSessionStore, key_id: str, column: str, after: float) -> None:
    """Have a time of a key be so many seconds from now."""
    async with store.database.begin() as connection:
        moment = now(connection) + timedelta(seconds=after)
        statement = sa.update(api_keys).where(api_keys.c.id == key_id)
        await connection.execute(statement.values({column: moment}))


async def test_a_key_is_found_by_its_text_alone(keys: KeyStore, tenant: str) -> None:
    limits = KeyLimits(requests=60, turns=2, cost=1.5)
    made, text = await keys.create(
        tenant, user="ann", name="laptop", scopes=["chat", "act_as"], limits=limits
    )
    assert (made.tenant, made.user, made.name, made.limits) == (tenant, "ann", "laptop", limits)
    assert made.scopes == {"chat", "act_as"}
    found = await keys.find(sent(text))
    assert found is not None
    assert replace(found, last_used=None) == made
    assert await keys.find(KeyText(made.id, KeyText.new().secret)) is None
    assert await keys.find(KeyText.new()) is None


async def test_the_secret_is_not_in_the_database(
    store: SqlSessionStore, keys: KeyStore, tenant: str
) -> None:
    made, text = await keys.create(tenant, user="ann")
    async with store.database.snapshot() as connection:
        stored = sa.select(api_keys).where(api_keys.c.id == made.id)
        row = (await connection.execute(stored)).one()
    assert sent(text).secret not in str(tuple(row))
    assert row.hash == sent(text).hash


@pytest.mark.parametrize("column", ["expires", "revoked"])
async def test_a_key_that_ended_is_not_found(
    store: SqlSessionStore, keys: KeyStore, tenant: str, column: str
) -> None:
    made, text = await keys.create(tenant, user="ann", lifetime=3600)
    assert await keys.find(sent(text)) is not None
    await set_time(store, made.id, column, GONE)
    assert await keys.find(sent(text)) is None


async def test_a_lifetime(keys: KeyStore, tenant: str) -> None:
    made, _ = await keys.create(tenant, user="ann", lifetime=3600)
    assert made.expires is not None
    assert made.expires - made.created == pytest.approx(3600, abs=60)


async def test_use_is_noted_but_not_each_time(
    store: SqlSessionStore, keys: KeyStore, tenant: str
) -> None:
    made, text = await keys.create(tenant, user="ann")

    async def last_used() -> float:
        await keys.find(sent(text))
        (listed,) = await keys.of_tenant(tenant)
        assert listed.last_used is not None
        return listed.last_used

    first = await last_used()
    await set_time(store, made.id, "last_used", 60.0)
    assert await last_used() > first  # as it was set: new enough, however slow this machine is
    await set_time(store, made.id, "last_used", GONE)
    assert await last_used() >= first


async def test_keys_are_listed_by_tenant(keys: KeyStore, tenant: str) -> None:
    first, _ = await keys.create(tenant, user="ann")
    second, _ = await keys.create(tenant, user="bob")
    await keys.create(f"{tenant}-other", user="ann")
    await keys.revoke(tenant, first.id)
    listed = await keys.of_tenant(tenant)
    assert {one.id for one in listed} == {first.id, second.id}
    assert [one.id for one in listed if one.revoked is not None] == [first.id]
    assert await keys.any()


async def test_revoking_twice_changes_nothing(keys: KeyStore, tenant: str) -> None:
    made, text = await keys.create(tenant, user="ann")
    revoked = await keys.revoke(tenant, made.id)
    assert await keys.find(sent(text)) is None
    assert await keys.revoke(tenant, made.id) == revoked


async def test_another_tenants_key_is_not_there(keys: KeyStore, tenant: str) -> None:
    made, text = await keys.create(tenant, user="ann")
    for change in (keys.revoke, keys.rotate):
        with pytest.raises(KeyNotFoundError, match=made.id):
            await change(f"{tenant}-other", made.id)
    assert await keys.find(sent(text)) is not None


async def test_rotation_keeps_two_alive_for_a_while(
    store: SqlSessionStore, keys: KeyStore, tenant: str
) -> None:
    limits = KeyLimits(turns=1)
    old, old_text = await keys.create(
        tenant, user="ann", name="laptop", limits=limits, scopes=["chat", "admin"], lifetime=1e6
    )
    new, text = await keys.rotate(tenant, old.id, grace=3600)
    same = [(one.user, one.name, one.scopes, one.limits) for one in (old, new)]
    assert same[0] == same[1]
    assert new.expires is not None
    assert new.expires - new.created == pytest.approx(1e6, abs=60)
    assert await keys.find(sent(text)) is not None
    rotated = await keys.find(sent(old_text))
    assert rotated is not None
    assert rotated.replaced_by == new.id
    assert rotated.expires is not None
    assert rotated.expires - new.created == pytest.approx(3600, abs=60)
    await set_time(store, old.id, "expires", GONE)
    assert await keys.find(sent(old_text)) is None
    assert await keys.find(sent(text)) is not None


async def test_rotation_never_lengthens_a_life(keys: KeyStore, tenant: str) -> None:
    old, old_text = await keys.create(tenant, user="ann", lifetime=600)
    await keys.rotate(tenant, old.id, grace=3600)
    rotated = await keys.find(sent(old_text))
    assert rotated is not None
    assert rotated.expires == old.expires


async def test_rotation_at_once(keys: KeyStore, tenant: str) -> None:
    old, old_text = await keys.create(tenant, user="ann")
    new, text = await keys.rotate(tenant, old.id, grace=0)
    assert new.expires is None
    assert await keys.find(sent(old_text)) is None
    assert await keys.find(sent(text)) is not None


async def test_what_cannot_be_rotated(keys: KeyStore, tenant: str) -> None:
    old, _ = await keys.create(tenant, user="ann")
    new, _ = await keys.rotate(tenant, old.id)
    with pytest.raises(InvalidKeyError, match=f"rotated already, to {new.id}"):
        await keys.rotate(tenant, old.id)
    await keys.revoke(tenant, new.id)
    with pytest.raises(InvalidKeyError, match="no longer works"):
        await keys.rotate(tenant, new.id)
    with pytest.raises(InvalidKeyError, match="grace"):
        await keys.rotate(tenant, new.id, grace=-1)


async def test_a_key_that_could_do_nothing(keys: KeyStore, tenant: str) -> None:
    with pytest.raises(InvalidKeyError, match="belongs to a user, or has the scope act_as"):
        await keys.create(tenant)
    with pytest.raises(InvalidKeyError, match="must be above 0"):
        await keys.create(tenant, user="ann", lifetime=0)
    with pytest.raises(InvalidIdError):
        await keys.create(tenant, user="")
    assert await keys.of_tenant(tenant) == []
    assert (await keys.create(tenant, scopes=["act_as"])).key.user is None
    assert (await keys.create(tenant, scopes=["admin"])).key.user is None


async def test_the_same_turn_by_two_keys_is_one_turn(store: SqlSessionStore, tenant: str) -> None:
    """A client whose key was rotated between two tries gets its turn, and no conflict."""
    turns = SqlTurnStore(store.database)
    await created(store, key(tenant))
    new = NewTurn({"text": "1"}, idempotency_key="once", key_id="old")
    first = await turns.submit(key(tenant), new)
    again = await turns.submit(key(tenant), replace(new, key_id="new"))
    assert again.repeated
    assert again.turn.id == first.turn.id
