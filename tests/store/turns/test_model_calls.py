"""The model calls of claimed turns, on both databases: entered, settled, cut off and summed up."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.core.messages.streams import Usage
from lango.core.turns.events import Completed
from lango.errors import Fenced
from lango.store.model_calls import ModelCallStore
from lango.store.turns.ledger import ToolRun
from lango.store.turns.model_calls import enter_call, resume_calls
from lango.store.turns.rows import Claim
from lango.store.turns.usage import EarlierUsage
from tests.store.rows import key
from tests.store.turns.turn_stores import Lossy, TurnStores, count, opened

USAGE = Usage(input=100, output=20, cached=50, reasoning=5)


def started(claim: Claim, call: str = "", **fields: Any) -> ModelCall:
    """A call of the claim's turn that is about to be made."""
    moment = 1_760_000_000.25
    where = claim.turn.session
    given: dict[str, Any] = {
        "attempt": ModelAttempt("openai", "gpt-5", moment, moment, outcome="started"),
        "number": 1,
        "call": f"{claim.turn.id}{call}",
        "session": (where.app_name, where.user_id, where.session_id),
        "session_pk": claim.turn.session_pk,
        "turn": claim.turn.invocation_id,
        "turn_number": claim.turn.number,
        "estimated": 130,
    }
    return ModelCall(**{**given, **fields})


def answered(call: ModelCall, usage: Usage | None = USAGE) -> ModelCall:
    ended = replace(call.attempt, outcome="completed", ended=1_760_000_002.5, usage=usage)
    return replace(call, attempt=ended, price=0.5)


async def claimed(stores: TurnStores, tenant: str) -> Claim:
    ref = await stores.session(key(tenant))
    await stores.submit(key(tenant))
    return await stores.claim(ref.pk, await stores.worker())


async def taken_over(stores: TurnStores, claim: Claim) -> Claim:
    """The claim of another worker after the death of the first."""
    await stores.workers.remove(claim.worker)
    return await stores.claim(claim.turn.session_pk, await stores.worker())


async def outcomes(stores: TurnStores, claim: Claim) -> list[tuple[str, Usage | None]]:
    rows = await ModelCallStore(stores.ledger.database).of_session(claim.turn.session)
    return [(row.call.attempt.outcome, row.call.attempt.usage) for row in reversed(rows)]


async def test_a_call_has_a_row_before_it_is_made(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        database, claim = stores.ledger.database, await claimed(stores, tenant)
        record = started(claim)
        for _ in range(2):  # the reply to the first may have been lost
            await enter_call(database, claim, record)
        [row] = await ModelCallStore(database).of_session(key(tenant))
        assert row.call == record
        assert (row.call.session_pk, row.call.turn_number) == (
            claim.turn.session_pk,
            claim.turn.number,
        )


async def test_a_worker_that_lost_the_turn_makes_no_call(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await claimed(stores, tenant)
        taken = await taken_over(stores, claim)
        for late in (enter_call, resume_calls):
            with pytest.raises(Fenced):
                await late(stores.ledger.database, claim, *[started(claim)] * (late is enter_call))
        assert await outcomes(stores, claim) == []
        await enter_call(stores.ledger.database, taken, started(taken))


async def test_what_was_under_way_is_cut_off_until_its_worker_settles_it(
    store_url: str, tenant: str
) -> None:
    """A worker that was only frozen has paid, and says so without a claim."""
    async with opened(store_url) as stores:
        database, calls = stores.ledger.database, ModelCallStore(stores.ledger.database)
        claim = await claimed(stores, tenant)
        first, second = started(claim, "1"), started(claim, "2")
        for record in (first, second):
            await enter_call(database, claim, record)
        await calls.settle([answered(first)])
        taken = await taken_over(stores, claim)
        spent = await resume_calls(database, taken)
        assert spent == EarlierUsage(2, 120, 0.5, (("openai:gpt-5", 130),))
        assert await outcomes(stores, claim) == [("completed", USAGE), ("cut_off", None)]
        await calls.settle([answered(second)])
        assert await outcomes(stores, claim) == [("completed", USAGE)] * 2


async def test_several_are_settled_at_once(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        database, calls = stores.ledger.database, ModelCallStore(stores.ledger.database)
        claim = await claimed(stores, tenant)
        records = [started(claim, str(number)) for number in range(3)]
        for record in records:
            await enter_call(database, claim, record)
        await calls.settle([answered(record, Usage(n)) for n, record in enumerate(records)])
        assert await outcomes(stores, claim) == [("completed", Usage(n)) for n in range(3)]


async def test_a_turn_ends_with_what_its_calls_used(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all attempts, whatever the last one knows; and with nothing under way."""
    async with opened(store_url) as stores:
        database, calls = stores.ledger.database, ModelCallStore(stores.ledger.database)
        claim = await claimed(stores, tenant)
        await enter_call(database, claim, started(claim, "1"))
        await calls.settle([answered(started(claim, "1"))])
        taken = await taken_over(stores, claim)
        for call in ("2", "3"):
            await enter_call(database, taken, started(taken, call))
        await calls.settle([answered(started(taken, "2"))])
        Lossy(stores, monkeypatch)
        closed = await stores.queue.close(taken, Completed(Usage(1, 1)))
        assert closed.turn.usage == asdict(USAGE + USAGE)
        page = await stores.log.read(tenant, claim.turn.id)
        assert page.events[-1].data["usage"] == asdict(USAGE + USAGE)
        assert [outcome for outcome, _ in await outcomes(stores, claim)] == [
            "completed",
            "completed",
            "cut_off",
        ]


async def test_turns_of_one_session_are_told_apart(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        database, calls = stores.ledger.database, ModelCallStore(stores.ledger.database)
        claim = await claimed(stores, tenant)
        await enter_call(database, claim, started(claim))
        await calls.settle([answered(started(claim))])
        await stores.finish(claim)
        await stores.submit(key(tenant))
        other = await stores.claim(claim.turn.session_pk, await stores.worker())
        assert (await resume_calls(database, other)) == EarlierUsage()
        closed = await stores.queue.close(other, Completed(Usage(7, 7)))
        assert closed.turn.usage == asdict(Usage(7, 7))  # no call of it is recorded


async def test_tool_calls_of_earlier_attempts_are_counted(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await claimed(stores, tenant)
        own = claim.turn.invocation_id
        for invocation, call in ((own, "c1"), (f"{own}/c1", "c2"), (own, "node:a"), ("x", "c3")):
            await stores.ledger.start(claim, ToolRun(invocation, call, "tool", {}))
        spent = await resume_calls(stores.ledger.database, await taken_over(stores, claim))
        assert spent == EarlierUsage(tools=frozenset({(own, "c1"), (f"{own}/c1", "c2")}))


async def test_a_deleted_session_stays_without_rows(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        database, calls = stores.ledger.database, ModelCallStore(stores.ledger.database)
        claim = await claimed(stores, tenant)
        await enter_call(database, claim, started(claim, "1"))
        await stores.sessions.delete(key(tenant))
        await calls.settle([answered(started(claim, "1"))])
        with pytest.raises(Fenced):
            await enter_call(database, claim, started(claim, "2"))
        assert await count(store_url, "model_calls", claim.turn.session_pk) == 0
