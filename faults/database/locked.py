"""LOCKED: another transaction holds locks on session rows while other sessions run turns.

PostgreSQL only: SQLite has no row locks, and G5 tests its single writer.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

import httpx

from faults.harness import Guarantee, Outcome, Run, new_tenant
from faults.server.processes import project, servers
from faults.turns.processes import Crew
from faults.turns.workspace import Workspace, temporary_workspace
from tests.store.rows import raw

WORKERS: Final = 2
DEAD_AFTER: Final = 5.0
LOCKED_FOR: Final = 60.0
LOCKED_FOR_CI: Final = 10.0
USUAL_SHARE: Final = 0.3
"""Seconds without a lock for each second with a lock."""
EVERY: Final = 0.1
"""Seconds between two submitted turns of other sessions."""
AT_LEAST: Final = 15
"""The fewest turns of other sessions without and with a lock, on any machine."""
AT_MOST: Final = 30.0
"""Most additional seconds to reach that number."""
CALLERS: Final = 40
"""Callers that write to the locked session: more than a server has connections."""
QUIET: Final = 15
"""Locked sessions beside it that have a queued turn each: more than a worker has connections."""
RATIO: Final = 2.0
FLOOR: Final = 0.1
"""Starts within this many seconds always pass: a ratio of two short times is noise."""
FLOOR_CI: Final = LOCKED_FOR_CI / 2
"""CI compares no short times: it only finds turns that wait until the lock is released."""
READ_WITHIN: Final = 5.0
READ_WITHIN_CI: Final = 0.8 * LOCKED_FOR_CI
"""CI only finds reads that wait until the lock is released."""
PATIENCE: Final = 60.0
_DRIVERS: Final = ("sqlalchemy", "asyncpg", "psycopg")
_BUSY: Final = "urn:lango:error:store-"
_STARTED: Final = """select id, state, attempts, extract(epoch from started)::float8 as started
from turns where id = any($1)"""
_LOCK: Final = "select pk from sessions where public_id = any($1) for update"


@dataclass
class LockedTally:
    """The findings of one run."""

    usual: list[float] = field(default_factory=list[float])
    locked: list[float] = field(default_factory=list[float])
    refused: int = 0  # 503 with Retry-After
    writes: int = 0
    reads: int = 0
    wrong: list[str] = field(default_factory=list[str])


class LockedTrial:
    """One lock, and all callers during it."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        workspace: Workspace,
        tally: LockedTally,
        read_within: float,
    ) -> None:
        self._client, self._workspace, self._tally = client, workspace, tally
        self._read_within = read_within
        self._turns: list[str] = []  # of the locked sessions
        self._over = asyncio.Event()

    async def run(self, crew: Crew, operator: Any, seconds: float) -> None:
        await self._load(seconds * USUAL_SHARE, operator, self._tally.usual)
        hot, name = await self._session(), f"go-{uuid4().hex[:8]}"
        quiet = [await self._session() for _ in range(QUIET)]
        held = await self._submit(hot, f'call hold {{"name": "{name}"}}')
        await self._workspace.effects.wait(lambda effects: f"held {name}" in effects)
        with frozen(crew):  # else the queued turns would start before their sessions are locked
            queued = await asyncio.gather(*(self._submit(session, "hello") for session in quiet))
            transaction = operator.transaction()
            await transaction.start()
            await operator.execute(_LOCK, [hot, *quiet])
        self._turns += [held, *queued]
        (self._workspace.folder / name).touch()
        callers = asyncio.gather(*(self._call(hot, number) for number in range(CALLERS)))
        reader = asyncio.create_task(self._read(hot))
        await self._load(seconds, operator, self._tally.locked)
        await transaction.rollback()
        self._over.set()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(callers, reader)
        await self._expect_completed(operator, self._turns)

    async def _load(self, seconds: float, operator: Any, into: list[float]) -> None:
        """Submit turns of other sessions at a steady rate; record how long each took to start."""
        until, sent = time.monotonic() + seconds, dict[str, float]()
        tasks: list[asyncio.Task[None]] = []

        async def submit(session: str) -> None:
            began = time.time()
            sent[await self._submit(session, "hello")] = began

        while (now := time.monotonic()) < until or (
            len(tasks) < AT_LEAST and now < until + AT_MOST
        ):
            tasks.append(asyncio.create_task(submit(await self._session())))
            await asyncio.sleep(EVERY)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)
        rows = await self._expect_completed(operator, list(sent))
        into += [row["started"] - sent[row["id"]] for row in rows if row["started"] is not None]

    async def _expect_completed(self, operator: Any, turns: Sequence[str]) -> Sequence[Any]:
        until = time.monotonic() + PATIENCE
        while True:
            rows = await operator.fetch(_STARTED, turns)
            if all(row["state"] == "completed" for row in rows) or time.monotonic() > until:
                break
            await asyncio.sleep(0.1)
        states = Counter(row["state"] for row in rows)
        if states != Counter(completed=len(turns)):
            self._tally.wrong.append(f"{len(turns)} turns are {dict(states)}")
        if resumed := [row["id"] for row in rows if row["attempts"] != 1]:
            self._tally.wrong.append(f"{len(resumed)} turns had several attempts")
        return rows

    async def _call(self, hot: str, number: int) -> None:
        """Write to the locked session until the write succeeds."""
        if number % 2:
            turn = await self._submit(hot, f"hello {number}")
            self._turns.append(turn)
        else:
            await self._request("PATCH", f"/v1/sessions/{hot}", {"title": f"title {number}"})

    async def _read(self, hot: str) -> None:
        """Read the locked session: a reader never waits for the lock."""
        while not self._over.is_set():
            began = time.monotonic()
            await self._request("GET", f"/v1/sessions/{hot}/messages")
            took = time.monotonic() - began
            self._tally.reads += 1
            if took > self._read_within:
                self._tally.wrong.append(f"reading the locked session took {took:.1f} s")
            await asyncio.sleep(0.5)

    async def _session(self) -> str:
        made = await self._request("POST", "/v1/sessions", {"app": self._workspace.app})
        return str(made["id"])

    async def _submit(self, session: str, message: str) -> str:
        made = await self._request("POST", f"/v1/sessions/{session}/turns", {"message": message})
        return str(made["id"])

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request until it succeeds; a refusal must be a problem with Retry-After."""
        headers = {"Idempotency-Key": uuid4().hex} if method == "POST" else {}
        while True:
            response = await self._client.request(method, path, json=body, headers=headers)
            if response.is_success:
                self._tally.writes += method != "GET"
                return response.json()
            text, is_typed = response.text.lower(), _BUSY in response.text
            wait = response.headers.get("retry-after")
            if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE or not is_typed or not wait:
                self._tally.wrong.append(f"{method} {path}: {response.status_code} {text[:200]}")
                raise ConnectionError(text[:200])
            if any(driver in text for driver in _DRIVERS):
                self._tally.wrong.append(f"{method} {path} names a driver: {text[:200]}")
            self._tally.refused += 1
            await asyncio.sleep(float(wait))


@contextmanager
def frozen(crew: Crew) -> Generator[None]:
    """Freeze all workers within the context, which is shorter than a worker's dead time."""
    for member in crew.members:
        member.send(signal.SIGSTOP)
    try:
        yield
    finally:
        for member in crew.members:
            member.send(signal.SIGCONT)


