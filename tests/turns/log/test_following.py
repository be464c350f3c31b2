"""A turn read where it runs, and after it was lost: nothing missed, nothing twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from lango.core.turns.events import (
    Cancelled,
    Completed,
    Event,
    Failed,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ReasoningDelta,
    Started,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from lango.errors import TurnError, TurnNotFoundError
from lango.store.sessions.entries import SessionKey
from lango.store.turns.rows import Claim, Turn
from lango.turns.engine.database import LocalEngine
from lango.turns.log.feeds import AttemptBegun, AttemptOver, Feeds
from lango.turns.log.following import follow
from lango.turns.service import Turns
from tests.store.turns.turn_stores import APP, TurnStores, opened

CALL = ToolStarted("c", "look", {})
RESULT = ToolFinished("c", "look", {"seen": 1})


class Table:
    """A turn, two workers that the test plays, and a reader of its log."""

    def __init__(self, stores: TurnStores, engine: LocalEngine, tenant: str) -> None:
        self.stores = stores
        self.turns = Turns(stores.sessions, engine, tenant=tenant)
        self.feeds = Feeds()

    async def hand_in(self) -> Turn:
        return await self.turns.submit(APP, "hi", user="u", session="s")

    async def begin(self, turn: Turn) -> Claim:
        """Claim it in the place of the worker of this process."""
        claim = await self.stores.claim(turn.session_pk, await self.stores.worker())
        self.feeds.publish(turn, AttemptBegun(claim))
        return claim

    async def say(self, claim: Claim, *events: Event, written: bool = True) -> None:
        for event in events:
            self.feeds.publish(claim.turn, event)
        if written:
            await self.stores.log.append(claim, events)

    async def take_over(self, turn: Turn, lost: Claim) -> Claim:
        """Claim it in the place of another process."""
        await self.stores.workers.remove(lost.worker)
        return await self.stores.claim(turn.session_pk, await self.stores.worker())

    async def read(self, turn: Turn) -> asyncio.Task[list[TurnEvent]]:
        """A reader that has subscribed to the turn."""

        async def reading() -> list[TurnEvent]:
            with self.feeds.subscribe(turn.session, turn.idempotency_key) as feed:
                async with aclosing(follow(self.turns, turn, feed)) as events:
                    return [event async for event in events]

        begun = asyncio.create_task(reading())
        await asyncio.sleep(0)  # as far as it goes by itself
        return begun


@pytest_asyncio.fixture
async def table(store_url: str, tenant: str) -> AsyncIterator[Table]:
    """On either database."""
    async with opened(store_url) as stores, LocalEngine(stores.sessions.database) as engine:
        await stores.session(SessionKey(tenant, APP, "u", "s"))
        yield Table(stores, engine, tenant)


async def test_what_runs_here_is_heard_before_it_is_written(table: Table) -> None:
    turn = await table.hand_in()
    reading = await table.read(turn)
    claim = await table.begin(turn)
    deltas = [
        MessageDelta("m", "Hel"),
        MessageDelta("m", "lo"),
        MessageCompleted("m", "a", "Hello"),
    ]
    await table.say(claim, *deltas, written=False)
    error = LookupError("this very one")
    table.feeds.publish(turn, AttemptOver(Failed(error)))
    events = await reading
    assert events == [Started(1), *deltas, Failed(error)]
    assert isinstance(events[-1], Failed)
    assert events[-1].error is error


async def test_what_another_process_runs_is_read_from_the_log(table: Table) -> None:
    turn = await table.hand_in()
    reading = await table.read(turn)
    claim = await table.stores.claim(turn.session_pk, await table.stores.worker())
    events = [MessageDelta("m", "Hello"), MessageCompleted("m", "a", "Hello")]
    await table.stores.log.append(claim, events)
    await table.stores.finish(claim)
    assert await reading == [Started(1), *events, Completed()]


async def test_what_was_heard_and_written_is_not_told_again(table: Table) -> None:
    turn = await table.hand_in()
    reading = await table.read(turn)
    own = await table.begin(turn)
    await table.say(own, CALL, RESULT, MessageDelta("m", "Hel"))
    table.feeds.publish(turn, AttemptOver(None))
    other = await table.take_over(turn, own)
    rest = [MessageReset("m"), MessageDelta("n", "Hello"), MessageCompleted("n", "a", "Hello")]
    await table.stores.log.append(other, rest)
    await table.stores.finish(other)
    assert await reading == [
        *(Started(1), CALL, RESULT, MessageDelta("m", "Hel")),
        *(MessageReset("m"), Started(2), *rest[1:], Completed()),
    ]


async def test_what_was_heard_and_never_written_is_not_told_again(table: Table) -> None:
    """The next worker tells what the session has and the log lacks; of deltas it knows nothing."""
    turn = await table.hand_in()
    reading = await table.read(turn)
    own = await table.begin(turn)
    await table.say(own, CALL)
    await table.say(own, RESULT, MessageDelta("m", "Hel"), ReasoningDelta("m", "Hm"), written=False)
    table.feeds.publish(turn, AttemptOver(None))
    other = await table.take_over(turn, own)
    await table.stores.log.append(other, [RESULT, MessageCompleted("n", "a", "Hello")])
    await table.stores.queue.close(other, Cancelled("Hel"))
    assert await reading == [
        *(Started(1), CALL, RESULT, MessageDelta("m", "Hel"), ReasoningDelta("m", "Hm")),
        *(MessageReset("m"), Started(2), MessageCompleted("n", "a", "Hello"), Cancelled("Hel")),
    ]


async def test_a_second_attempt_here_is_heard_behind_what_the_log_has(table: Table) -> None:
    turn = await table.hand_in()
    lost = await table.stores.claim(turn.session_pk, await table.stores.worker())
    await table.stores.log.append(lost, [CALL, RESULT])
    reading = await table.read(turn)
    await table.stores.workers.remove(lost.worker)
    claim = await table.begin(turn)
    await table.say(claim, MessageCompleted("m", "a", "Hello"), written=False)
    table.feeds.publish(turn, AttemptOver(Completed()))
    assert await reading == [
        *(Started(1), CALL, RESULT, Started(2)),
        *(MessageCompleted("m", "a", "Hello"), Completed()),
    ]


async def test_who_comes_in_the_middle_reads_the_log(table: Table) -> None:
    turn = await table.hand_in()
    claim = await table.begin(turn)
    await table.say(claim, CALL)
    reading = await table.read(turn)
    await table.say(claim, RESULT)
    await table.stores.finish(claim)
    table.feeds.publish(turn, AttemptOver(Completed()))
    assert await reading == [Started(1), CALL, RESULT, Completed()]


async def test_an_end_that_was_stored_and_not_heard_of_ends_it(table: Table) -> None:
    turn = await table.hand_in()
    reading = await table.read(turn)
    claim = await table.begin(turn)
    await table.say(claim, CALL)
    await table.stores.finish(claim)
    table.feeds.publish(turn, AttemptOver(None))
    assert await reading == [Started(1), CALL, Completed()]


@pytest.mark.parametrize("how", ["deleted", "closed"])
async def test_a_turn_that_is_no_more(table: Table, how: str) -> None:
    turn = await table.hand_in()
    reading = await table.read(turn)
    if how == "deleted":
        await table.stores.sessions.delete(turn.session)
    else:
        table.feeds.end(TurnError("closed"))
    expected: Any = TurnNotFoundError if how == "deleted" else TurnError
    with pytest.raises(expected):
        await reading
