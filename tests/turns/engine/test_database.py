"""What the engine of the database alone gives to a worker, and how often."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Self

import pytest

from lango.store.db.database import Database
from lango.store.turns.rows import Head
from lango.turns.engine.database import LocalEngine
from lango.turns.wake import WORK

APP = "a"
HEAD = Head(7, APP, "", "turn_1")
ROOM = 10
NEVER = 3_600.0  # seconds: polls have a cause
PATIENCE = 20.0


class Taker:
    """A worker that claims what it is given, or finds that it cannot."""

    apps: Sequence[str] = (APP,)
    most_losses = 100
    spare = 5

    def __init__(self, *, begins: bool = True, claims_for: float = 0.0) -> None:
        self.taken: list[int] = []
        self._begins, self._claims_for = begins, claims_for

    def may_begin(self, head: Head) -> bool:
        return head.app == APP

    async def room(self) -> int:
        return ROOM

    def is_in(self, session_pk: int) -> bool:
        return session_pk in self.taken

    async def take(self, session_pk: int) -> Any:
        self.taken.append(session_pk)
        await asyncio.sleep(self._claims_for)
        return self if self._begins else None


class Running:
    """An engine that runs, with polls that find what a test says."""

    def __init__(self, worker: Taker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = LocalEngine(Database("sqlite:///:memory:"), poll=NEVER)
        self.worker = worker
        self.polls = 0
        self._ended = 0  # polls
        self.found: list[Head] = []
        self.submitted_meanwhile: list[Head] = []
        monkeypatch.setattr(self.engine.queue, "heads", self._heads)
        monkeypatch.setattr(self.engine.queue, "promote_due", self._promote_due)

    async def _heads(self, *_: object) -> list[Head]:
        self.polls += 1
        for head in self.submitted_meanwhile:
            self.engine.dispatch([head])
        await asyncio.sleep(0.02)
        self._ended += 1
        return self.found

    async def _promote_due(self) -> None:
        return

    async def after(self, polls: int) -> list[Any]:
        """Let it run until so many polls have ended, and a while; the errors in its callbacks."""
        errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with asyncio.timeout(PATIENCE):
            while self._ended < polls:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        return errors

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.engine.run(self.worker))
        await self.after(polls=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.mark.parametrize("claims_for", [0.0, 0.05], ids=["ends in it", "outlasts it"])
async def test_a_session_that_is_claimed_during_a_poll_is_claimed_once(
    monkeypatch: pytest.MonkeyPatch, claims_for: float
) -> None:
    async with Running(Taker(claims_for=claims_for), monkeypatch) as running:
        running.submitted_meanwhile = running.found = [HEAD]
        running.engine.wakes.wake(WORK)
        assert await running.after(polls=2) == []
        assert (running.worker.taken, running.polls) == ([HEAD.session_pk], 2)


async def test_a_submit_is_claimed_without_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Running(Taker(), monkeypatch) as running:
        running.engine.dispatch([HEAD])
        await running.after(polls=1)
        assert (running.worker.taken, running.polls) == ([HEAD.session_pk], 1)


async def test_while_others_wait_the_poll_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [Head(100 + n, APP, "", f"turn_{n}") for n in range(2 * ROOM)]
    running = Running(Taker(begins=False), monkeypatch)
    running.found = others
    async with running:
        running.engine.dispatch([HEAD])
        await running.after(polls=2)
        assert HEAD.session_pk not in running.worker.taken
        assert running.polls == 2


async def test_after_a_claim_that_fails_workers_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Running(Taker(begins=False), monkeypatch) as running:
        running.engine.dispatch([HEAD])
        await running.after(polls=2)
        assert (running.worker.taken, running.polls) == ([HEAD.session_pk], 2)


async def test_a_turn_that_starts_later_wakes_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    later = HEAD._replace(run_at=time.time() + 60)
    async with Running(Taker(), monkeypatch) as running:
        running.engine.dispatch([later])
        await running.after(polls=1)
        assert (running.worker.taken, running.polls) == ([], 1)
        running.engine.dispatch([later._replace(run_at=time.time() - 1)])
        await running.after(polls=1)
        assert running.worker.taken == [HEAD.session_pk]


async def test_an_engine_ends_after_all_claims_that_it_cancels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim that still runs after the engine could begin a turn without an owner."""
    worker, ended = Taker(), list[int]()

    async def take(session_pk: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01 * session_pk)  # it gives the claim back
            ended.append(session_pk)

    monkeypatch.setattr(worker, "take", take)
    async with Running(worker, monkeypatch) as running:
        running.engine.dispatch([HEAD._replace(session_pk=pk) for pk in (1, 5)])
        await running.after(polls=1)
    assert ended == [1, 5]
