"""A conformance suite for engines.

    from lango.testing.engine_suite import Fleet, checks

    @pytest.mark.parametrize("check", checks(), ids=lambda check: check.__name__)
    async def test_conformance(check, database_url):
        async with Fleet(database_url, lambda database: MyEngine(database)) as fleet:
            await check(fleet)

The factory makes an engine of a database, as a process of its own would have it. The agents are
fakes: their messages say what they do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self
from uuid import uuid4

from lango.core.turns.events import Cancelled, Completed, Failed, Publish, TurnEvent
from lango.core.turns.inputs import input_of, message_or_answers
from lango.core.turns.states import NewTurn
from lango.errors import TurnError
from lango.providers.embeddings import Embedder
from lango.store.db.database import Database
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.rows import Claim, Turn
from lango.store.turns.submit import SqlTurnStore
from lango.testing.checks import ConformanceError, equal, true
from lango.turns.engine.protocol import Engine
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker, WorkerOptions

EngineFactory = Callable[[Database], Engine]
EngineCheck = Callable[["Fleet"], Awaitable[None]]

QUICK: Final = "quick"
"""A message whose agent answers at once."""
HOLD: Final = "hold"
"""A message whose agent answers when the fleet lets it, or its turn is stopped."""
FAIL: Final = "fail"
"""A message whose agent fails."""
REASON: Final = "The agent was asked to fail."
_LARGE: Final = 80
_SMALL: Final = 8
_WITHIN: Final = 40.0
_LOOK_EVERY: Final = 0.02


@dataclass(frozen=True, slots=True)
class Start:
    """An attempt at a turn, as its agent saw it."""

    turn: str
    tenant: str
    worker: str
    at: float  # epoch seconds


@dataclass(slots=True)
class FakeApp:
    """An app whose agents note that they ran."""

    starts: list[Start] = field(default_factory=list[Start])
    ends: list[str] = field(default_factory=list[str])  # turns
    released: asyncio.Event = field(default_factory=asyncio.Event)
    fingerprint: str = "fake"
    remembers: bool = False
    embedder: Embedder | None = None

    async def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        """Do what the message says."""
        del publish
        if claim.verdict is not None:
            yield claim.verdict
            return
        turn = claim.turn
        self.starts.append(Start(turn.id, turn.session.tenant, claim.worker, time.time()))
        message = message_or_answers(turn.input)
        if message == HOLD:
            await self._hold(abort)
        self.ends.append(turn.id)
        if message == FAIL:
            yield Failed(TurnError(REASON))
        else:
            yield Cancelled() if abort.is_set() else Completed()

    async def _hold(self, abort: asyncio.Event) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self.released, abort)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class MortalWorker(TurnWorker):
    """A worker that can die as with its process."""

    async def die(self) -> None:
        """End without closing or handing over a turn: other workers miss its heartbeat."""
        self._wants_work = False
        self._heartbeat.silence()
        loops = [*self._loops, self._dispatching] if self._dispatching else self._loops
        attempts = list(self._attempts.values())
        for loop in loops:
            loop.cancel()
        for attempt in attempts:
            attempt.abandon()
        await asyncio.gather(
            *loops, *(abandoned.task for abandoned in attempts), return_exceptions=True
        )


class EngineProcess:
    """A process with an engine, though it shares one with others in a test."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.store = SqlSessionStore(fleet.url)
        self.engine = fleet.make(self.store.database)
        self.turns = Turns(self.store, self.engine, tenant=fleet.tenant)

    async def submit(self, message: str = QUICK, **options: Any) -> str:
        """Submit a turn; its id."""
        return (await self.turns.submit(self._fleet.name, message, **options)).id

    async def write(self, message: str = QUICK, session: str = "unsent") -> str:
        """Write a turn into the database without dispatching it, as a crash would leave it."""
        key = SessionKey(self._fleet.tenant, self._fleet.name, "user", session)
        await self.store.create(key)
        store = SqlTurnStore(self.store.database)
        return (await store.submit(key, NewTurn(input_of(message)))).turn.id

    async def ended(self, *turns: str) -> list[Turn]:
        """The turns, once they have all ended."""
        try:
            async with asyncio.timeout(_WITHIN):
                return [await self.turns.wait(turn) for turn in turns]
        except TimeoutError:
            states = [(turn, (await self.turns.get(turn)).state) for turn in turns]
            raise ConformanceError(f"Some turns do not end: {states}") from None

    async def worker(self, concurrency: int = 20) -> MortalWorker:
        """A started worker; stopped with the fleet."""
        options = WorkerOptions(concurrency=concurrency, drain=1.0)
        apps = {self._fleet.name: self._fleet.app}
        worker = MortalWorker(self.store, self.engine, apps, options)
        await worker.start()
        self._fleet.workers.append(worker)
        return worker


