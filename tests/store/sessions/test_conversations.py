"""Where conversations go on, on both databases."""

import sqlalchemy as sa

from lango.core.turns.events import Completed, InputRequired
from lango.store.schema.tables import conversations
from lango.store.sessions.conversations import ConversationPoint, ConversationStore
from lango.store.turns.rows import Turn
from tests.store.rows import beside, key
from tests.store.turns.turn_stores import TurnStores, opened, said

HASH = "f" * 64


async def found(
    stores: TurnStores, tenant: str, known_by: str = HASH, **of: str
) -> ConversationPoint | None:
    """The best point."""
    who = {"user": "u", "app": "a"} | of
    store = ConversationStore(stores.sessions.database)
    return next(iter(await store.find(tenant, known_by=known_by, **who)), None)


async def noted(stores: TurnStores, turn: Turn, known_by: str = HASH) -> None:
    await ConversationStore(stores.sessions.database).add(turn, known_by)


async def test_a_conversation_is_found_where_it_was_noted(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        assert await found(stores, tenant) is None
        turn = await stores.submit(key(tenant))
        for _ in range(2):
            await noted(stores, turn)
        point = await found(stores, tenant)
        assert point is not None
        assert (point.session, point.session_pk, point.turn) == (key(tenant), ref.pk, 1)
        assert point.public_id == (await stores.sessions.summary(key(tenant))).public_id
        assert (point.is_end, point.has_key) == (True, False)


async def test_a_conversation_is_found_by_its_owner_alone(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        await noted(stores, await stores.submit(key(tenant)))
        assert await found(stores, f"{tenant}-other") is None
        assert await found(stores, tenant, user="v") is None
        assert await found(stores, tenant, app="b") is None
        assert await found(stores, tenant, "0" * 64) is None


async def test_the_end_of_a_session_comes_before_an_earlier_point(
    store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        for name in ("old", "new"):
            await stores.session(key(tenant, name))
            await noted(stores, await stores.submit(key(tenant, name)))
        await stores.submit(key(tenant, "new"), "more")
        point = await found(stores, tenant)
        assert point is not None
        assert (point.session, point.is_end) == (key(tenant, "old"), True)
        await stores.submit(key(tenant, "old"), "more")
        point = await found(stores, tenant)
        assert point is not None
        assert (point.session, point.turn, point.is_end) == (key(tenant, "new"), 1, False)
        assert point.last == 2


async def test_an_answer_to_an_approval_is_part_of_its_turn(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, await stores.worker())
        await stores.queue.close(claim, InputRequired(("call",)))
        await noted(stores, turn)
        await stores.turns.answer(tenant, turn.id, "call", said())
        point = await found(stores, tenant)
        assert point is not None
        assert point.is_end


async def test_a_late_answer_is_no_later_message(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        asking = await stores.submit(key(tenant))
        await stores.queue.close(await stores.claim(ref.pk, worker), InputRequired(("call",)))
        other = await stores.submit(key(tenant), "other")
        await stores.queue.close(await stores.claim(ref.pk, worker), Completed())
        await noted(stores, asking, "0" * 64)
        await noted(stores, other)
        answer = (await stores.turns.answer(tenant, asking.id, "call", said())).turn
        for _ in range(2):
            point = await found(stores, tenant)
            assert point is not None
            assert (point.turn, point.last, point.is_end) == (2, 3, True)
            earlier = await found(stores, tenant, "0" * 64)
            assert earlier is not None
            assert not earlier.is_end
            cancelled = await stores.turns.cancel(tenant, answer.id)
            assert cancelled.answers is None  # its call can be answered again
        await stores.submit(key(tenant), "thanks")
        point = await found(stores, tenant)
        assert point is not None
        assert not point.is_end


async def test_a_session_with_the_key_comes_first(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        for name in ("one", "two"):
            await stores.session(key(tenant, name))
            await noted(stores, await stores.submit(key(tenant, name)))
        await stores.turns.submit(key(tenant, "one"), said(idempotency_key="k"))
        point = await found(stores, tenant, idempotency_key="k")
        assert point is not None
        assert (point.session, point.is_end, point.has_key) == (key(tenant, "one"), False, True)
        point = await found(stores, tenant, idempotency_key="other")
        assert point is not None
        assert (point.session, point.has_key) == (key(tenant, "two"), False)


async def test_it_goes_with_its_session(store_url: str, tenant: str) -> None:
    statement = sa.select(sa.func.count()).where(conversations.c.tenant == tenant)
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        await noted(stores, turn)
        await stores.sessions.delete(key(tenant))
        await noted(stores, turn)
        assert await found(stores, tenant) is None
    async with beside(store_url) as connection:
        assert await connection.scalar(statement) == 0
