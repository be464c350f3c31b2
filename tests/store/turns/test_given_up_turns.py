"""Turns of dead workers that no worker resumes: a claim with a verdict closes them."""

import pytest

from lango.core.turns.events import Cancelled, Completed, Failed, MessageDelta
from lango.core.turns.states import MAX_ATTEMPTS
from lango.store.turns.rows import Claim, Turn
from tests.store.rows import execute, key
from tests.store.rows import said as message
from tests.store.turns.turn_stores import LONG_AGO, Lossy, TurnStores, everything_fails, opened


async def _lose(stores: TurnStores, pk: int | None) -> Claim:
    worker = await stores.worker()
    claim = await stores.claim(pk, worker)
    await stores.freeze(worker)
    return claim


async def _verdict(stores: TurnStores, pk: int | None) -> tuple[Claim, str]:
    """The next claim, and the error or the end that it is to close the turn with."""
    claim = await _lose(stores, pk)
    assert claim.verdict is not None
    if isinstance(claim.verdict, Failed):
        return claim, type(claim.verdict.error).__name__
    return claim, claim.verdict.type


async def _expire(url: str, turn: Turn) -> None:
    await execute(
        url,
        f"update turns set deadline = '{LONG_AGO}' where id = '{turn.id}'",  # noqa: S608
    )


async def test_a_turn_that_lost_too_many_workers_fails(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn, after = (
            await stores.submit(key(tenant), "bad"),
            await stores.submit(key(tenant), "next"),
        )
        claims = [await _lose(stores, ref.pk) for _ in range(MAX_ATTEMPTS)]
        assert [claim.turn.attempts for claim in claims] == list(range(1, MAX_ATTEMPTS + 1))
        assert {(claim.turn.id, claim.verdict) for claim in claims} == {(turn.id, None)}
        last, why = await _verdict(stores, ref.pk)
        assert (last.turn.id, last.turn.attempts, why) == (turn.id, MAX_ATTEMPTS, "WorkerLostError")
        assert (last.epoch, last.resumes) == (claims[-1].epoch + 1, True)
        await everything_fails(stores, claims[-1])
        closed = await stores.queue.close(last, last.verdict or Completed())
        assert closed.turn.state == "failed"
        assert closed.next is not None
        assert (closed.turn.error or {})["type"] == "WorkerLostError"
        assert await stores.logged(turn) == ["accepted", *["started"] * MAX_ATTEMPTS, "failed"]
        assert (await _lose(stores, ref.pk)).turn.id == after.id


async def test_workers_that_end_in_order_are_not_counted(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        await stores.submit(key(tenant))
        for attempt in range(1, 2 * MAX_ATTEMPTS):
            worker = await stores.worker()
            claim = await stores.claim(ref.pk, worker)
            assert (claim.turn.attempts, claim.verdict) == (attempt, None)
            for _ in range(2):  # repeated, it counts once
                await stores.workers.remove(worker.id, [claim.id])
        for _ in range(MAX_ATTEMPTS):
            assert (await _lose(stores, ref.pk)).verdict is None
        assert (await _verdict(stores, ref.pk))[1] == "WorkerLostError"


async def test_a_cancelled_turn_of_a_dead_worker_is_closed(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        zombie = await _lose(stores, ref.pk)
        await stores.turns.cancel(tenant, turn.id)
        assert await stores.state(turn) == "running"
        claim, why = await _verdict(stores, ref.pk)
        assert (claim.turn.attempts, claim.resumes, why) == (1, True, "cancelled")
        await stores.queue.close(claim, claim.verdict or Completed())
        assert await stores.logged(turn) == ["accepted", "started", "cancelled"]
        await everything_fails(stores, zombie)
        await stores.sessions.append(ref, message("free again"))


async def test_a_dead_workers_turn_has_a_deadline(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        await _lose(stores, ref.pk)
        await _expire(store_url, turn)
        claim, why = await _verdict(stores, ref.pk)
        assert (claim.turn.attempts, why) == (1, "TurnTimeoutError")


async def test_closing_may_be_cut_off_any_number_of_times(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        await _lose(stores, ref.pk)
        await _expire(store_url, turn)
        tries = [await _verdict(stores, ref.pk) for _ in range(2 * MAX_ATTEMPTS)]
        assert {(why, claim.turn.attempts) for claim, why in tries} == {("TurnTimeoutError", 1)}
        epochs = [claim.epoch for claim, _ in tries]
        assert epochs == list(range(2, 2 + len(tries)))
        await everything_fails(stores, tries[-2][0])
        (head,) = await stores.heads([ref.pk or 0])
        assert head.lost
        assert await stores.logged(turn) == ["accepted", "started"]


async def test_a_living_worker_closes_what_it_has_taken(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        await _lose(stores, ref.pk)
        await stores.turns.cancel(tenant, turn.id)
        claim = await stores.claim(ref.pk, await stores.worker())
        assert claim.verdict == Cancelled()
        assert await stores.queue.claim(ref.pk or 0, await stores.worker()) is None
        assert await stores.heads([ref.pk or 0]) == []
        await stores.log.append(claim, [MessageDelta("m", "x")])
        await stores.sessions.append(ref, message("closing"), claim.epoch)


async def test_a_lost_reply_does_not_change_the_verdict(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        lossy = Lossy(stores, monkeypatch)
        claims = [await _lose(stores, ref.pk) for _ in range(MAX_ATTEMPTS)]
        assert lossy.done >= 2 * MAX_ATTEMPTS
        assert [claim.verdict for claim in claims] == [None] * MAX_ATTEMPTS
        given_up = [(await _verdict(stores, ref.pk))[1] for _ in range(2)]
        assert given_up == ["WorkerLostError"] * 2
        assert await stores.logged(turn) == ["accepted", *["started"] * MAX_ATTEMPTS]