class Fleet:
    """Processes that share a database and an app of their own."""

    def __init__(self, url: str, make: EngineFactory) -> None:
        self.url, self.make = url, make
        self.name = f"app_{uuid4().hex}"
        self.tenant = f"tenant-{uuid4().hex}"
        self.app = FakeApp()
        self.workers: list[MortalWorker] = []
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.app.released.set()
        await asyncio.gather(*(worker.stop() for worker in self.workers if worker.is_running))
        await self._opened.aclose()

    async def process(self) -> EngineProcess:
        """Another process; closed with the fleet."""
        process = EngineProcess(self)
        await self._opened.enter_async_context(process.store)
        await process.engine.open()
        self._opened.push_async_callback(process.engine.close)
        return process

    async def until(self, is_so: Callable[[], bool], problem: str) -> None:
        """Wait for something that agents bring about."""
        for _ in range(int(_WITHIN / _LOOK_EVERY)):
            if is_so():
                return
            await asyncio.sleep(_LOOK_EVERY)
        raise ConformanceError(f"{problem}; started: {self.app.starts}")

    def started(self, turn: str) -> int:
        """How often an agent has started a turn."""
        return sum(start.turn == turn for start in self.app.starts)

    async def until_started(self, *turns: str) -> None:
        """Wait until agents run these turns."""
        await self.until(lambda: all(map(self.started, turns)), f"{turns} do not start")


async def a_turn_runs_once(fleet: Fleet) -> None:
    """Of two workers, one runs a submitted turn, once."""
    here, there = await fleet.process(), await fleet.process()
    await here.worker()
    await there.worker()
    turn = await here.submit()
    (ended,) = await there.ended(turn)
    equal((ended.state, ended.attempts, fleet.started(turn)), ("completed", 1, 1), "The turn")


async def a_session_keeps_its_order(fleet: Fleet) -> None:
    """Turns of one session run one at a time, in the order of their submission."""
    here, there = await fleet.process(), await fleet.process()
    turns = [await here.submit() for _ in range(6)]
    await here.worker()
    await there.worker()
    turns += [await here.submit() for _ in range(6)]
    await here.ended(*turns)
    equal([start.turn for start in fleet.app.starts], turns, "The order of the starts")
    equal(fleet.app.ends, turns, "The order of the ends")


async def a_scheduled_turn_starts_at_its_time(fleet: Fleet) -> None:
    """A turn with `run_at` does not start before it, and starts after it."""
    here = await fleet.process()
    await here.worker()
    due = time.time() + 1.5
    turn = await here.submit(run_at=datetime.fromtimestamp(due, UTC))
    await here.ended(turn)
    true(fleet.app.starts[0].at >= due, "It started too early.")


async def a_lost_dispatch_is_found(fleet: Fleet) -> None:
    """Workers find a turn whose dispatch was lost."""
    here = await fleet.process()
    await here.worker()
    turn = await here.write()
    (ended,) = await here.ended(turn)
    equal((ended.state, ended.attempts), ("completed", 1), "The turn")


async def a_turn_of_a_dead_worker_is_resumed(fleet: Fleet) -> None:
    """Another worker resumes the turn of a worker that has died."""
    here, there = await fleet.process(), await fleet.process()
    doomed = await here.worker()
    turn = await there.submit(HOLD)
    await fleet.until_started(turn)
    await doomed.die()
    await there.worker()
    fleet.app.released.set()
    (ended,) = await there.ended(turn)
    equal((ended.state, ended.attempts), ("completed", 2), "The turn")


async def a_stopped_worker_hands_its_turns_over(fleet: Fleet) -> None:
    """A worker that stops before a turn has ended gives it to another worker."""
    here, there = await fleet.process(), await fleet.process()
    stopping = await here.worker()
    turn = await there.submit(HOLD)
    await fleet.until_started(turn)
    await there.worker()
    await stopping.stop(0.2)
    await fleet.until(lambda: fleet.started(turn) > 1, "It is not handed over")
    fleet.app.released.set()
    (ended,) = await there.ended(turn)
    equal((ended.state, ended.attempts), ("completed", 2), "The turn")


async def a_worker_that_stops_lets_its_turns_end(fleet: Fleet) -> None:
    """A worker that stops claims no more, and its turns end where they began."""
    here, there = await fleet.process(), await fleet.process()
    stopping = await here.worker()
    turn = await here.submit(HOLD)
    await fleet.until_started(turn)
    stopped = asyncio.create_task(stopping.stop(_WITHIN))
    await asyncio.sleep(0.5)  # a claim that was sent before the stop may still find a turn
    other = await here.submit(session="other")
    await there.worker()
    await there.ended(other)
    fleet.app.released.set()
    (ended,) = await there.ended(turn)
    await stopped
    equal((ended.state, ended.attempts), ("completed", 1), "The turn")
    true(fleet.app.starts[0].worker != fleet.app.starts[1].worker, "It claims while it stops.")


