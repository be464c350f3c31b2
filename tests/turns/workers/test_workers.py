"""Turns over several processes: order, exclusivity, death, freezing, hanging, and the drain."""

import asyncio
import random
import signal
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from faults.turns.processes import Strike, WorkerProcess, workers
from faults.turns.workspace import (
    TurnProcess,
    Workspace,
    check_log,
    text_of,
    turn_process,
    types_of,
)
from lango.core.turns.events import Answer
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Turn
from lango.turns.service import Turns

SESSIONS = 30
DRIPS = 2000
PATIENCE = 300.0
LONG = " ".join(map(str, range(1_000)))
"""A worker with a delay of 0.05 seconds says it in a minute: it is never done with it before."""


def taken_over(turn: Turn) -> None:
    """It was run again; more than once, if the machine was slow enough to take one for dead."""
    assert (turn.state, turn.attempts >= 2) == ("completed", True)


async def until(process: TurnProcess, *words: str, count: int = 1) -> None:
    """Wait for effects of tools, each so often."""
    await process.workspace.effects.wait(
        lambda effects: all(effects.count(each) >= count for each in words)
    )


async def test_three_workers_keep_the_order_of_every_session(process: TurnProcess) -> None:
    drawn, count = random.Random(5), 80 if process.store.database.is_sqlite else 200
    sessions, turns = list[int](), list[str]()
    with workers(process.workspace, 3, dead_after=20.0):
        async with asyncio.timeout(PATIENCE):
            while len(turns) < count or len(_processes(process)) < 3:
                sessions.append(drawn.randrange(SESSIONS))
                s, n = sessions[-1], len(turns)
                turns.append(await process.say(f'call step {{"name": "{s}-{n}"}}', session=f"s{s}"))
        ended = [await process.turns.wait(turn) for turn in turns]
    assert {(turn.state, turn.attempts) for turn in ended} == {("completed", 1)}
    effects: dict[str, list[str]] = defaultdict(list)
    for word, name in (line[2:] for line in process.workspace.effects.lines()):
        effects[name.partition("-")[0]].append(f"{word} {name}")
    for s in range(SESSIONS):
        own = [f"{s}-{n}" for n, session in enumerate(sessions) if session == s]
        assert effects[str(s)] == [f"{word} {name}" for name in own for word in ("begin", "end")]


def _processes(process: TurnProcess) -> set[str]:
    """Those whose tools have had effects."""
    return {line[0] for line in process.workspace.effects.lines()}


async def test_a_cancel_reaches_another_process(process: TurnProcess) -> None:
    waits: list[float] = []
    with workers(process.workspace):
        for n in range(10):
            turn = await process.say(f'call drip {{"count": {DRIPS}}}', session=f"s{n}")
            before = len(process.workspace.effects.lines())
            await process.workspace.effects.wait(
                lambda effects, before=before: len(effects) > before + 3
            )
            request = time.monotonic()
            await process.turns.cancel(turn)
            assert (await process.turns.wait(turn)).state == "cancelled"
            lines = process.workspace.effects.lines()
            assert len(lines) - before < DRIPS, "the tool ran to its end"
            waits.append(max(float(lines[-1][1]) - request, 0.0))
    result = sorted(round(wait * 1000) for wait in waits)
    print(f"cancel to the last effect, ms: {result}")  # `make bench AREA=turns` judges it


async def test_turns_of_a_killed_worker_are_resumed(process: TurnProcess) -> None:
    with workers(process.workspace) as (doomed,):
        turns = [await process.say('call hold {"name": "go"}', session=f"s{n}") for n in range(5)]
        await until(process, "held go", count=5)
        doomed.kill()
        killed = time.monotonic()
        with workers(process.workspace):
            (process.workspace.folder / "go").touch()
            ended = [await process.turns.wait(turn) for turn in turns]
        took = time.monotonic() - killed
    for turn in ended:
        taken_over(turn)
        events = await process.read(turn.id)
        check_log(events)
        assert types_of(events).count("started") == turn.attempts
        assert "message.reset" not in types_of(events)  # the call's message is whole
        assert "released" in text_of(events)
    print(f"5 turns resumed {took:.1f} s after the kill")


