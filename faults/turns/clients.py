"""Clients that submit and read turns during faults, and the checks afterwards."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from faults.harness import Outcome
from faults.turns.tally import Shape, Tally, by_session, count, differences, story_of
from faults.turns.workspace import TurnProcess, check_log
from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import StoreUnavailableError
from lango.store.schema.tables import turns as turn_rows
from lango.store.turns.rows import Turn

PATIENCE: Final = 180.0
"""Seconds in which some turn must end: a limit, not a measurement."""


class Clients:
    """Clients that repeatedly submit a turn and read it to its end, until stopped.

    Whatever is raised to them is a failure, unless they are told to `resend` when the database
    stays away: they then send the same turn again, under the same key.
    """

    def __init__(
        self,
        process: TurnProcess,
        shape: Shape,
        outcome: Outcome,
        *,
        sessions: int,
        resend: bool = False,
    ) -> None:
        self.turns: dict[str, str] = {}
        self.resent = 0
        self._process, self._shape, self._outcome = process, shape, outcome
        self._sessions, self._resend = sessions, resend
        self._stopped = False

    def stop(self) -> None:
        """Let each client finish its current turn."""
        self._stopped = True

    async def run(self, clients: int, drawn: random.Random) -> None:
        """Run this number of clients concurrently."""
        seeds = [drawn.randrange(2**32) for _ in range(clients)]
        jobs = (self._be(n, random.Random(seed)) for n, seed in enumerate(seeds))
        await asyncio.gather(*jobs)

    async def _be(self, client: int, drawn: random.Random) -> None:
        number = 0
        while not self._stopped:
            name, session = f"c{client}n{number}", f"s{drawn.randrange(self._sessions)}"
            number += 1
            try:
                async with asyncio.timeout(PATIENCE):
                    await self.talk(name, session)
            except Exception as error:  # noqa: BLE001 - whatever a client gets to see is reported
                self._outcome.fail(f"the client of {name} saw {error!r}")

    async def talk(self, name: str, session: str) -> None:
        """Submit one turn, get it, and read it to its end."""
        process = self._process
        message, key = self._shape.message(name), f"key-{name}"
        while True:
            try:
                turn = await process.say(message, session=session, idempotency_key=key)
                self.turns[name] = turn
                await process.turns.get(turn)
                check_log(await process.read(turn))
                return
            except StoreUnavailableError:
                if not self._resend:
                    raise
                self.resent += 1


async def open_turns(process: TurnProcess, attempts: int = 0) -> int:
    """the number of open turns of this app with at least this many attempts."""
    of_app = (turn_rows.c.app == process.workspace.app, turn_rows.c.ended.is_(None))
    statement = sa.select(sa.func.count()).where(*of_app, turn_rows.c.attempts >= attempts)

    async def count_open(connection: AsyncConnection) -> int:
        return await connection.scalar(statement) or 0

    return await process.store.database.read(count_open)


async def until_over(process: TurnProcess, attempts: int = 0) -> None:
    """Wait until no turn with that many attempts is open; TimeoutError if none ends any more."""
    left, since = await open_turns(process, attempts), time.monotonic()
    while left:
        await asyncio.sleep(0.1)
        now = await open_turns(process, attempts)
        if now != left:
            left, since = now, time.monotonic()
        elif time.monotonic() > since + PATIENCE:
            raise TimeoutError(f"{left} turns do not end")


async def check_turns(
    process: TurnProcess, turns: Mapping[str, str], shape: Shape, outcome: Outcome
) -> Tally:
    """Check that every turn completed, with log, history and tool runs as without faults."""
    ended: dict[str, Turn] = {}
    for name, turn_id in turns.items():
        turn = await _ended(process, name, turn_id, outcome)
        if turn is not None:
            ended[name] = turn
    numbered = sorted(ended, key=lambda name: ended[name].number)
    sessions = by_session({name: ended[name].session.session_id for name in numbered})
    unknown: set[str] = set()
    histories: list[list[str]] = []
    for session, names in sessions.items():
        histories.append(await history(process, session, unknown))
        for wrong in differences(shape, names, histories[-1]):
            outcome.fail(f"session {session}: {wrong}")
    _check_marks(process, [mark for name in ended for mark in shape.marks(name)], unknown, outcome)
    return count(shape, list(turns), histories, process.workspace.effects.words())


async def history(process: TurnProcess, session: str, unknown: set[str] | None = None) -> list[str]:
    """A session's history as the words of a story."""
    service = SessionServiceAdapter(process.store, token_budget=None)
    found = await service.get_session(
        app_name=process.workspace.app, user_id="user", session_id=session
    )
    return story_of(found.events if found else (), unknown)


async def _ended(process: TurnProcess, name: str, turn_id: str, outcome: Outcome) -> Turn | None:
    try:
        async with asyncio.timeout(PATIENCE):
            turn = await process.turns.wait(turn_id)
    except TimeoutError:
        outcome.fail(f"turn {name} is still {(await process.turns.get(turn_id)).state}")
        return None
    outcome.expect(turn.state == "completed", f"turn {name} is {turn.state}: {turn.error}")
    try:
        check_log(await process.read(turn_id))
    except AssertionError as wrong:
        outcome.fail(f"the log of {name}: {wrong or 'it has gaps'}")
    return turn


def _check_marks(
    process: TurnProcess, marks: list[str], unknown: set[str], outcome: Outcome
) -> None:
    """Check that each tool ran once; one reported with unknown outcome may not have run at all."""
    ran = Counter(process.workspace.effects.words())
    for mark in marks:
        times = ran[f"mark {mark}"]
        right = times == 1 or (times == 0 and mark in unknown)
        outcome.expect(right, f"the tool of {mark} ran {times} times")
