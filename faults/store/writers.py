"""Many processes append to one session concurrently, each event twice."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Final

import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from faults.harness import Outcome, new_tenant, whole
from lango.adk.sessions.service import SessionServiceAdapter
from lango.store.db.engines import create_engine, store_url
from lango.store.schema.tables import messages, sessions
from lango.store.sessions.store import SqlSessionStore

APP: Final = "app"
USER: Final = "user"
SESSION: Final = "session"
START_WITHIN: Final = 120.0
_SCOPES: Final = ("", "user:", "app:")

_barrier: Barrier | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The task of one writer."""

    url: str
    tenant: str
    writer: int
    count: int
    with_state: bool
    connections: int


@dataclass(frozen=True, slots=True)
class Written:
    """The observations of one writer."""

    errors: list[str]
    started: float
    ended: float


def write_at_once(
    url: str, *, writers: int, count: int, with_state: bool, outcome: Outcome
) -> float:
    """Let `writers` processes append `count` events in total, and check them; return events/s."""
    tenant = new_tenant()
    asyncio.run(_create(url, tenant))
    shares = [count // writers + (number < count % writers) for number in range(writers)]
    # Both appends of an event race each other while the server has connections for it.
    connections = 2 if writers <= 8 else 1
    tasks = [
        Task(url, tenant, number, share, with_state, connections)
        for number, share in enumerate(shares)
    ]
    written = _in_processes(tasks)
    for error, times in Counter(e for report in written for e in report.errors).most_common(5):
        outcome.fail(f"{writers} writers: {times} × {error}")
    asyncio.run(_check(tasks, outcome))
    seconds = max(w.ended for w in written) - min(w.started for w in written)
    return count / seconds


def _in_processes(tasks: list[Task]) -> list[Written]:
    """One process per task, all starting at the same moment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imports once, then forks: 32 start in a second
    barrier = context.Barrier(len(tasks))
    with ProcessPoolExecutor(
        len(tasks), mp_context=context, initializer=_remember, initargs=(barrier,)
    ) as pool:
        return list(pool.map(_write, tasks))


def _remember(barrier: Barrier) -> None:
    global _barrier  # the only way to hand a barrier to a pool's processes
    _barrier = barrier


def _write(task: Task) -> Written:
    return asyncio.run(_append_all(task))


async def _append_all(task: Task) -> Written:
    store = SqlSessionStore(task.url, pool_size=task.connections)
    async with store:
        service = SessionServiceAdapter(store, tenant=task.tenant)
        nothing = GetSessionConfig(num_recent_events=0)
        copies: list[Session] = []
        for _ in range(2):
            found = await service.get_session(
                app_name=APP, user_id=USER, session_id=SESSION, config=nothing
            )
            if found is None:
                raise RuntimeError("the session is gone")
            copies.append(found)
        if _barrier is not None:
            await asyncio.to_thread(_barrier.wait, START_WITHIN)
        started = time.time()
        errors: list[str] = []
        for number in range(task.count):
            sent = [service.append_event(copy, _event(task, number)) for copy in copies]
            for result in await asyncio.gather(*sent, return_exceptions=True):
                if isinstance(result, BaseException):
                    errors.append(f"{type(result).__name__}: {result!s:.200}")
        return Written(errors, started, time.time())


def _event(task: Task, number: int) -> Event:
    state = {}
    if task.with_state:
        state = {f"{scope}w{task.writer}-{number}": number for scope in _SCOPES}
    return Event(
        id=f"w{task.writer}-{number}",
        invocation_id=f"turn-{task.writer}-{number // 4}",
        author="user",
        content=types.Content(role="user", parts=[types.Part(text=f"{number} " + "x" * 400)]),
        actions=EventActions(state_delta=state),
    )


async def _create(url: str, tenant: str) -> None:
    async with whole(url, tenant) as service:
        await service.create_session(app_name=APP, user_id=USER, session_id=SESSION)


async def _check(tasks: list[Task], outcome: Outcome) -> None:
    """Check: each event once, in each writer's order, every number used, all state stored."""
    url, tenant, who = tasks[0].url, tasks[0].tenant, f"{len(tasks)} writers"
    expected = {f"w{task.writer}-{number}" for task in tasks for number in range(task.count)}
    async with whole(url, tenant) as service:
        session = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    if session is None:
        outcome.fail(f"{who}: the session is gone")
        return
    ids = [event.id for event in session.events]
    outcome.expect(len(ids) == len(set(ids)), f"{who}: {len(ids) - len(set(ids))} duplicates")
    outcome.expect(set(ids) == expected, f"{who}: {len(expected - set(ids))} events lost")
    by_writer: dict[str, list[int]] = {}
    for writer, number in (event_id.split("-") for event_id in ids):
        by_writer.setdefault(writer, []).append(int(number))
    disordered = [writer for writer, numbers in by_writer.items() if numbers != sorted(numbers)]
    outcome.expect(not disordered, f"{who}: out of order: {disordered[:5]}")
    seqs = await _seqs(url, tenant)
    gaps = seqs != list(range(1, len(expected) + 1))
    outcome.expect(not gaps, f"{who}: the sequence has gaps or repeats ({len(seqs)} rows)")
    keys = {f"{scope}{event_id}" for scope in _SCOPES for event_id in expected}
    lost = keys - set(session.state) if tasks[0].with_state else set[str]()
    outcome.expect(not lost, f"{who}: {len(lost)} state keys lost, {sorted(lost)[:3]}")


async def _seqs(url: str, tenant: str) -> list[int]:
    engine = create_engine(store_url(url))
    try:
        async with engine.connect() as connection:
            rows = await connection.execute(
                sa.select(messages.c.seq)
                .join(sessions, sessions.c.pk == messages.c.session_pk)
                .where(sessions.c.tenant == tenant)
                .order_by(messages.c.seq)
            )
            return list(rows.scalars())
    finally:
        await engine.dispose()