async def test_a_message_cut_off_by_a_kill_is_reset(process: TurnProcess) -> None:
    with workers(process.workspace, delay=0.05) as (doomed,):
        turn = await process.say(LONG)
        seen = await _read_some(process, turn, 5)
        doomed.kill()
        with workers(process.workspace):
            rest = await process.read(turn, after=seen[-1].number)
    events = [*seen, *rest]
    check_log(events)
    assert "message.reset" in types_of(rest)
    assert text_of(events) == f"You said: {LONG}"


async def test_the_next_worker_publishes_what_was_stored_and_not_published(
    process: TurnProcess,
) -> None:
    with workers(process.workspace, strike=Strike("turn.unmarked")) as (doomed,):
        turn = await process.say('call step {"name": "a"}')
        doomed.join()
        with workers(process.workspace):
            events = await process.read(turn)
    check_log(events)
    assert text_of(events) == 'I asked: step gave {"result":"done"}.'
    assert [each for each in types_of(events) if each.startswith("tool")] == [
        "tool.started",
        "tool.finished",
    ]
    assert process.workspace.effects.words() == ["begin a", "end a"]


async def _read_some(process: TurnProcess, turn: str, deltas: int) -> list[LoggedEvent]:
    seen: list[LoggedEvent] = []
    async for event in process.turns.events(turn):
        seen.append(event)
        if types_of(seen).count("message.delta") == deltas:
            break
    return seen


async def freeze(worker: WorkerProcess, process: TurnProcess) -> None:
    """Freeze a worker; on SQLite not while it holds the write lock, which blocks all others."""
    while True:
        worker.send(signal.SIGSTOP)
        _wait_until_stopped(worker.pid)
        if not process.store.database.is_sqlite or _is_unlocked(
            str(process.store.database.url.database)
        ):
            return
        worker.send(signal.SIGCONT)
        await asyncio.sleep(0.01)


def _wait_until_stopped(pid: int) -> None:
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)


