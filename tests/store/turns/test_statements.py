"""Submit, claim and close on PostgreSQL: their round trips, and what they see after a wait."""

import asyncio
from collections.abc import Awaitable
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.pg import with_port
from bench.store.wire import WireProxy
from lango.core.turns.events import Cancelled, Completed, Failed
from lango.store.db import liveness
from lango.store.sessions.entries import SessionKey
from lango.store.turns.statements import SUBMIT, turn_and_rest
from tests.store.rows import PATIENCE, key, raw
from tests.store.turns.turn_stores import opened, said
from tests.support.databases import direct

_LOCK = "select from sessions where pk = $1 for update"
_IS_WAITING = """
select count(*) from pg_locks
where not granted and transactionid = pg_current_xact_id()::xid"""
_END = "update turns set state = 'completed', ended = now() where session_pk = $1"
_RELEASE = "update sessions set owner = null where pk = $1"
_CANCEL = "update turns set state = 'cancelled', ready = null, ended = now() where session_pk = $1"
_QUEUE_ANOTHER = """
insert into turns (session_pk, number, id, app, tenant, state, invocation_id, input, options,
  input_hash, idempotency_key, queue_position, time_limit, created)
select session_pk, 2, id || '.2', app, tenant, 'queued', 'i', input, options, 'h', 'k', 2, 60, now()
from turns where session_pk = $1"""


async def _after_a_wait(url: str, pk: int | None, work: Awaitable[Any], *changes: str) -> Any:
    """What comes of work that waits for a session's row while another transaction changes it."""
    async with raw(url) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(_LOCK, pk)
        waiting = asyncio.ensure_future(work)
        async with asyncio.timeout(PATIENCE):
            while not await other.fetchval(_IS_WAITING):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        for change in changes:
            await other.execute(change, pk)
        await transaction.commit()
        return await waiting


async def test_a_submit_that_waited_for_a_close_is_ready(postgres_url: str, tenant: str) -> None:
    async with opened(postgres_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        await stores.submit(key(tenant))
        await stores.claim(ref.pk, worker)
        submit = stores.turns.submit(key(tenant), said())
        submitted = await _after_a_wait(postgres_url, ref.pk, submit, _END, _RELEASE)
        assert submitted.wakes
        assert submitted.turn.number == 2
        (head,) = await stores.heads([submitted.turn.session_pk])
        assert head.turn == submitted.turn.id


async def test_a_submit_that_waited_for_a_cancel_is_ready(postgres_url: str, tenant: str) -> None:
    async with opened(postgres_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.submit(key(tenant))
        submit = stores.turns.submit(key(tenant), said())
        submitted = await _after_a_wait(postgres_url, ref.pk, submit, _CANCEL)
        assert submitted.wakes


async def test_a_close_that_waited_makes_a_new_turn_ready(postgres_url: str, tenant: str) -> None:
    async with opened(postgres_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        turn = await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, worker)
        closed = await _after_a_wait(postgres_url, ref.pk, stores.finish(claim), _QUEUE_ANOTHER)
        assert closed.next is not None
        assert closed.next.turn == f"{turn.id}.2"


async def test_a_session_that_is_created_between_the_runs(postgres_url: str, tenant: str) -> None:
    """The second run has locked it, but may have waited for it: the statement does nothing."""
    names = (tenant, "app", "user", "session")
    turn = (f"turn_{tenant}", "flow", "{}", "{}", "hash", 60.0, None, None, None, "Title")
    conditions = (None, None, f"turn_{tenant}", None, False)
    async with opened(postgres_url) as stores, raw(postgres_url) as submits:
        async with submits.transaction():
            nothing = (None,) * len((*conditions, *turn))
            assert await submits.fetch(SUBMIT, False, *names, *nothing) == []
            await stores.session(SessionKey(*names))
            [(looks, *columns)] = await submits.fetch(SUBMIT, True, *names, *conditions, *turn)
            assert (looks, turn_and_rest(columns)[0]) == (True, None)
        async with submits.transaction():
            await submits.fetch(SUBMIT, False, *names, *nothing)
            [(_, *columns)] = await submits.fetch(SUBMIT, True, *names, *conditions, *turn)
            assert turn_and_rest(columns)[0] is not None


@pytest.mark.parametrize("end", [Completed(), Cancelled("half"), Failed(RuntimeError("no"))])
async def test_round_trips(
    postgres_url: str, tenant: str, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third turn counts: on a new connection each statement is prepared first."""
    monkeypatch.setattr(liveness, "TRY_AFTER", 3600.0)  # a probe is a round trip, too
    server = urlsplit(direct(postgres_url))
    counts: dict[str, int] = {}
    async with WireProxy(server.hostname or "", server.port or 5432) as proxy:

        async def trips(name: str, work: Awaitable[Any]) -> Any:
            proxy.traffic.reset()
            done = await work
            counts[name] = proxy.traffic.round_trips
            return done

        async with opened(with_port(direct(postgres_url), proxy.port)) as stores:
            ref, worker = await stores.session(key(tenant)), await stores.worker()
            for _ in range(3):
                await trips("submit", stores.submit(key(tenant)))
                claim = await trips("claim", stores.claim(ref.pk, worker))
                again = stores.queue.claim(ref.pk or 0, await stores.worker())
                assert await trips("claim of a held session", again) is None
                await trips("close", stores.queue.close(claim, end))
    assert counts == {"submit": 1, "claim": 1, "claim of a held session": 1, "close": 2}
