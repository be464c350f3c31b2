"""Turns that may have killed their workers: who is to blame, and how many run together."""

import sqlalchemy as sa

from lango.core.turns.events import Failed
from lango.core.turns.states import (
    ANY_LOSSES,
    MAX_ATTEMPTS,
    MIN_ALONE,
    SUSPECT_AFTER,
    SUSPECTS_TOGETHER,
    most_losses_beside,
)
from lango.store.schema.tables import turns
from lango.store.turns.rows import Claim
from tests.store.rows import beside, execute, key
from tests.store.turns.turn_stores import TurnStores, every_head, opened


async def _sessions(stores: TurnStores, tenant: str, count: int) -> list[int]:
    """Sessions with a turn each."""
    pks: list[int] = []
    for n in range(count):
        ref = await stores.session(key(tenant, f"s{n}"))
        await stores.submit(key(tenant, f"s{n}"))
        pks.append(ref.pk or 0)
    return pks


async def _die_with(stores: TurnStores, pks: list[int]) -> list[Claim | None]:
    """The claims of a worker that dies with these turns, as far as it got them."""
    worker = await stores.worker()
    claims = [await stores.queue.claim(pk, worker) for pk in pks]
    await stores.freeze(worker)
    return claims


async def _is_given_up(stores: TurnStores, pk: int) -> bool:
    claim = await stores.claim(pk, await stores.worker())
    return isinstance(claim.verdict, Failed)


async def test_turns_that_die_together_are_not_given_up(store_url: str, tenant: str) -> None:
    """Whatever happens to the others, only the one that dies alone is."""
    async with opened(store_url) as stores:
        guilty, *others = await _sessions(stores, tenant, 4)
        for _ in range(SUSPECT_AFTER + 1):  # the last time as a few suspects among themselves
            claims = await _die_with(stores, [guilty, *others])
            assert None not in claims
        for _ in range(MIN_ALONE):
            (claim,) = await _die_with(stores, [guilty])
            assert claim is not None
            assert claim.verdict is None
        assert await _is_given_up(stores, guilty)
        for pk in others:
            losses = f"update turns set attempts = {MAX_ATTEMPTS + 3} where session_pk = {pk}"  # noqa: S608
            await execute(store_url, losses)
            assert not await _is_given_up(stores, pk)


async def test_one_suspect_among_new_turns_is_to_blame(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        guilty, *others = await _sessions(stores, tenant, MAX_ATTEMPTS + 1)
        for new in others:
            claims = await _die_with(stores, [new, guilty])
            assert [claim and claim.verdict for claim in claims] == [None, None]
        assert await _is_given_up(stores, guilty)
        assert not await _is_given_up(stores, others[-1])


async def test_a_worker_runs_one_old_suspect_at_a_time(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        one, other, new = await _sessions(stores, tenant, 3)
        for _ in range(SUSPECT_AFTER + 1):
            await _die_with(stores, [one, other])
        worker = await stores.worker()
        claim = await stores.claim(one, worker)
        assert claim.losses == SUSPECT_AFTER + 1
        assert await stores.queue.claim(other, worker) is None
        await stores.claim(new, worker)
        losses = most_losses_beside([claim.losses])
        shown = await every_head(stores.queue, ["a"], most_losses=losses)
        assert other not in [head.session_pk for head in shown]
        assert other in [head.session_pk for head in await stores.heads([other])]
        await stores.finish(claim)
        await stores.claim(other, worker)


async def test_a_worker_that_was_only_frozen_is_not_judged_by_it(
    store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        one, other, late = await _sessions(stores, tenant, 3)
        worker = await stores.worker()
        await stores.claim(one, worker)
        claim = await stores.claim(other, worker)
        await stores.freeze(worker)
        await stores.claim(one, await stores.worker())  # settles that it could be either
        assert await stores.workers.beat(worker.id)
        await stores.claim(late, worker)
        await stores.finish(claim)
        await stores.freeze(worker)
        await stores.claim(late, await stores.worker())  # which was alone with it at the end
        assert await _alone(stores, late) == 1


async def _alone(stores: TurnStores, pk: int) -> int:
    statement = sa.select(turns.c.lost_alone).where(turns.c.session_pk == pk)
    async with beside(stores.url) as connection:
        return await connection.scalar(statement) or 0


def test_few_suspects_run_together_and_old_ones_alone() -> None:
    young, old = SUSPECT_AFTER, SUSPECT_AFTER + 1
    assert most_losses_beside([]) == ANY_LOSSES
    assert most_losses_beside([0, young - 1]) == ANY_LOSSES
    assert most_losses_beside([young] * (SUSPECTS_TOGETHER - 1)) == young
    assert most_losses_beside([young] * SUSPECTS_TOGETHER) == young - 1
    assert most_losses_beside([0, old]) == young - 1
