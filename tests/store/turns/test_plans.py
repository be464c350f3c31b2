"""Nothing in the queue depends on how many turns there are: the plans, on a backlog of 20,000."""

from collections.abc import AsyncGenerator

import pytest
import sqlalchemy as sa

from tests.store.rows import execute, key
from tests.store.turns.turn_stores import TurnStores, opened, said
from tests.store.turns.watch import Watch

BACKLOG = 20_000
APP = "plans"
SESSIONS = """
insert into sessions (tenant, app_name, user_id, id, public_id, state, created, updated,
  last_activity)
select '{tenant}', 'plans', 'u' || g, 's', '{tenant}' || g, '{{}}', now(), now(), now()
from generate_series(1, {sessions}) g"""
TURNS = """
insert into turns (session_pk, number, id, app, state, invocation_id, input, options, input_hash,
  idempotency_key, queue_position, ready, time_limit, created)
select s.pk, n, '{tenant}' || s.pk || '.' || n, 'plans', 'queued', 'i', '{{}}', '{{}}', 'h',
  'k' || n, n, case when n = 1 then now() end, 60, now()
from sessions s, generate_series(1, {each}) n where s.tenant = '{tenant}'"""


@pytest.fixture(params=[20, BACKLOG], ids=lambda sessions: f"{sessions} sessions")
async def stores(
    request: pytest.FixtureRequest, postgres_url: str, tenant: str
) -> AsyncGenerator[TurnStores]:
    """Stores with a backlog, over few sessions or many; statistics as autovacuum keeps them."""
    sizes = {"tenant": tenant, "sessions": request.param, "each": BACKLOG // request.param}
    await execute(postgres_url, SESSIONS.format(**sizes), TURNS.format(**sizes))
    await execute(postgres_url, "analyze sessions", "analyze turns")
    async with opened(postgres_url) as stores:
        yield stores
    keys = f"(select pk from sessions where tenant = '{tenant}')"  # noqa: S608
    await execute(
        postgres_url,
        *(f"delete from {name} where session_pk in {keys}" for name in ("turns", "turn_events")),  # noqa: S608
        f"delete from sessions where tenant = '{tenant}'",  # noqa: S608
    )


async def test_no_statement_of_the_queue_scans_the_turns(stores: TurnStores) -> None:
    worker = await stores.worker(APP)
    tenant = await _tenant(stores)
    where = key(tenant, "s", user="u1", app=APP)
    async with Watch(stores) as watch:
        heads = await stores.queue.heads([APP, "other"], limit=10)
        assert len(heads) == 10
        claim = await stores.claim(heads[0].session_pk, worker)
        await stores.finish(claim)
        turn = await stores.submit(where, "new")
        await stores.turns.submit(where, said("urgent"), busy="interrupt")
        await stores.turns.cancel(tenant, turn.id)
        await stores.queue.promote_due()
        await stores.queue.held_by(worker.id)
        await stores.turns.of_session(where)
        await stores.log.read(tenant, turn.id)
        await stores.log.trim(3600)
    plans = await watch.plans()
    assert len(plans) > 15
    assert [plan for plan in plans if "Seq Scan on turns" in plan] == []


async def _tenant(stores: TurnStores) -> str:
    (head,) = await stores.queue.heads([APP], limit=1)
    statement = sa.text(f"select tenant from sessions where pk = {head.session_pk}")  # noqa: S608
    async with stores.sessions.database.snapshot() as connection:
        return str(await connection.scalar(statement))
