"""Progress of running tools in the turn's log: across kills, and never after the result."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from faults.turns.agents import PATIENCE
from faults.turns.processes import WorkerProcess, workers
from faults.turns.workspace import TurnProcess, check_log, text_of
from lango.adk.sessions.service import load_session
from lango.core.turns.events import ToolFinished, ToolProgress
from lango.store.db.statement import Prepared
from lango.store.schema.tables import tool_ledger
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Turn
from tests.turns.workers.test_workers import freeze

BOTH = 'call climb {"name": "open", "steps": 2} and call climb {"name": "shut", "steps": 3}'


def _progress(events: Sequence[LoggedEvent]) -> list[tuple[Any, ...]]:
    """The text, current and total of each progress event."""
    found = [event.data for event in events if event.type == ToolProgress.type]
    return [(data["text"], data["current"], data["total"]) for data in found]


def _check_order(events: Sequence[LoggedEvent]) -> None:
    """No call has progress before it starts or after it is finished."""
    running: set[str] = set()
    for event in events:
        call = str(event.data.get("call", ""))
        if event.type == "tool.started":
            running.add(call)
        elif event.type == ToolFinished.type:
            running.discard(call)
        elif event.type == ToolProgress.type:
            assert call in running, event


async def _until_progress(
    process: TurnProcess, turn: str, is_enough: Callable[[set[tuple[Any, ...]]], bool]
) -> list[LoggedEvent]:
    """Read a turn's log until it has enough reports; newer ones replace those not yet written."""
    seen: list[LoggedEvent] = []
    async with asyncio.timeout(PATIENCE):
        async for event in process.turns.events(turn):
            seen.append(event)
            if is_enough(set(_progress(seen))):
                break
    return seen


async def _until_one_result_is_stored(process: TurnProcess, turn: str) -> None:
    """A call's last progress may be in the log before its result is in the ledger."""
    session = (await process.turns.get(turn)).session_pk
    finished = sa.select(tool_ledger.c.call_key).where(
        tool_ledger.c.session_pk == session, tool_ledger.c.status == "finished"
    )
    async with asyncio.timeout(PATIENCE):
        while not await process.store.database.read(Prepared(finished)):  # noqa: ASYNC110 - of a worker
            await asyncio.sleep(0.01)


async def _history(process: TurnProcess, turn: Turn) -> str:
    session = await load_session(process.store, turn.session, None)
    assert session is not None
    return "\n".join(event.model_dump_json() for event in session.events)


async def test_a_kill_in_mid_progress(process: TurnProcess) -> None:
    """A call that was done before the kill makes no progress after it; readers get no gap."""
    (process.workspace.folder / "open").touch()
    with workers(process.workspace) as (doomed,):
        turn = await process.say(BOTH)
        seen = await _until_progress(
            process, turn, lambda reports: {("open", 2, 2), ("shut", 1, 3)} <= reports
        )
        await _until_one_result_is_stored(process, turn)
        doomed.kill()
        with workers(process.workspace):
            (process.workspace.folder / "shut").touch()
            ended = await process.turns.wait(turn)
            rest = await process.read(turn, after=seen[-1].number)
    assert (ended.state, ended.attempts >= 2) == ("completed", True)
    events = [*seen, *rest]
    check_log(events)
    _check_order(events)
    before, after = _progress(seen), _progress(rest)
    assert set(before) <= {("open", 1, 2), ("open", 2, 2), ("shut", 1, 3)}
    assert {name for name, *_ in after} == {"shut"}
    assert after[-1] == ("shut", 3, 3)
    assert "gave" in text_of(events)
    assert "steps" in await _history(process, ended)
    assert '"current"' not in await _history(process, ended)


async def test_a_frozen_worker_publishes_no_progress_once_it_wakes(process: TurnProcess) -> None:
    """Its tool goes on and reports; the log has the progress of the next worker alone."""
    (process.workspace.folder / "go").touch()
    with workers(process.workspace) as (frozen,):
        turn = await process.say('call climb {"name": "go", "steps": 150}')
        await _until_progress(process, turn, lambda reports: len(reports) >= 2)
        await freeze(frozen, process)
        with workers(process.workspace):
            await process.turns.wait(turn)
        reported = len(_steps_of(process, frozen))
        frozen.send(signal.SIGCONT)
        await process.workspace.effects.wait(lambda _: len(_steps_of(process, frozen)) > reported)
        frozen.send(signal.SIGTERM)
        await asyncio.to_thread(frozen.join)
        events = await process.read(turn)
    check_log(events)
    _check_order(events)
    assert _progress(events)[-1] == ("go", 150, 150)


def _steps_of(process: TurnProcess, worker: WorkerProcess) -> list[list[str]]:
    return [line for line in process.workspace.effects.lines() if line[0] == str(worker.pid)]
