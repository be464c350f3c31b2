"""How often a durable turn goes to PostgreSQL and back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from bench.events import APP
from bench.pg import with_port
from bench.store.wire import Traffic, WireProxy
from bench.turns.worker_context import BenchSettings, WorkerContext, worker_context
from lango.store.turns.claim import TurnQueue
from lango.turns.wake import WORK
from tests.support.databases import direct

NEVER = 3_600.0  # seconds: no heartbeats here, and no polls
FOREVER = 30.0
WHOLE_TURN = 12
"""Round trips; with heartbeats and polls, 22 are the target of the benchmark."""
SEVERAL = 4
BY_THE_CLOCK = [
    "worker._STOP_POLL_POSTGRES",
    "engine.opened.POLL_POSTGRES",
    "service._FIRST_POLL",
    "wake._POLL_CONNECTED",
    "log.writer.STREAM_FOR",
]
"""What a turn that takes longer does more often."""


@pytest.fixture(autouse=True)
def _no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent because time has passed: a slow turn counts like a quick one."""
    for name in BY_THE_CLOCK:
        monkeypatch.setattr(f"lango.turns.{name}", NEVER)


@asynccontextmanager
async def _counted(
    url: str, app: str, concurrency: int = 100
) -> AsyncGenerator[tuple[WorkerContext, Traffic]]:
    """A process with a worker, whose statements are prepared, and what it sends."""
    server = urlsplit(direct(url))
    async with WireProxy(server.hostname or "", server.port or 5432) as proxy:
        settings = BenchSettings(
            with_port(direct(url), proxy.port), app, concurrency, dead_after=NEVER
        )
        async with worker_context(settings) as context:
            with context.engine.wakes.subscribe(WORK) as subscription:
                assert await subscription.wait(FOREVER)  # it listens: that wakes all who wait
            async with context.worker:
                for _ in range(SEVERAL):
                    await _turn(context)
                yield context, proxy.traffic


async def _turn(context: WorkerContext) -> None:
    turn = await context.submit("s")
    assert (await context.turns.wait(turn.id)).state == "completed"


async def test_a_turn_of_ten_words_in_half_a_second(postgres_url: str) -> None:
    """With its reader. The least of several: a probe of the connection is not the turn's."""
    counts: list[int] = []
    async with _counted(postgres_url, "usual") as (context, traffic):
        for _ in range(SEVERAL):
            traffic.reset()
            await _turn(context)
            counts.append(traffic.round_trips)
    assert WHOLE_TURN / 2 < min(counts) <= WHOLE_TURN, counts


async def test_a_reader_beside_the_worker_reads_once(postgres_url: str) -> None:
    async with _counted(postgres_url, "nothing") as (context, traffic):
        counts: list[int] = []
        for _ in range(SEVERAL):
            turn = await context.submit("s")
            traffic.reset()
            assert (await context.turns.wait(turn.id)).state == "completed"
            counts.append(traffic.round_trips)
    assert min(counts) <= 4, counts  # three of them are the worker's: claim and close


async def test_a_worker_with_few_turns_claims_without_a_poll(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others, the poll decides which turn is next, and other processes are told."""
    polls = 0
    heads = TurnQueue.heads

    async def polled(queue: TurnQueue, *values: object, **options: object) -> object:
        nonlocal polls
        polls += 1
        return await heads(queue, *values, **options)  # pyright: ignore[reportArgumentType]

    async with _counted(postgres_url, "usual", concurrency=8) as (context, _):
        monkeypatch.setattr(TurnQueue, "heads", polled)
        for _ in range(SEVERAL):
            await _turn(context)
        assert polls == 0
        together = [context.turns.submit(APP, "hi", session=f"s{n}") for n in range(3)]
        for turn in await asyncio.gather(*together):
            assert (await context.turns.wait(turn.id)).state == "completed"
        assert polls > 0
