"""Turns that lost their worker and are not run again: closed with a history that is closed too."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from faults.turns.agents import loaded
from faults.turns.workspace import TurnProcess, check_log, types_of
from lango.adk.durable.ledger import INTERRUPTED
from lango.core.ids import new_id
from lango.core.turns.events import Answer, Completed, Publish, Started, TurnEvent
from lango.core.turns.states import MAX_ATTEMPTS, MIN_ALONE
from lango.errors import StoreUnavailableError
from lango.store.sessions.entries import StoredMessage
from lango.store.turns.log import LoggedEvent, TurnLog
from lango.store.turns.rows import Claim, Turn
from lango.store.turns.workers import Worker, Workers
from lango.turns import attempt
from lango.turns.worker import TurnWorker
from tests.adk.durable.dying import death
from tests.store.rows import execute
from tests.store.turns.turn_stores import LONG_AGO
from tests.turns.log.claims import claim_as

ENDS = {"cancelled": "", "lost": "WorkerLostError", "late": "TurnTimeoutError"}
OPEN_CALL = ('call mark {"name": "a"}', "ledger.start.after", 1)
CUT_TEXT = ("one two three four five six", "model.delta", 4)


async def _claim(process: TurnProcess, turn: Turn) -> Claim:
    """The claim of a worker that is dead by the time it is looked for."""
    app = loaded(process.store, process.workspace.app, process.workspace.effects)[
        process.workspace.app
    ]
    worker = Worker(new_id("wrk"), {process.workspace.app: app.fingerprint})
    claim = await claim_as(process, worker, turn.session_pk)
    await Workers(process.store.database).remove(worker.id)
    return claim


async def _die(process: TurnProcess, turn: Turn, point: str, times: int = 1) -> Claim:
    """Run or close a turn, and die at a failpoint; what was told before is in the log."""
    claim = await _claim(process, turn)
    with death(point, times), pytest.raises(BaseException):  # noqa: B017, PT011 - in a group or not
        await _run(process, claim)
    return claim


async def _run(process: TurnProcess, claim: Claim) -> None:
    app = loaded(process.store, process.workspace.app, process.workspace.effects)[
        process.workspace.app
    ]
    log = TurnLog(process.store.database)
    async with aclosing(app.run(claim)) as events:
        async for event in events:
            if not isinstance(event, Started):
                await log.append(claim, [event])


async def _give_up(process: TurnProcess, turn: Turn, why: str) -> None:
    """Let the queue have no more hope for a turn."""
    if why == "cancelled":
        await process.turns.cancel(turn.id)
        return
    worn_out = f"attempts = {MAX_ATTEMPTS}, lost_alone = {MIN_ALONE}"
    changed = worn_out if why == "lost" else f"deadline = '{LONG_AGO}'"
    await execute(process.workspace.url, f"update turns set {changed} where id = '{turn.id}'")  # noqa: S608


async def _submit(process: TurnProcess, message: str) -> Turn:
    return await process.turns.submit(process.workspace.app, message)


async def _history(process: TurnProcess, turn: Turn) -> list[StoredMessage]:
    rows = await process.store.messages(turn.session, limit=100)
    return [row for row in rows if row.invocation_id == turn.invocation_id]


async def _ended(process: TurnProcess, turn: Turn) -> Turn:
    async with process.worker():
        return await process.turns.wait(turn.id)


def _check_end(ended: Turn, why: str) -> None:
    state = "cancelled" if why == "cancelled" else "failed"
    assert (ended.state, (ended.error or {}).get("type", "")) == (state, ENDS[why])
    assert ended.attempts == (MAX_ATTEMPTS if why == "lost" else 1)


@pytest.mark.parametrize("why", ENDS)
async def test_an_open_call_is_answered(process: TurnProcess, why: str) -> None:
    message, point, times = OPEN_CALL
    turn = await _submit(process, message)
    await _die(process, turn, point, times)
    assert [row.role for row in await _history(process, turn)] == ["user", "assistant"]
    await _give_up(process, turn, why)
    _check_end(await _ended(process, turn), why)
    rows = await _history(process, turn)
    assert [row.role for row in rows] == ["user", "assistant", "tool"]
    assert INTERRUPTED in (rows[-1].tool_calls or "")
    events = await process.read(turn.id)
    check_log(events)
    assert types_of(events)[-3:] == ["tool.started", "tool.finished", events[-1].type]
    assert events[-2].data["error"] == INTERRUPTED
    assert process.workspace.effects.words() == []


@pytest.mark.parametrize("why", ENDS)
async def test_the_text_of_a_cut_message_is_kept(process: TurnProcess, why: str) -> None:
    message, point, times = CUT_TEXT
    turn = await _submit(process, message)
    await _die(process, turn, point, times)
    result = "".join(str(e.data["text"]) for e in await _deltas(process, turn))
    assert result
    await _give_up(process, turn, why)
    _check_end(await _ended(process, turn), why)
    events = await process.read(turn.id)
    check_log(events)
    assert events[-1].data["text"] == result
    assert "message.reset" not in types_of(events)
    rows = await _history(process, turn)
    assert [(row.role, row.content) for row in rows] == [("user", message), ("assistant", result)]
    assert rows[-1].author == "agent"
    assert json.loads(rows[-1].event or "{}")["interrupted"] is True


@pytest.mark.parametrize("why", ENDS)
async def test_a_question_stays_open_whose_answer_was_not_stored(
    process: TurnProcess, why: str
) -> None:
    asking = await _submit(process, 'call pay {"amount": 3}')
    waiting = await _ended(process, asking)
    (question,) = waiting.waits_for
    answer = await process.turns.answer(waiting.id, Answer(question, approved=True))
    await _die(process, answer, "turn.start")
    await _give_up(process, answer, why)
    _check_end(await _ended(process, answer), why)
    assert (await process.turns.get(waiting.id)).state == "input_required"
    again = await process.turns.answer(waiting.id, Answer(question, approved=True))
    assert (await _ended(process, again)).state == "completed"
    assert process.workspace.effects.words() == ["paid 3"]
    assert (await process.turns.get(waiting.id)).state == "answered"


async def _deltas(process: TurnProcess, turn: Turn) -> list[LoggedEvent]:
    logged = await TurnLog(process.store.database).read_all(turn)
    return [event for event in logged if event.type == "message.delta"]


@pytest.mark.parametrize("scene", [OPEN_CALL, CUT_TEXT], ids=["call", "text"])
async def test_deaths_while_closing_add_nothing(
    process: TurnProcess, scene: tuple[str, str, int]
) -> None:
    message, point, times = scene
    turn = await _submit(process, message)
    await _die(process, turn, point, times)
    await _give_up(process, turn, "lost")
    points = ("turn.start", "append.before", "append.after", "turn.kept", "turn.given_up")
    passed: list[str] = []
    for where in points:
        stored = len(await _history(process, turn))
        if where.startswith("append") and "append.after" in passed:
            continue
        claim = await _die(process, turn, where)
        assert claim.verdict is not None
        passed.append(where)
        assert len(await _history(process, turn)) == stored + (where == "append.after")
    before = [(row.event_id, row.content) for row in await _history(process, turn)]
    _check_end(await _ended(process, turn), "lost")
    assert [(row.event_id, row.content) for row in await _history(process, turn)] == before
    events = await process.read(turn.id)
    check_log(events)
    assert types_of(events).count("tool.finished") == types_of(events).count("tool.started")


async def test_the_next_turn_of_the_session_works(process: TurnProcess) -> None:
    message, point, times = OPEN_CALL
    turn = await _submit(process, message)
    after = await _submit(process, "and now?")
    await _die(process, turn, point, times)
    await _give_up(process, turn, "lost")
    async with process.worker():
        ended = await process.turns.wait(after.id)
    assert (ended.state, (await process.turns.get(turn.id)).state) == ("completed", "failed")


async def test_a_turn_that_wrote_nothing_is_just_closed(process: TurnProcess) -> None:
    turn = await _submit(process, "hello")
    await _claim(process, turn)
    await _give_up(process, turn, "cancelled")
    _check_end(await _ended(process, turn), "cancelled")
    assert await _history(process, turn) == []
    assert types_of(await process.read(turn.id)) == ["accepted", "started", "cancelled"]


async def test_an_answer_that_was_stored_and_not_published_is_published(
    process: TurnProcess,
) -> None:
    turn = await _submit(process, "hello")
    await _die(process, turn, "turn.unmarked")
    logged = await TurnLog(process.store.database).read_all(turn)
    assert types_of(logged)[-1] == "message.completed"
    await execute(
        process.workspace.url,
        f"delete from turn_events where session_pk = {turn.session_pk} and type = 'message.completed'",  # noqa: S608, E501
        f"update turns set last_event = last_event - 1 where id = '{turn.id}'",  # noqa: S608
    )
    await _give_up(process, turn, "cancelled")
    _check_end(await _ended(process, turn), "cancelled")
    events = await process.read(turn.id)
    check_log(events)
    assert types_of(events)[-2:] == ["message.completed", "cancelled"]
    assert events[-1].data["text"] == ""
    assert [row.role for row in await _history(process, turn)] == ["user", "assistant"]


# --- apps that do not do as they are told --------------------------------------------------------


class _Odd:
    """An app that meets a verdict in its own way."""

    fingerprint = "odd"
    remembers = False
    embedder = None

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.asked: list[str] = []

    async def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        del abort, publish
        self.asked.append(claim.verdict.type if claim.verdict else "")
        if self.faults:
            raise self.faults.pop(0)
        yield Completed()


@pytest.mark.parametrize(
    ("faults", "question"),
    [
        ((), 1),
        ((RuntimeError("broken"),), 2),
        ((StoreUnavailableError(), StoreUnavailableError()), 3),
    ],
    ids=["ignores it", "breaks", "has no database"],
)
async def test_the_verdict_stands(
    process: TurnProcess,
    faults: tuple[Exception, ...],
    question: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "_RETRY_EVERY", 0.0)
    turn = await _submit(process, "hello")
    await _claim(process, turn)
    await _give_up(process, turn, "late")
    odd = _Odd(*faults)
    async with TurnWorker(process.store, process.engine, {process.workspace.app: odd}):
        ended = await process.turns.wait(turn.id)
    _check_end(ended, "late")
    assert odd.asked == ["failed"] * question