def _is_unlocked(file: str) -> bool:
    with closing(sqlite3.connect(file, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        connection.execute("rollback")
        return True


async def test_a_frozen_worker_is_taken_over_and_writes_nothing(process: TurnProcess) -> None:
    with workers(process.workspace, delay=0.05) as (frozen,):
        turn = await process.say(LONG)
        await _read_some(process, turn, 3)
        await freeze(frozen, process)
        with workers(process.workspace) as (other,):
            ended = await process.turns.wait(turn)
            taken_over(ended)
            before = await _written(process, turn)
            other.send(signal.SIGTERM)
            other.join()
            frozen.send(signal.SIGCONT)
            # It lives again, and does what comes next: by then it has met the fence.
            next_turn = await process.say('call step {"name": "after"}', session="other")
            assert (await process.turns.wait(next_turn)).state == "completed"
            frozen.send(signal.SIGTERM)
            assert frozen.join() == 0
        assert await _written(process, turn) == before


async def _written(process: TurnProcess, turn: str) -> tuple[object, ...]:
    stored = await process.turns.get(turn)
    rows = await process.store.messages(stored.session, limit=1000)
    return stored, await process.read(turn), [(row.event_id, row.content) for row in rows]


async def test_a_hanging_loop_is_taken_over(process: TurnProcess) -> None:
    with workers(process.workspace, hang_after=0.5) as (hanging,):
        turn = await process.say('call block {"name": "b"}')
        await until(process, "blocks b")
        with workers(process.workspace):
            ended = await process.turns.wait(turn)
            taken_over(ended)
            before = await _written(process, turn)
            (process.workspace.folder / "unblock").touch()
            await until(process, "unblocked b", count=2)
            hanging.send(signal.SIGTERM)
            assert hanging.join() == 0
        assert await _written(process, turn) == before
        message = (process.workspace.folder / f"worker-{hanging.pid}.log").read_text()
    assert "The event loop has been blocked" in message
    assert "faults/turns/agents.py" in message  # where the tool blocks


async def test_an_approval_survives_restarts(process: TurnProcess) -> None:
    with workers(process.workspace) as (first,):
        asking = await process.say('call pay {"amount": 3}')
        assert (await process.turns.wait(asking)).state == "input_required"
        first.send(signal.SIGTERM)
        assert first.join() == 0
    async with turn_process(process.workspace) as later:
        (call,) = (await later.turns.get(asking)).waits_for
        answer = await later.turns.answer(asking, Answer(call, approved=True))
    with workers(process.workspace):
        assert (await process.turns.wait(answer.id)).state == "completed"
    assert process.workspace.effects.words() == ["paid 3"]


async def test_reconnecting_readers_miss_nothing(process: TurnProcess) -> None:
    drawn = random.Random(17)
    with workers(process.workspace, delay=0.01):
        turn = await process.say(" ".join(map(str, range(150))))
        after, seen, reconnects = 0, list[LoggedEvent](), 0
        while reconnects < 100:
            stop_at = drawn.randrange(4)
            got = 0
            async for event in process.turns.events(turn, after=after):
                seen.append(event)
                after, got = event.number, got + 1
                if got > stop_at:
                    break
            else:
                break
            reconnects += 1
        whole = await process.read(turn)
        for _ in range(100 - reconnects):
            after = drawn.randrange(len(whole) + 1)
            assert await process.read(turn, after) == whole[after:]
    seen += whole[len(seen) :]
    assert seen == whole
    check_log(whole)


async def test_a_stopping_worker_ends_its_turns_first(process: TurnProcess) -> None:
    with workers(process.workspace, drain=60.0) as (worker,):
        turns = [await process.say('call hold {"name": "go"}', session=f"s{n}") for n in range(5)]
        await until(process, "held go", count=5)
        await worker.stop()
        late = await process.say("late", session="late")
        (process.workspace.folder / "go").touch()
        assert worker.join() == 0
    assert {(await process.turns.get(turn)).state for turn in turns} == {"completed"}
    assert (await process.turns.get(late)).state == "queued"


async def test_what_a_drain_cannot_wait_for_goes_to_others_at_once(process: TurnProcess) -> None:
    with workers(process.workspace, drain=0.2, dead_after=60.0) as (stopping,):
        turn = await process.say('call hold {"name": "go"}')
        await until(process, "held go")
        stopping.send(signal.SIGTERM)
        assert stopping.join() == 0
        (process.workspace.folder / "go").touch()
        async with turn_process(process.workspace, dead_after=60.0) as other, other.worker():
            ended = await process.turns.wait(turn)
    taken_over(ended)


@pytest.fixture(autouse=True)
def _says_what_workers_said(workspace: Workspace) -> Iterator[None]:
    """A failing test shows the logs of its processes."""
    yield
    for path in workspace.folder.glob("worker-*.log"):
        print(path.name, path.read_text())


async def test_a_full_worker_still_begins_turns_of_other_tenants(process: TurnProcess) -> None:
    """A tenant whose turns take long fills the worker, and no more; others have a reserve."""
    other = Turns(process.store, process.engine, tenant="other")
    held = [await process.say('call hold {"name": "go"}', session=f"s{n}") for n in range(10)]
    async with process.worker(concurrency=4):
        await until(process, "held go", count=4)
        turns = [
            await other.submit(process.workspace.app, "hello", session=f"s{n}") for n in range(3)
        ]
        ended = [await other.wait(turn.id) for turn in turns]
        assert [turn.state for turn in ended] == ["completed"] * 3
        assert sum(line[2] == "held" for line in process.workspace.effects.lines()) == 4
        process.workspace.effects.path.with_name("go").touch()
        assert {(await process.turns.wait(turn)).state for turn in held} == {"completed"}
