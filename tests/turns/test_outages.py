"""Turns while the database is away, or a row of it is locked."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from faults.database.proxy import Proxy
from faults.turns.agents import loaded
from faults.turns.workspace import TurnProcess, Workspace, turn_process
from lango.core.ids import new_id
from lango.errors import StoreUnavailableError
from lango.store.db import retry as faults
from lango.store.schema.tables import sessions
from lango.store.turns.workers import Workers
from lango.turns import heartbeat
from lango.turns.engine.database import ChosenSessions
from lango.turns.heartbeat import Contact
from lango.turns.worker import TurnWorker
from tests.store.rows import beside, execute

PATIENCE = 60.0
DEAD_AFTER = 5.0
LOOK = 1.5  # seconds, in which a worker looks for turns at least once


async def _until_alive(process: TurnProcess, *workers: TurnWorker, alive: bool = True) -> None:
    """Wait until all these workers count as alive, or none of them."""
    ids = {each.worker.id for each in workers}
    async with asyncio.timeout(PATIENCE):
        while True:
            living = {each.id for each in await Workers(process.store.database).living(DEAD_AFTER)}
            if ids & living == (ids if alive else set()):
                return
            await asyncio.sleep(0.05)


async def _ends(process: TurnProcess, turn: str) -> str:
    async with asyncio.timeout(PATIENCE):
        return (await process.turns.wait(turn)).state


async def test_a_turn_outlasts_an_outage_and_its_tool_is_remembered(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "RETRIES", 1)  # the outage is longer than an operation is retried
    workspace = Workspace(postgres_url, new_id("app"), tmp_path)
    async with Proxy(postgres_url) as proxy:
        through = Workspace(proxy.url, workspace.app, tmp_path)
        async with turn_process(workspace) as direct, turn_process(through) as behind:
            async with behind.worker(drain=0.0):
                turn = await direct.say('call hold {"name": "go"}')
                await workspace.effects.wait(lambda effects: "held go" in effects)
                proxy.refuse()
                (tmp_path / "go").touch()
                await workspace.effects.wait(lambda effects: "released go" in effects)
                await asyncio.sleep(1.0)
                assert (await direct.turns.get(turn)).state == "running"
                await proxy.accept()
                assert await _ends(direct, turn) == "completed"
            assert (await direct.turns.get(turn)).attempts == 1
            assert workspace.effects.words() == ["held go", "released go"]


async def test_a_worker_that_was_cut_off_itself_takes_no_turn_of_another(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage for all, a worker whose heartbeat comes late keeps its turns."""
    monkeypatch.setattr(faults, "RETRIES", 1)  # else a heartbeat is tried for seconds
    workspace = Workspace(postgres_url, new_id("app"), tmp_path)
    async with Proxy(postgres_url) as early, Proxy(postgres_url) as late:
        one, other = (
            Workspace(early.url, workspace.app, tmp_path),
            Workspace(late.url, workspace.app, tmp_path),
        )
        async with (
            turn_process(workspace) as direct,
            turn_process(one, dead_after=DEAD_AFTER) as first,
            turn_process(other, dead_after=DEAD_AFTER) as second,
        ):
            async with second.worker(drain=0.0) as holder:
                turn = await direct.say('call hold {"name": "go"}')
                await workspace.effects.wait(lambda effects: "held go" in effects)
                async with first.worker(drain=0.0) as taker:
                    early.refuse()
                    late.refuse()
                    await _until_alive(direct, holder, taker, alive=False)
                    await early.accept()
                    await _until_alive(direct, taker)
                    await asyncio.sleep(LOOK)
                    await late.accept()
                    (tmp_path / "go").touch()
                    assert await _ends(direct, turn) == "completed"
            assert (await direct.turns.get(turn)).attempts == 1


async def test_a_worker_that_can_only_read_takes_no_turn_of_another(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby shows the heartbeats from before the failover, and takes none."""
    real, silent = Workers.beat, set[str]()

    async def beat(workers: Workers, worker_id: str) -> bool:
        if worker_id in silent:
            raise StoreUnavailableError
        return await real(workers, worker_id)

    monkeypatch.setattr(Workers, "beat", beat)
    async with (
        turn_process(process.workspace, dead_after=DEAD_AFTER) as again,
        again.worker(drain=0.0) as second,
    ):
        turn = await again.say('call hold {"name": "go"}')
        await process.workspace.effects.wait(lambda effects: "held go" in effects)
        async with again.worker(drain=0.0) as first:
            silent |= {first.worker.id, second.worker.id}
            await _until_alive(process, first, second, alive=False)
            silent.remove(first.worker.id)
            await _until_alive(process, first)
            await asyncio.sleep(LOOK)
            silent.clear()
            (process.workspace.folder / "go").touch()
            assert await _ends(again, turn) == "completed"
        assert (await again.turns.get(turn)).attempts == 1


async def test_who_waits_for_one_session_takes_no_turn_of_another_worker_in_doubt(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that runs its own turns only, as `lango chat` does, is no exception."""
    chosen = ChosenSessions(process.engine)
    waiting = TurnWorker(
        process.store,
        chosen,
        loaded(process.store, process.workspace.app, process.workspace.effects),
    )
    async with process.worker(drain=0.0) as worker, waiting:
        turn = await process.turns.get(await process.say('call hold {"name": "go"}'))
        await process.workspace.effects.wait(lambda effects: "held go" in effects)
        monkeypatch.setattr(Contact, "is_sure", property(lambda _: False))
        await execute(process.workspace.url, f"delete from workers where id = '{worker.worker.id}'")  # noqa: S608
        assert not await waiting.take(turn.session_pk)
        assert (await process.turns.get(turn.id)).attempts == 1
        (process.workspace.folder / "go").touch()
        assert await _ends(process, turn.id) == "completed"


def test_a_database_that_is_always_slow_is_no_doubt_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now[0])
    contact = Contact(5.0)
    assert contact.is_sure
    sure: list[bool] = []
    for _ in range(8):
        now[0] += 3.0  # each heartbeat takes longer than half of the time
        assert not contact.is_sure
        contact.note()
        sure.append(contact.is_sure)
    assert sure == [False, False, True, True, False, False, True, True]


async def test_locked_sessions_hold_up_no_other(postgres_url: str, tmp_path: Path) -> None:
    """More of them than the worker has connections."""
    workspace = Workspace(postgres_url, new_id("app"), tmp_path)
    async with turn_process(workspace) as process:
        stuck = [await process.say("hello", session=f"locked{n}") for n in range(12)]
        locked = sa.select(sessions.c.pk).where(sessions.c.app_name == workspace.app)
        async with beside(postgres_url) as other:
            await other.execute(sa.text("set local idle_in_transaction_session_timeout = 0"))
            await other.execute(locked.with_for_update())
            async with process.worker(drain=0.0):
                for number in range(3):
                    turn = await process.say("hello", session=f"s{number}")
                    assert await _ends(process, turn) == "completed"
                assert {(await process.turns.get(turn)).state for turn in stuck} == {"queued"}
                await other.rollback()
                assert {await _ends(process, turn) for turn in stuck} == {"completed"}