async def a_queued_turn_is_cancelled(fleet: Fleet) -> None:
    """A turn that is cancelled before it starts never runs; the next one of its session does."""
    here = await fleet.process()
    first, second, third = [await here.submit(message) for message in (QUICK, QUICK, QUICK)]
    await here.turns.cancel(first)
    await here.worker()
    ended = await here.ended(first, second, third)
    equal([turn.state for turn in ended], ["cancelled", "completed", "completed"], "The turns")
    equal(fleet.started(first), 0, "Starts of the cancelled turn")


async def a_running_turn_is_cancelled(fleet: Fleet) -> None:
    """A turn that is cancelled while it runs ends, and the next one of its session runs."""
    here, there = await fleet.process(), await fleet.process()
    await there.worker()
    first, second = await here.submit(HOLD), await here.submit()
    await fleet.until_started(first)
    await here.turns.cancel(first)
    ended = await here.ended(first, second)
    equal([turn.state for turn in ended], ["cancelled", "completed"], "The turns")


async def a_failed_turn_ends(fleet: Fleet) -> None:
    """A turn that fails has its error, and the next one of its session runs."""
    here = await fleet.process()
    await here.worker()
    ended = await here.ended(await here.submit(FAIL), await here.submit())
    equal([turn.state for turn in ended], ["failed", "completed"], "The turns")
    equal((ended[0].error or {}).get("message"), REASON, "The error")


async def a_busy_session_goes_on(fleet: Fleet) -> None:
    """Turns that are submitted, or become due, while another one runs, run after it."""
    here, there = await fleet.process(), await fleet.process()
    await there.worker()
    first = await here.submit(HOLD)
    await fleet.until_started(first)
    second = await here.submit()
    third = await here.submit(run_at=datetime.fromtimestamp(time.time() + 0.5, UTC))
    await asyncio.sleep(1.0)
    equal(len(fleet.app.starts), 1, "Turns that run in a session")
    fleet.app.released.set()
    await here.ended(first, second, third)
    equal(fleet.app.ends, [first, second, third], "The order of the ends")


async def many_sessions_run(fleet: Fleet) -> None:
    """The turns of many sessions each run once, over several workers."""
    here, there = await fleet.process(), await fleet.process()
    await here.worker(10)
    await there.worker(10)
    turns = [await here.submit(session=f"s{n % 40}") for n in range(80)]
    ended = await here.ended(*turns)
    equal({(turn.state, turn.attempts) for turn in ended}, {("completed", 1)}, "The turns")
    equal(len(fleet.app.starts), len(turns), "Starts")


async def a_small_tenant_does_not_wait_for_a_large_one(fleet: Fleet) -> None:
    """Most turns of one tenant start before those that another one submitted long before them.

    Not all of them: an engine may keep its queue in several parts, each fair for itself.
    """
    here, there = await fleet.process(), await fleet.process()
    small = Turns(here.store, here.engine, tenant=f"small-{fleet.tenant}")
    turns = [await here.submit(session=f"s{n}") for n in range(_LARGE)]
    for n in range(_SMALL):
        await small.submit(fleet.name, QUICK, session=f"s{n}")
    await there.worker(2)
    await here.ended(*turns)
    await fleet.until(lambda: len(fleet.app.starts) == _LARGE + _SMALL, "Some turns are missing")
    indexes = [
        index for index, start in enumerate(fleet.app.starts) if start.tenant == small.tenant
    ]
    middle = indexes[len(indexes) // 2]
    true(middle < _LARGE // 2, f"The turns of the small tenant start too late: {indexes}")


async def a_worker_runs_no_more_than_it_may(fleet: Fleet) -> None:
    """A worker with room for two turns, and a reserve of none, runs two at a time."""
    here = await fleet.process()
    worker = await here.worker(2)
    turns = [await here.submit(HOLD, session=f"s{n}") for n in range(4)]
    await fleet.until(lambda: worker.running == 2, "It does not run two")
    await asyncio.sleep(1.0)
    equal(worker.running, 2, "Turns that run")
    fleet.app.released.set()
    await here.ended(*turns)


def checks() -> Sequence[EngineCheck]:
    """All checks."""
    return (
        a_turn_runs_once,
        a_session_keeps_its_order,
        a_scheduled_turn_starts_at_its_time,
        a_lost_dispatch_is_found,
        a_turn_of_a_dead_worker_is_resumed,
        a_stopped_worker_hands_its_turns_over,
        a_worker_that_stops_lets_its_turns_end,
        a_queued_turn_is_cancelled,
        a_running_turn_is_cancelled,
        a_failed_turn_ends,
        a_busy_session_goes_on,
        many_sessions_run,
        a_small_tenant_does_not_wait_for_a_large_one,
        a_worker_runs_no_more_than_it_may,
    )
