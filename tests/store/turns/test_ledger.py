"""The ledger of tools: a finished one never runs again, a cut one only if it may."""

import pytest

from lango.core.ids import MAX_ID_LENGTH
from lango.errors import Fenced, InvalidIdError, LedgerConflictError, StoreError
from lango.store.turns.ledger import Finished, ToolRun, bounded_key
from lango.store.turns.rows import Claim
from tests.store.rows import key
from tests.store.turns.turn_stores import TurnStores, opened


async def _claimed(stores: TurnStores, tenant: str) -> Claim:
    ref = await stores.session(key(tenant))
    await stores.submit(key(tenant))
    return await stores.claim(ref.pk, await stores.worker())


async def _taken_over(stores: TurnStores, old: Claim) -> Claim:
    await stores.workers.remove(old.worker)
    return await stores.claim(old.turn.session_pk, await stores.worker())


def tool(*, idempotent: bool = False, call: str = "call-1", invocation: str = "i") -> ToolRun:
    return ToolRun(invocation, call, "pay", {"amount": 1.0}, idempotent)


async def test_a_finished_tool_gives_what_it_gave(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        assert await stores.ledger.start(claim, tool()) == "run"
        await stores.ledger.finish(claim, tool(), {"paid": {1, 2}}, {"state_delta": {"k": 1}})
        await stores.ledger.finish(claim, tool(), "too late")
        given = Finished({"paid": [1, 2]}, {"state_delta": {"k": 1}})
        assert await stores.ledger.start(claim, tool()) == given
        assert await stores.ledger.start(await _taken_over(stores, claim), tool()) == given


@pytest.mark.parametrize("result", [None, "", 0, [], {"deep": None}])
async def test_any_result_is_a_result(result: object, store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        await stores.ledger.start(claim, tool())
        await stores.ledger.finish(claim, tool(), result)
        assert await stores.ledger.start(claim, tool()) == Finished(result, {})


async def test_a_cut_tool_runs_again_only_if_it_may(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        for run in (tool(call="once"), tool(call="often", idempotent=True)):
            assert await stores.ledger.start(claim, run) == "run"
        after = await _taken_over(stores, claim)
        assert await stores.ledger.start(after, tool(call="once")) == "unknown"
        assert await stores.ledger.start(after, tool(call="often", idempotent=True)) == "run"
        await stores.ledger.finish(after, tool(call="once"), "outcome unknown")
        assert await stores.ledger.start(after, tool(call="once")) == Finished(
            "outcome unknown", {}
        )


async def test_calls_are_told_apart_by_invocation_and_key(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        for run in (tool(), tool(call="call-2"), tool(invocation="j")):
            assert await stores.ledger.start(claim, run) == "run"


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    "other", [ToolRun("i", "call-1", "look", {"amount": 1.0}), ToolRun("i", "call-1", "pay", {})]
)
async def test_a_hit_of_another_call_is_no_result(
    finished: bool, other: ToolRun, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        await stores.ledger.start(claim, tool())
        if finished:
            await stores.ledger.finish(claim, tool(), "paid")
        after = await _taken_over(stores, claim)
        with pytest.raises(LedgerConflictError):
            await stores.ledger.start(after, other)
        given = Finished("paid", {}) if finished else "unknown"
        assert await stores.ledger.start(after, tool()) == given


def test_a_long_key_ends_in_a_hash() -> None:
    long, longer = bounded_key("x" * 300), bounded_key("x" * 301)
    assert bounded_key("call#confirmed") == "call#confirmed"
    assert len(long) == MAX_ID_LENGTH
    assert long != longer


async def test_who_lost_the_turn_enters_nothing(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        old = await _claimed(stores, tenant)
        await stores.ledger.start(old, tool())
        new = await _taken_over(stores, old)
        with pytest.raises(Fenced):
            await stores.ledger.finish(old, tool(), "zombie")
        with pytest.raises(Fenced):
            await stores.ledger.start(old, tool(call="call-2"))
        assert await stores.ledger.start(new, tool()) == "unknown"
        assert await stores.ledger.start(new, tool(call="call-2")) == "run"


async def test_mistakes_are_named(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        with pytest.raises(StoreError, match="call-1 of pay was never started"):
            await stores.ledger.finish(claim, tool(), "x")
        with pytest.raises(InvalidIdError, match="call key"):
            await stores.ledger.start(claim, tool(call=""))
