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
from tests.store.turns.worker_context import Desk, every_head, opened


async def _sessions(desk: Desk, tenant: str, count: int) -> list[int]:
    """Sessions with a turn each."""
    pks: list[int] = []
    for n in range(count):
        ref = await desk.session(key(tenant, f"s{n}"))
        await desk.submit(key(tenant, f"s{n}"))
        pks.append(ref.pk or 0)
    return pks


async def _die_with(desk: Desk, pks: list[int]) -> list[Claim | None]:
    """The claims of a worker that dies with these turns, as far as it got them."""
    worker = await desk.worker()
    claims = [await desk.queue.claim(pk, worker) for pk in pks]
    await desk.freeze(worker)
    return claims


async def _is_given_up(desk: Desk, pk: int) -> bool:
    claim = await desk.claim(pk, await desk.worker())
    return isinstance(claim.verdict, Failed)


async def test_turns_that_die_together_are_not_given_up(store_url: str, tenant: str) -> None:
    """Whatever happens to the others, only the one that dies alone is."""
    async with opened(store_url) as desk:
        guilty, *others = await _sessions(desk, tenant, 4)
        for _ in range(SUSPECT_AFTER + 1):  # the last time as a few suspects among themselves
            claims = await _die_with(desk, [guilty, *others])
            assert None not in claims
        for _ in range(MIN_ALONE):
            (claim,) = await _die_with(desk, [guilty])
            assert claim is not None
            assert claim.verdict is None
        assert await _is_given_up(desk, guilty)
        for pk in others:
            losses = f"update turns set attempts = {MAX_ATTEMPTS + 3} where session_pk = {pk}"  # noqa: S608
            await execute(store_url, losses)
            assert not await _is_given_up(desk, pk)


async def test_one_suspect_among_new_turns_is_to_blame(store_url: str, tenant: str) -> None:
    async with opened(store_url) as desk:
        guilty, *others = await _sessions(desk, tenant, MAX_ATTEMPTS + 1)
        for new in others:
            claims = await _die_with(desk, [new, guilty])
            assert [claim and claim.verdict for claim in claims] == [None, None]
        assert await _is_given_up(desk, guilty)
        assert not await _is_given_up(desk, others[-1])


async def test_a_worker_runs_one_old_suspect_at_a_time(store_url: str, tenant: str) -> None:
    async with opened(store_url) as desk:
        one, other, new = await _sessions(desk, tenant, 3)
        for _ in range(SUSPECT_AFTER + 1):
            await _die_with(desk, [one, other])
        worker = await desk.worker()
        claim = await desk.claim(one, worker)
        assert claim.losses == SUSPECT_AFTER + 1
        assert await desk.queue.claim(other, worker) is None
        await desk.claim(new, worker)
        losses = most_losses_beside([claim.losses])
        shown = await every_head(desk.queue, ["a"], most_losses=losses)
        assert other not in [head.session_pk for head in shown]
        assert other in [head.session_pk for head in await desk.heads([other])]
        await desk.finish(claim)
        await desk.claim(other, worker)


async def test_a_worker_that_was_only_frozen_is_not_judged_by_it(
    store_url: str, tenant: str
) -> None:
    async with opened(store_url) as desk:
        one, other, late = await _sessions(desk, tenant, 3)
        worker = await desk.worker()
        await desk.claim(one, worker)
        claim = await desk.claim(other, worker)
        await desk.freeze(worker)
        await desk.claim(one, await desk.worker())  # settles that it could be either
        assert await desk.workers.beat(worker.id)
        await desk.claim(late, worker)
        await desk.finish(claim)
        await desk.freeze(worker)
        await desk.claim(late, await desk.worker())  # which was alone with it at the end
        assert await _alone(desk, late) == 1


async def _alone(desk: Desk, pk: int) -> int:
    statement = sa.select(turns.c.lost_alone).where(turns.c.session_pk == pk)
    async with beside(desk.url) as connection:
        return await connection.scalar(statement) or 0


def test_few_suspects_run_together_and_old_ones_alone() -> None:
    young, old = SUSPECT_AFTER, SUSPECT_AFTER + 1
    assert most_losses_beside([]) == ANY_LOSSES
    assert most_losses_beside([0, young - 1]) == ANY_LOSSES
    assert most_losses_beside([young] * (SUSPECTS_TOGETHER - 1)) == young
    assert most_losses_beside([young] * SUSPECTS_TOGETHER) == young - 1
    assert most_losses_beside([0, old]) == young - 1
