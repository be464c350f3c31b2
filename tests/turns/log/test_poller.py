"""One poll for all readers of a process whose wake-ups do not come."""

import asyncio
from collections.abc import Collection
from contextlib import aclosing

import pytest

from faults.turns.workspace import TurnProcess, Workspace
from lango.core.current import current_tenant
from lango.core.turns.events import Completed, MessageDelta
from lango.errors import StoreError, StoreUnavailableError
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.log import TurnLog
from lango.turns.engine.database import LocalEngine
from lango.turns.log.poller import LogPoller
from lango.turns.service import Turns
from lango.turns.wake import LogSubscription
from tests.turns.log.claims import claimed

READERS = 30
_SOON = 20.0


class Positions(TurnLog):
    """Logs that consist of the number of their last event, and count the polls."""

    def __init__(self, last: dict[str, int]) -> None:
        self.last = last
        self.polls = list[set[str]]()
        self.tenants = set[str]()
        self.fails = 0

    async def last_events(self, turn_ids: Collection[str]) -> dict[str, int]:
        self.polls.append(set(turn_ids))
        self.tenants.add(current_tenant.get())
        if self.fails:
            self.fails -= 1
            raise StoreUnavailableError
        return {turn: self.last[turn] for turn in turn_ids if turn in self.last}


@pytest.fixture
async def logs() -> Positions:
    return Positions({f"turn-{n}": 1 for n in range(READERS)})


@pytest.fixture
async def poller(logs: Positions) -> LogPoller:
    return LogPoller(logs, lambda: 0.01)


def _readers(poller: LogPoller) -> dict[LogSubscription, asyncio.Task[bool]]:
    subscriptions = [LogSubscription() for _ in range(READERS)]
    return {
        one: asyncio.create_task(poller.wait(one, f"turn-{n}", 1))
        for n, one in enumerate(subscriptions)
    }


async def _polled(logs: Positions, times: int) -> None:
    already = len(logs.polls)
    async with asyncio.timeout(_SOON):
        while len(logs.polls) < already + times:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.005)


async def test_only_readers_with_news_are_woken(logs: Positions, poller: LogPoller) -> None:
    current_tenant.set("of-a-reader")
    readers = _readers(poller)
    await _polled(logs, 3)
    assert not any(task.done() for task in readers.values())
    assert all(len(turns) == READERS for turns in logs.polls)
    assert logs.tenants == {""}
    logs.last["turn-3"] = 2
    del logs.last["turn-4"]  # it has ended, or was deleted
    await _polled(logs, 2)
    done = [n for n, task in enumerate(readers.values()) if task.done()]
    assert done == [3, 4]
    assert [await list(readers.values())[n] for n in done] == [False, False]
    await _end(readers)


async def test_a_wake_up_is_not_a_poll(logs: Positions, poller: LogPoller) -> None:
    readers = _readers(poller)
    await _polled(logs, 1)
    woken, task = next(iter(readers.items()))
    woken.wake()
    async with asyncio.timeout(_SOON):
        assert await task is True
    await _end(readers)


async def test_after_a_poll_that_fails_each_reader_reads(
    logs: Positions, poller: LogPoller
) -> None:
    logs.fails = 1
    async with asyncio.timeout(_SOON):
        assert await asyncio.gather(*_readers(poller).values()) == [False] * READERS
    again = _readers(poller)
    await _polled(logs, 2)
    assert not any(task.done() for task in again.values())
    await _end(again)


async def test_a_closed_store_is_an_error_of_the_reader(process: TurnProcess) -> None:
    claim = await claimed(process)
    reading = asyncio.create_task(process.read(claim.turn.id))
    await asyncio.sleep(0.5)  # it waits at the poller
    await process.engine.close()
    await process.store.close()
    with pytest.raises(StoreError, match="closed"):
        await asyncio.wait_for(reading, 20)


async def test_readers_of_another_store_are_polled_for(
    process: TurnProcess, workspace: Workspace
) -> None:
    claim = await claimed(process)
    async with (
        SqlSessionStore(workspace.url) as own,
        LocalEngine(own.database) as engine,
        asyncio.timeout(20),
    ):
        async with SqlSessionStore(workspace.url) as first:
            await Turns(first, engine).get(claim.turn.id)
        waiting = asyncio.create_task(Turns(own, engine).wait(claim.turn.id))
        await asyncio.sleep(0.5)
        await engine.wakes.close()
        await process.engine.queue.close(claim, Completed(), ())
        assert (await waiting).state == "completed"


async def test_without_readers_nothing_is_polled(logs: Positions, poller: LogPoller) -> None:
    readers = _readers(poller)
    await _polled(logs, 1)
    await _end(readers)
    polls = -1
    async with asyncio.timeout(_SOON):
        while len(logs.polls) != polls:
            polls = len(logs.polls)
            await asyncio.sleep(0.2)
    again = _readers(poller)
    await _polled(logs, 1)
    await _end(again)


async def _end(readers: dict[LogSubscription, asyncio.Task[bool]]) -> None:
    for task in readers.values():
        task.cancel()
    await asyncio.gather(*readers.values(), return_exceptions=True)


async def test_a_reader_finds_events_that_no_wake_up_brings(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.turns.service._FIRST_POLL", 3600.0)
    claim = await claimed(process)
    async with asyncio.timeout(20), aclosing(process.turns.events(claim.turn.id)) as events:
        types = [(await anext(events)).type for _ in range(2)]
        waiting = asyncio.create_task(anext(events))
        await asyncio.sleep(0.1)
        await process.engine.wakes.close()  # the reader waits already
        await TurnLog(process.store.database).append(claim, [MessageDelta("m", "a")])
        types.append((await waiting).type)
        await process.engine.queue.close(claim, Completed(), ())
        types += [event.type async for event in events]
    assert types == ["accepted", "started", "message.delta", "completed"]
