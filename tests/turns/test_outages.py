"""Turns while the database is away, or a row of it is locked."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from faults.database.outage_proxy import OutageProxy
from faults.turn_place import Place, Process, process
from lango.core.ids import new_id
from lango.store import faults
from lango.store.tables import sessions
from tests.store.rows import beside

PATIENCE = 60.0


async def _ends(here: Process, turn: str) -> str:
    async with asyncio.timeout(PATIENCE):
        return (await here.turns.wait(turn)).state


async def test_a_turn_outlasts_an_outage_and_its_tool_is_remembered(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "TRIES", 1)  # the outage is longer than an operation is retried
    place = Place(postgres_url, new_id("app"), tmp_path)
    async with OutageProxy(postgres_url) as proxy:
        through = Place(proxy.url, place.app, tmp_path)
        async with process(place) as direct, process(through) as behind:
            async with behind.worker(drain=0.0):
                turn = await direct.say('call hold {"name": "go"}')
                await place.effects.wait(lambda said: "held go" in said)
                proxy.refuse()
                (tmp_path / "go").touch()
                await place.effects.wait(lambda said: "released go" in said)
                await asyncio.sleep(1.0)
                assert (await direct.turns.get(turn)).state == "running"
                proxy.accept()
                assert await _ends(direct, turn) == "completed"
            assert (await direct.turns.get(turn)).attempts == 1
            assert place.effects.words() == ["held go", "released go"]


async def test_a_worker_that_was_cut_off_itself_takes_no_turn_of_another(
    postgres_url: str, tmp_path: Path
) -> None:
    """After an outage for all, a worker whose heartbeat comes late keeps its turns."""
    place = Place(postgres_url, new_id("app"), tmp_path)
    async with OutageProxy(postgres_url) as early, OutageProxy(postgres_url) as late:
        one, other = Place(early.url, place.app, tmp_path), Place(late.url, place.app, tmp_path)
        async with (
            process(place) as direct,
            process(one, dead_after=2.0) as first,
            process(other, dead_after=2.0) as second,
        ):
            async with second.worker(drain=0.0):
                turn = await direct.say('call hold {"name": "go"}')
                await place.effects.wait(lambda said: "held go" in said)
                async with first.worker(drain=0.0):
                    await asyncio.sleep(0.5)
                    early.refuse()
                    late.refuse()
                    await asyncio.sleep(4.0)
                    early.accept()
                    await asyncio.sleep(1.0)
                    late.accept()
                    (tmp_path / "go").touch()
                    assert await _ends(direct, turn) == "completed"
            assert (await direct.turns.get(turn)).attempts == 1


async def test_locked_sessions_hold_up_no_other(postgres_url: str, tmp_path: Path) -> None:
    """More of them than the worker has connections."""
    place = Place(postgres_url, new_id("app"), tmp_path)
    async with process(place) as here:
        stuck = [await here.say("hello", session=f"locked{n}") for n in range(12)]
        locked = sa.select(sessions.c.pk).where(sessions.c.app_name == place.app)
        async with beside(postgres_url) as other:
            await other.execute(locked.with_for_update())
            async with here.worker(drain=0.0):
                for number in range(3):
                    turn = await here.say("hello", session=f"s{number}")
                    assert await _ends(here, turn) == "completed"
                    await other.execute(locked)  # keeps the transaction from standing still
                assert {(await here.turns.get(turn)).state for turn in stuck} == {"queued"}
                await other.rollback()
                assert {await _ends(here, turn) for turn in stuck} == {"completed"}
