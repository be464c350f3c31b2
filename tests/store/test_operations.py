"""What operators see of a database: workers, open turns by tenant, running and failed turns."""

from datetime import UTC, datetime, timedelta

from lango.core.causes import Cause
from lango.core.turns.events import (
    Approval,
    ApprovalRequired,
    Event,
    Failed,
    InputRequired,
    ToolStarted,
)
from lango.core.turns.states import RETRY_OF
from lango.errors import ModelTimeoutError
from lango.insight.operations import read_operations
from lango.store.insight.failures import read_failures
from lango.store.insight.fleet import read_fleet, read_running
from lango.store.insight.waiting import read_waiting
from lango.store.insight.workers import read_workers
from lango.store.sessions.entries import SessionKey
from tests.store.rows import execute
from tests.store.turns.turn_stores import DEAD_AFTER, TurnStores, opened, said
from tests.store.turns.watch import Watch

HOUR_AGO = timedelta(hours=1)


def where(tenant: str, session: str = "s", app: str = "a") -> SessionKey:
    return SessionKey(tenant, app, "ann", session)


async def ended(
    stores: TurnStores, key: SessionKey, end: Failed | InputRequired, *before: Event
) -> str:
    """Submit a turn, claim it and end it; its id."""
    ref = await stores.session(key)
    turn = await stores.submit(key, "hi")
    claim = await stores.claim(ref.pk, await stores.worker(key.app_name))
    await stores.queue.close(claim, end, before)
    return turn.id


