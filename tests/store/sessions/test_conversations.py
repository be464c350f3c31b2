"""Where conversations go on, on both databases."""

import sqlalchemy as sa

from lango.core.turns.events import Completed, InputRequired
from lango.store.schema.tables import conversations
from lango.store.sessions.conversations import ConversationPoint, ConversationStore
from lango.store.turns.rows import Turn
from tests.store.rows import beside, key
from tests.store.turns.worker_context import Desk, opened, said

HASH = "f" * 64


async def found(
    desk: Desk, tenant: str, known_by: str = HASH, **of: str
) -> ConversationPoint | None:
    """The best point."""
    who = {"user": "u", "app": "a"} | of
    store = ConversationStore(desk.sessions.database)
    return next(iter(await store.find(tenant, known_by=known_by, **who)), None)


async def noted(desk: Desk, turn: Turn, known_by: str = HASH) -> None:
    await ConversationStore(desk.sessions.database).add(turn, known_by)


async def test_a_conversation_is_found_where_it_was_noted(store_url: str, tenant: str) -> None:
    async with opened(store_url) as desk:
        ref = await desk.session(key(tenant))
        assert await found(desk, tenant) is None
        turn = await desk.submit(key(tenant))
        for _ in range(2):
            await noted(desk, turn)
        point = await found(desk, tenant)
        assert point is not None
        assert (point.session, point.session_pk, point.turn) == (key(tenant), ref.pk, 1)
        assert point.public_id == (await desk.sessions.summary(key(tenant))).public_id
        assert (point.is_end, point.has_key) == (True, False)


async def test_a_conversation_is_found_by_its_owner_alone(store_url: str, tenant: str) -> None:
    async with opened(store_url) as desk:
        await desk.session(key(tenant))
        await noted(desk, await desk.submit(key(tenant)))
        assert await found(desk, f"{tenant}-other") is None
        assert await found(desk, tenant, user="v") is None
        assert await found(desk, tenant, app="b") is None
        assert await found(desk, tenant, "0" * 64) is None


async def test_the_end_of_a_session_comes_before_an_earlier_point(
    store_url: str, tenant: str
) -> None:
    async with opened(store_url) as desk:
        for name in ("old", "new"):
            await desk.session(key(tenant, name))
            await noted(desk, await desk.submit(key(tenant, name)))
        await desk.submit(key(tenant, "new"), "more")
        point = await found(desk, tenant)
        assert point is not None
        assert (point.session, point.is_end) == (key(tenant, "old"), True)
        await desk.submit(key(tenant, "old"), "more")
        point = await found(desk, tenant)
        assert point is not None
        assert (point.session, point.turn, point.is_end) == (key(tenant, "new"), 1, False)
        assert point.last == 2


async def test_an_answer_to_an_approval_is_part_of_its_turn(store_url: str, tenant: str) -> None:
    async with opened(store_url) as desk:
        ref = await desk.session(key(tenant))
        turn = await desk.submit(key(tenant))
        claim = await desk.claim(ref.pk, await desk.worker())
        await desk.queue.close(claim, InputRequired(("call",)))
        await noted(desk, turn)
        await desk.turns.answer(tenant, turn.id, "call", said())
        point = await found(desk, tenant)
        assert point is not None
        assert point.is_end


async def test_a_late_answer_is_no_later_message(store_url: str, tenant: str) -> None:
    async with opened(store_url) as desk:
        ref, worker = await desk.session(key(tenant)), await desk.worker()
        asking = await desk.submit(key(tenant))
        await desk.queue.close(await desk.claim(ref.pk, worker), InputRequired(("call",)))
        other = await desk.submit(key(tenant), "other")
        await desk.queue.close(await desk.claim(ref.pk, worker), Completed())
        await noted(desk, asking, "0" * 64)
        await noted(desk, other)
        answer = (await desk.turns.answer(tenant, asking.id, "call", said())).turn
        for _ in range(2):
            point = await found(desk, tenant)
            assert point is not None
            assert (point.turn, point.last, point.is_end) == (2, 3, True)
            earlier = await found(desk, tenant, "0" * 64)
            assert earlier is not None
            assert not earlier.is_end
            cancelled = await desk.turns.cancel(tenant, answer.id)
            assert cancelled.answers is None  # its call can be answered again
        await desk.submit(key(tenant), "thanks")
        point = await found(desk, tenant)
        assert point is not None
        assert not point.is_end


async def test_a_session_with_the_key_comes_first(store_url: str, tenant: str) -> None:
    async with opened(store_url) as desk:
        for name in ("one", "two"):
            await desk.session(key(tenant, name))
            await noted(desk, await desk.submit(key(tenant, name)))
        await desk.turns.submit(key(tenant, "one"), said(idempotency_key="k"))
        point = await found(desk, tenant, idempotency_key="k")
        assert point is not None
        assert (point.session, point.is_end, point.has_key) == (key(tenant, "one"), False, True)
        point = await found(desk, tenant, idempotency_key="other")
        assert point is not None
        assert (point.session, point.has_key) == (key(tenant, "two"), False)


async def test_it_goes_with_its_session(store_url: str, tenant: str) -> None:
    statement = sa.select(sa.func.count()).where(conversations.c.tenant == tenant)
    async with opened(store_url) as desk:
        await desk.session(key(tenant))
        turn = await desk.submit(key(tenant))
        await noted(desk, turn)
        await desk.sessions.delete(key(tenant))
        await noted(desk, turn)
        assert await found(desk, tenant) is None
    async with beside(store_url) as connection:
        assert await connection.scalar(statement) == 0
