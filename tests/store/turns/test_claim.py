"""Claiming and closing turns: one at a time, by the living, and every accepted one ends."""

import asyncio
import random
from typing import Any

import pytest

from lango.core.turns.events import Cancelled, Completed, Failed, MessageDelta
from lango.errors import Fenced, SessionBusyError
from lango.store.turns.ledger import ToolRun
from lango.store.turns.rows import Claim, Turn
from tests.store.rows import created, key
from tests.store.rows import said as message
from tests.store.turns.turn_stores import Lossy, TurnStores, everything_fails, opened, said

ENDS = {"completed", "cancelled", "failed"}


async def test_a_claim_says_what_there_is_to_do(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        new = said("do it", time_limit=60)
        turn = (await stores.turns.submit(key(tenant), new)).turn
        claim = await stores.claim(ref.pk, worker)
        assert (claim.turn.id, claim.turn.input) == (turn.id, {"text": "do it"})
        assert (claim.turn.state, claim.turn.attempts, claim.resumes) == ("running", 1, False)
        assert (claim.epoch, claim.worker, claim.ran_under) == (1, worker.id, "")
        assert claim.time_left == pytest.approx(60, abs=5)
        await stores.sessions.append(ref, message("1"), claim.epoch)
        with pytest.raises(SessionBusyError):
            await stores.sessions.append(ref, message("2"))
        closed = await stores.queue.close(claim, Completed(), [MessageDelta("m", "bye")])
        assert (closed.turn.state, closed.next) == ("completed", None)
        await stores.sessions.append(ref, message("3"))
        expected = ["accepted", "started", "message.delta", "completed"]
        assert await stores.logged(turn) == expected


async def test_nothing_is_claimed_where_nothing_is_to_do(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        for pk in (ref.pk or 0, 10**9):
            assert await stores.queue.claim(pk, worker) is None
        assert await stores.queue.heads([]) == []


@pytest.mark.parametrize("why", ["another app", "never registered", "counts as dead"])
async def test_who_may_not_claim(why: str, store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        worker = await stores.worker(*(["other"] if why == "another app" else []))
        await stores.submit(key(tenant))
        if why == "never registered":
            await stores.workers.remove(worker.id)
        elif why == "counts as dead":
            await stores.freeze(worker)
        assert await stores.queue.claim(ref.pk or 0, worker) is None
        assert len(await stores.heads([ref.pk or 0])) == 1
        assert await stores.heads([ref.pk or 0], app="other") == []


async def test_a_living_worker_keeps_its_turn(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        one, two = await stores.worker(), await stores.worker()
        await stores.submit(key(tenant))
        await stores.submit(key(tenant))
        await stores.claim(ref.pk, one)
        for worker in (one, two):
            assert await stores.queue.claim(ref.pk or 0, worker) is None
        assert await stores.heads([ref.pk or 0]) == []


@pytest.mark.parametrize("gone", ["frozen", "removed"])
async def test_a_dead_workers_turn_is_taken_over(gone: str, store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        one, two = await stores.worker(), await stores.worker()
        turn = await stores.submit(key(tenant))
        old = await stores.claim(ref.pk, one)
        await (stores.freeze(one) if gone == "frozen" else stores.workers.remove(one.id))
        (head,) = await stores.heads([ref.pk or 0])
        assert head.lost
        new = await stores.claim(ref.pk, two)
        assert (new.turn.id, new.turn.attempts, new.resumes) == (turn.id, 2, True)
        assert (new.epoch > old.epoch, new.ran_under) == (True, "print-1")
        await stores.workers.beat(one.id)
        assert await stores.queue.held_by(one.id) == {}
        await everything_fails(stores, old)
        await stores.log.append(new, [MessageDelta("m", "living")])
        await stores.finish(new)
        await everything_fails(stores, old)
        page = await stores.log.read(tenant, turn.id)
        events_read = [(event.type, event.epoch) for event in page.events]
        assert events_read == [
            ("accepted", 0),
            ("started", 1),
            ("started", 2),
            ("message.delta", 2),
            ("completed", 2),
        ]


async def test_a_frozen_worker_without_a_successor_continues(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, worker)
        await stores.freeze(worker)
        await stores.log.append(claim, [MessageDelta("m", "late")])
        assert (await stores.finish(claim)).turn.state == "completed"


async def test_the_worker_of_a_deleted_session_is_fenced(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, worker)
        await stores.sessions.delete(key(tenant))
        with pytest.raises(Fenced):
            await stores.sessions.append(ref, message("zombie"), claim.epoch)
        await stores.session(key(tenant))
        await stores.submit(key(tenant))
        with pytest.raises(Fenced):
            await stores.sessions.append(ref, message("zombie"), claim.epoch)
        for doing in (
            stores.log.append(claim, [MessageDelta("m", "zombie")]),
            stores.queue.close(claim, Completed()),
        ):
            with pytest.raises(Fenced):
                await doing


# --- what is repeated after a fault ----------------------------------------------------------


async def test_closing_again_changes_nothing(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        turn = await stores.submit(key(tenant))
        await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, worker)
        first = await stores.finish(claim)
        again = await stores.queue.close(claim, Failed(RuntimeError("late")))
        assert again == first
        assert first.next is not None
        assert await stores.logged(turn) == ["accepted", "started", "completed"]


async def test_a_reply_that_was_lost_is_asked_for_again(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        lossy = Lossy(stores, monkeypatch)
        turn = await stores.submit(key(tenant), "one")
        claim = await stores.claim(ref.pk, worker)
        run = ToolRun(claim.turn.invocation_id, "call-1", "tool", {})
        assert await stores.ledger.start(claim, run) == "run"
        await stores.ledger.finish(claim, run, "result")
        assert await stores.log.append(claim, [MessageDelta("m", "x")]) == 3
        await stores.finish(claim)
        assert lossy.done > 8
        assert await stores.logged(turn) == ["accepted", "started", "message.delta", "completed"]
        (only,) = await stores.turns.of_session(key(tenant))
        assert (only.attempts, only.state) == (1, "completed")


# --- many at once ----------------------------------------------------------------------------


async def test_many_submits_at_once_leave_no_gap(postgres_url: str, tenant: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        ref = await one.session(key(tenant))
        all_stores = [one, two] * 100
        turns = await asyncio.gather(
            *(stores.submit(key(tenant), str(n)) for n, stores in enumerate(all_stores))
        )
        assert sorted(turn.number for turn in turns) == list(range(1, 201))
        assert len(await one.heads([ref.pk or 0])) == 1
        worker, ran = await one.worker(), list[int]()
        for _ in range(200):
            claim = await one.claim(ref.pk, worker)
            ran.append(claim.turn.number)
            await one.finish(claim)
        assert ran == list(range(1, 201))


async def test_one_of_many_equal_submits_is_accepted(store_url: str, tenant: str) -> None:
    async with opened(store_url) as one, opened(store_url) as two:
        await one.session(key(tenant))
        same = said(idempotency_key="k")
        submitted = await asyncio.gather(
            *(stores.turns.submit(key(tenant), same) for stores in [one, two] * 8)
        )
        assert len({each.turn.id for each in submitted}) == 1
        assert [each.repeated for each in submitted].count(False) == 1


async def test_each_head_is_claimed_once(postgres_url: str, tenant: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        pks = [(await created(one.sessions, key(tenant, f"{n}"))).pk or 0 for n in range(50)]
        for number in range(50):
            await one.submit(key(tenant, f"{number}"))
        workers = [(stores, await stores.worker()) for stores in [one, two] * 8]

        async def take_all(stores: TurnStores, worker: Any) -> list[str]:
            order = random.sample(pks, len(pks))
            taken = [await stores.queue.claim(pk, worker) for pk in order]
            return [claim.turn.id for claim in taken if claim]

        found = await asyncio.gather(*(take_all(*each) for each in workers))
        claimed = [turn_id for some in found for turn_id in some]
        assert (len(claimed), len(set(claimed))) == (50, 50)
        assert await one.heads(pks) == []


async def test_in_a_storm_every_turn_ends_and_none_overlap(postgres_url: str, tenant: str) -> None:
    """Submits, interrupts and cancels while workers run turns, and some of them fall silent."""
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        names = [f"{n}" for n in range(4)]
        pks = [(await one.session(key(tenant, name))).pk or 0 for name in names]
        storm = _Storm(tenant, pks)
        submitting = [storm.submit([one, two][n % 2], names, n) for n in range(6)]
        working = [storm.work([one, two][n % 2], n) for n in range(5)]
        async with asyncio.timeout(60):
            await asyncio.gather(*submitting, *working)
        turns = [await one.turns.get(tenant, turn.id) for turn in storm.accepted]
        assert {turn.state for turn in turns} <= ENDS
        assert len(turns) == 6 * 12
        for turn in turns:
            ends = [each for each in await one.logged(turn) if each in ENDS]
            assert ends == [turn.state]
        assert storm.overlaps == 0


class _Storm:
    def __init__(self, tenant: str, pks: list[int]) -> None:
        self.tenant, self.pks = tenant, pks
        self.accepted: list[Turn] = []
        self.submitters = 6
        self.inside: dict[int, str] = {}
        self.overlaps = 0

    async def submit(self, stores: TurnStores, names: list[str], seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(12):
            where = key(self.tenant, dice.choice(names))
            busy: Any = dice.choice(["enqueue", "enqueue", "interrupt"])
            self.accepted.append(await stores.submit(where, busy=busy))
            if dice.random() < 0.2:
                await stores.turns.cancel(self.tenant, dice.choice(self.accepted).id)
        self.submitters -= 1

    async def work(self, stores: TurnStores, seed: int) -> None:
        dice, worker = random.Random(seed), await stores.worker()
        while self.submitters or await stores.heads(self.pks):
            for head in await stores.heads(self.pks):
                claim = await stores.queue.claim(head.session_pk, worker)
                if claim is None:
                    continue
                if dice.random() < 0.1:  # dies; its successor goes on
                    await stores.workers.remove(worker.id)
                    worker = await stores.worker()
                else:
                    await self._run(stores, claim)

    async def _run(self, stores: TurnStores, claim: Claim) -> None:
        pk = claim.turn.session_pk
        self.overlaps += pk in self.inside
        self.inside[pk] = claim.id
        await stores.log.append(claim, [MessageDelta("m", "x")])
        del self.inside[pk]
        cancel_requested = (await stores.turns.get(self.tenant, claim.turn.id)).cancel_requested
        end = Cancelled() if cancel_requested else Completed()
        await stores.queue.close(claim, claim.verdict or end)