async def test_workers_and_what_they_run(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        database, app = stores.sessions.database, f"app-{tenant}"
        busy, idle = await stores.worker(app), await stores.worker(app)
        await stores.freeze(idle)
        for name in (tenant, f"{tenant}-other"):
            ref = await stores.session(where(name, app=app))
            await stores.submit(where(name, app=app))
            await stores.claim(ref.pk, busy)
        known = {worker.id: worker for worker in await read_workers(database)}
        assert (known[busy.id].state, known[busy.id].running) == ("alive", 2)
        assert (known[busy.id].host, known[busy.id].pid) == ("host", 1)
        assert known[busy.id].versions == {app: "print-1"}
        assert known[busy.id].silence < DEAD_AFTER
        assert (known[idle.id].state, known[idle.id].running) == ("silent", 0)
        assert known[idle.id].silence > DEAD_AFTER
        of_tenant = {worker.id: worker for worker in await read_workers(database, tenant)}
        assert of_tenant[busy.id].running == 1
        running = await read_running(database, tenant)
        assert [(turn.tenant, turn.worker, turn.user) for turn in running] == [
            (tenant, busy.id, "ann")
        ]


async def test_open_turns_by_tenant(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        database, app = stores.sessions.database, f"app-{tenant}"
        for name, turns in ((tenant, 2), (f"{tenant}-other", 1)):
            key = where(name, app=app)
            await stores.session(key)
            for _ in range(turns):
                await stores.submit(key)
        groups = (await read_fleet(database, by_tenant=True)).turns
        counts = {group.tenant: group.count for group in groups if group.app == app}
        assert counts == {tenant: 2, f"{tenant}-other": 1}
        [of_all] = [group for group in (await read_fleet(database)).turns if group.app == app]
        assert (of_all.tenant, of_all.count) == ("", 3)
        [of_one] = (await read_fleet(database, tenant=tenant)).turns
        assert (of_one.app, of_one.count) == (app, 2)


async def test_failures_with_their_causes(store_url: str, tenant: str) -> None:
    since = datetime.now(UTC) - HOUR_AGO
    async with opened(store_url) as stores:
        database = stores.sessions.database
        first = await ended(stores, where(tenant, "one"), Failed(ValueError("the disk is full")))
        second = await ended(stores, where(tenant, "two", "b"), Failed(ModelTimeoutError("slow")))
        await ended(stores, where(f"{tenant}-other"), Failed(ValueError("another's")))
        latest, earliest = await read_failures(database, since, tenant=tenant)
        assert (earliest.turn, earliest.error, earliest.error_id) == (first, "InternalError", first)
        assert earliest.cause == Cause("ValueError", "the disk is full")
        assert (earliest.retry, earliest.is_answer) == (None, False)
        assert (latest.turn, latest.error, latest.message) == (second, "ModelTimeoutError", "slow")
        assert (latest.cause, latest.app) == (None, "b")
        assert [
            one.turn for one in await read_failures(database, since, tenant=tenant, limit=1)
        ] == [second]
        by_app = await read_failures(database, since, tenant=tenant, app="a")
        assert [one.turn for one in by_app] == [first]
        soon = datetime.now(UTC) + HOUR_AGO
        assert await read_failures(database, soon, tenant=tenant) == []
        again = await stores.turns.submit(
            where(tenant, "one"), said(idempotency_key=RETRY_OF + first)
        )
        _, earliest = await read_failures(database, since, tenant=tenant)
        assert earliest.retry == again.turn.id


async def test_turns_that_wait(store_url: str, tenant: str) -> None:
    asked = ApprovalRequired(Approval("apr_1", "call_1", "pay", {"amount": 3}))
    began = ToolStarted("call_2", "export", {"of": "all"})
    async with opened(store_url) as stores:
        database = stores.sessions.database
        end = InputRequired(("apr_1", "call_2"))
        turn = await ended(stores, where(tenant, "one"), end, asked, began)
        await ended(stores, where(f"{tenant}-other"), InputRequired(("call_3",)))
        [waiting] = await read_waiting(database, tenant)
        assert (waiting.turn, waiting.user, waiting.app) == (turn, "ann", "a")
        shown = [(call.id, call.kind, call.tool) for call in waiting.calls]
        assert shown == [("apr_1", "approval", "pay"), ("call_2", "result", "export")]
        assert "3" in waiting.calls[0].arguments
        assert await read_waiting(database, tenant, app="b") == []
        await execute(store_url, "delete from turn_events")
        [waiting] = await read_waiting(database, tenant)
        assert [(call.id, call.kind) for call in waiting.calls] == [
            ("apr_1", "unknown"),
            ("call_2", "unknown"),
        ]


async def test_the_picture_of_one_tenant(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await ended(stores, where(tenant), Failed(ValueError("no")))
        await ended(stores, where(f"{tenant}-other"), Failed(ValueError("no")))
        await stores.submit(where(tenant), "more")
        picture = await read_operations(stores.sessions.database, tenant, limit=10)
        assert [turn.tenant for turn in picture.failures] == [tenant]
        assert picture.fleet.count("queued") == 1
        assert picture.running == ()
        assert picture.workers


_ENDED = """
insert into turns (session_pk, number, id, app, tenant, state, invocation_id, input, options,
  input_hash, idempotency_key, time_limit, created, ended)
select -1, n, '{tenant}' || n, 'a', '{tenant}', 'completed', 'i', '{{}}', '{{}}', 'h', 'k' || n, 60,
  now(), now() from generate_series(1, 20000) n"""


async def test_no_list_scans_the_turns(postgres_url: str, tenant: str) -> None:
    """The lists are refreshed every few seconds: they read indexes of the few rows they show."""
    async with opened(postgres_url) as stores:
        await execute(postgres_url, _ENDED.format(tenant=tenant), "analyze turns")
        async with Watch(stores) as watch:
            await read_operations(stores.sessions.database, limit=10)
            await read_failures(stores.sessions.database, datetime.now(UTC), tenant=tenant)
            await read_fleet(stores.sessions.database, tenant=tenant)
            await read_waiting(stores.sessions.database, tenant)
        plans = await watch.plans()
        await execute(postgres_url, f"delete from turns where tenant = '{tenant}'")  # noqa: S608
    assert len(plans) >= 6
    assert [plan for plan in plans if "Seq Scan on turns" in plan] == []
