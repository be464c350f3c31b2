"""What callers have used of their limits, counted in the database."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
import sqlalchemy as sa

from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.core.ids import new_id
from lango.core.turns.states import NewTurn
from lango.errors import KeyLimitError
from lango.store.allowances import Allowances, today
from lango.store.model_calls import ModelCallStore
from lango.store.schema.tables import allowances as rows
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.submit import SqlTurnStore, Submitted
from tests.store.rows import created, key


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[SqlSessionStore]:
    """A store, opened."""
    async with SqlSessionStore(store_url) as opened:
        yield opened


async def _pass_time(store: SqlSessionStore, caller: str, seconds: float) -> None:
    """Let a caller's row be so much older."""
    async with store.database.begin() as connection:
        earlier = {"next_request": rows.c.next_request - seconds}
        await connection.execute(sa.update(rows).where(rows.c.caller == caller).values(earlier))


async def test_a_minute_has_so_many_requests(store: SqlSessionStore) -> None:
    allowances, caller = Allowances(store.database), new_id("k")
    assert (await allowances.take_requests(caller, 6, 4)).requests == 4
    assert (await allowances.take_requests(caller, 6, 4)).requests == 1  # not four
    assert (await allowances.take_requests(caller, 6, 4)).requests == 1
    refused = await allowances.take_requests(caller, 6, 4)
    assert refused.requests == 0
    assert 0 < refused.wait <= 10
    await _pass_time(store, caller, 10)
    assert (await allowances.take_requests(caller, 6, 1)).requests == 1
    assert (await allowances.take_requests(caller, 6, 1)).requests == 0
    await _pass_time(store, caller, 3600)  # no more than a minute's worth is saved
    assert (await allowances.take_requests(caller, 6, 6)).requests == 6
    assert (await allowances.take_requests(caller, 6, 1)).requests == 0


async def test_no_request_is_granted_twice(store_url: str) -> None:
    """Several processes ask at once, each with connections of its own."""
    caller = new_id("k")

    async def take() -> int:
        async with SqlSessionStore(store_url) as store:
            allowances = Allowances(store.database)
            grants = [await allowances.take_requests(caller, 10, 1) for _ in range(5)]
        return sum(grant.requests for grant in grants)

    began = time.monotonic()
    taken = sum(await asyncio.gather(*(take() for _ in range(4))))
    meanwhile = (time.monotonic() - began) / 6  # a request every six seconds
    assert 10 <= taken <= 10 + meanwhile


async def test_turns_are_counted_by_caller(store: SqlSessionStore, tenant: str) -> None:
    own, other = new_id("k"), new_id("k")
    turns = SqlTurnStore(store.database)
    await created(store, key(tenant))
    first = await turns.submit(key(tenant), NewTurn({"text": "1"}, key_id=own))
    await turns.submit(key(tenant), NewTurn({"text": "2"}, key_id=own))
    await turns.submit(key(tenant), NewTurn({"text": "3"}, key_id=other))
    await turns.submit(key(tenant), NewTurn({"text": "4"}))
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    await turns.submit(key(tenant), NewTurn({"text": "5"}, key_id=own, run_at=in_an_hour))
    assert await Allowances(store.database).open_turns(own) == 3
    await turns.cancel(tenant, first.turn.id)
    assert await Allowances(store.database).open_turns(own) == 2


async def test_turns_submitted_at_once_stay_within_the_limit(
    store_url: str, store: SqlSessionStore, tenant: str
) -> None:
    caller = new_id("k")
    for number in range(12):
        await created(store, key(tenant, f"s{number}"))
    async with SqlSessionStore(store_url) as other_process:
        stores = [SqlTurnStore(each.database) for each in (store, other_process)]
        outcomes = await asyncio.gather(
            *(
                turns.submit(
                    key(tenant, f"s{number}"),
                    NewTurn({"text": "?"}, key_id=caller, turn_limit=2),
                )
                for number, turns in enumerate(stores * 6)
            ),
            return_exceptions=True,
        )
    accepted = [each for each in outcomes if isinstance(each, Submitted)]
    refused = [each for each in outcomes if isinstance(each, KeyLimitError)]
    assert (len(accepted), len(refused)) == (2, 10)
    assert await Allowances(store.database).open_turns(caller) == 2


async def test_costs_are_counted_by_caller_and_outlive_their_session(
    store: SqlSessionStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = new_id("k"), new_id("k")
    allowances, since = Allowances(store.database), today()
    calls, turns = ModelCallStore(store.database), SqlTurnStore(store.database)
    monkeypatch.setattr("lango.store.allowances.today", lambda: since)  # though midnight may come
    for session_id in ("s", "t"):
        await created(store, key(tenant, session_id))
    started = since.timestamp() + 1
    for session_id, key_id, began, price in (
        ("s", first, started, 0.5),
        ("s", first, started - 10, 64.0),  # yesterday's
        ("s", other, started, 0.25),
        ("t", first, started, 0.125),
        ("t", first, started, None),
        ("t", None, started, 32.0),
    ):
        new = NewTurn({"text": "?"}, key_id=key_id)
        turn = (await turns.submit(key(tenant, session_id), new)).turn
        attempt = ModelAttempt("p", "m", began, began + 1)
        result = (1, new_id("mc"), ("a", "u", session_id), turn.invocation_id)
        await calls.add(tenant, [ModelCall(attempt, *result, price=price)])

    async def cost(key_id: str) -> float:
        return await allowances.spent(tenant, key_id, since)

    assert await cost(first) == 0.625
    assert await cost(other) == 0.25
    await store.delete(key(tenant, "t"))
    assert await cost(first) == 0.625
    await store.delete(key(tenant, "s"))
    assert (await cost(first), await cost(other)) == (0.625, 0.25)
    assert await allowances.spent(tenant, first, since + timedelta(days=1)) == 0.0