async def _trials(run: Run) -> Outcome:
    outcome, tally = Outcome(), LockedTally()
    seconds = LOCKED_FOR if run.timed else LOCKED_FOR_CI
    read_within = READ_WITHIN if run.timed else READ_WITHIN_CI
    url = run.databases.postgres
    with temporary_workspace(url) as workspace:
        served = await project(workspace, new_tenant(), delay=0.0)
        crew = Crew(workspace, WORKERS, dead_after=DEAD_AFTER)
        async with (
            crew,
            servers(served, 1, with_worker=False) as (server,),
            server.client() as client,
        ):
            for _ in range(run.count):
                async with raw(url) as operator:
                    try:
                        trial = LockedTrial(client, workspace, tally, read_within)
                        await trial.run(crew, operator, seconds)
                    except (ConnectionError, TimeoutError, httpx.HTTPError) as error:
                        outcome.fail(repr(error))
    for wrong in tally.wrong:
        outcome.fail(wrong)
    _judge(outcome, tally, FLOOR if run.timed else FLOOR_CI)
    outcome.note(
        f"{run.count} locks of {seconds:g} s: {tally.writes} writes, {tally.reads} reads of the "
        f"locked session, {tally.refused} refused for now"
    )
    return outcome


def _slow(times: Sequence[float]) -> float:
    """The 95th percentile."""
    return sorted(times)[int(0.95 * (len(times) - 1))]


def _judge(outcome: Outcome, tally: LockedTally, floor: float) -> None:
    """Compare the start times during the lock with those of the same run without a lock."""
    if not tally.usual or not tally.locked:
        outcome.fail(f"only {len(tally.usual)} and {len(tally.locked)} turns were measured")
        return
    usual, locked = map(_slow, (tally.usual, tally.locked))
    outcome.expect(
        locked <= max(RATIO * usual, floor),
        f"95 % of the other sessions' turns start in {locked:.3f} s, usually in {usual:.3f} s",
    )
    outcome.note(
        f"95 % of {len(tally.locked)} turns of other sessions started in {1000 * locked:.0f} ms, "
        f"usually in {1000 * usual:.0f} ms"
    )


LOCKED: Final = Guarantee(
    "LOCKED",
    "sessions whose rows stay locked hold up no other, and complete once they are free",
    full=20,
    ci=2,
    run=lambda run: asyncio.run(_trials(run)),
    parts=2,
)
