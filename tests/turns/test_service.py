"""Turns by their service and one worker, in one process."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from faults.turns.workspace import TurnProcess, check_log, text_of, types_of
from lango.core.turns.events import Answer
from lango.errors import (
    ApprovalNotFoundError,
    SessionBusyError,
    SessionNotFoundError,
    TurnConflictError,
    TurnNotFoundError,
)
from lango.store.sessions.entries import SessionKey
from lango.store.turns.claim import ClosedTurn, TurnQueue
from lango.store.turns.rows import Turn
from lango.turns.service import Turns


async def test_a_turn_is_submitted_read_and_completed(process: TurnProcess) -> None:
    async with process.worker():
        turn = await process.say('call step {"name": "a"}')
        events = await process.read(turn)
    check_log(events)
    assert types_of(events)[:2] == ["accepted", "started"]
    assert {"thought.delta", "tool.started", "tool.finished", "message.delta"} <= set(
        types_of(events)
    )
    assert text_of(events) == 'I asked: step gave {"result":"done"}.'
    ended = await process.turns.get(turn)
    assert (ended.state, ended.last_event, ended.attempts) == ("completed", len(events), 1)
    assert events[-1].data["usage"]["input"] > 0


async def test_a_key_gives_one_turn(process: TurnProcess) -> None:
    first = await process.say("hi", idempotency_key="k")
    assert await process.say("hi", idempotency_key="k") == first
    with pytest.raises(TurnConflictError):
        await process.say("ho", idempotency_key="k")
    async with process.worker():
        assert (await process.turns.wait(first)).state == "completed"
        assert await process.say("hi", idempotency_key="k") == first
    turns = await process.turns.of_session(process.workspace.app)
    assert [turn.id for turn in turns] == [first]


async def test_turns_of_a_session_run_in_order(process: TurnProcess) -> None:
    turns = [await process.say(f'call step {{"name": "{n}"}}') for n in range(5)]
    async with process.worker():
        for turn in turns:
            assert (await process.turns.wait(turn)).state == "completed"
    assert process.workspace.effects.words() == [
        f"{w} {n}" for n in range(5) for w in ("begin", "end")
    ]


async def test_a_busy_session_rejects_when_asked_to(process: TurnProcess) -> None:
    await process.say("one")
    with pytest.raises(SessionBusyError):
        await process.say("two", busy="reject")


async def test_interrupt_stops_what_runs_and_goes_first(process: TurnProcess) -> None:
    async with process.worker():
        running = await process.say('call hold {"name": "never"}')
        await process.workspace.effects.wait(lambda effects: "held never" in effects)
        queued = await process.say("later")
        urgent = await process.say("now", busy="interrupt")
        assert (await process.turns.wait(running)).state == "cancelled"
        assert (await process.turns.wait(urgent)).state == "completed"
        assert (await process.turns.wait(queued)).state == "completed"
    first, second = await process.turns.get(urgent), await process.turns.get(queued)
    assert (first.started or 0) < (second.started or 0)


async def test_a_cancelled_turn_keeps_what_was_said(process: TurnProcess) -> None:
    async with process.worker(delay=0.05):
        turn = await process.say(" ".join(["one", *["more"] * 1_000, "last"]))  # for a minute
        async for event in process.turns.events(turn):
            if event.type == "message.delta":
                await process.turns.cancel(turn)
                break
        ended = await process.turns.wait(turn)
        events = await process.read(turn)
        assert ended.state == "cancelled"
        check_log(events)
        text = events[-1].data["text"]
        assert text.startswith("You")
        assert "last" not in text
        follow_up = await process.say("go on")
        assert (await process.turns.wait(follow_up)).state == "completed"
    rows = await process.store.messages((await process.turns.get(turn)).session)
    assert text in [row.content for row in rows]


async def test_a_queued_turn_is_cancelled_by_its_row_alone(process: TurnProcess) -> None:
    turn = await process.say("never")
    reading = asyncio.create_task(process.read(turn))
    assert (await process.turns.cancel(turn)).state == "cancelled"
    assert types_of(await reading) == ["accepted", "cancelled"]
    assert (await process.turns.cancel(turn)).state == "cancelled"


async def test_a_scheduled_turn_runs_when_it_is_due(process: TurnProcess) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.5)
    later = await process.say("later", run_at=due)
    async with process.worker():
        at_once = await process.say("at once")
        assert (await process.turns.wait(at_once)).state == "completed"
        ended = await process.turns.wait(later)
    assert ended.state == "completed"
    assert (ended.started or 0) >= due.timestamp()


async def test_a_turn_that_runs_too_long_fails(process: TurnProcess) -> None:
    async with process.worker():
        turn = await process.say('call hold {"name": "never"}', time_limit=0.3)
        ended = await process.turns.wait(turn)
    assert ended.state == "failed"
    assert ended.error
    assert ended.error["type"] == "TurnTimeoutError"


async def test_an_answer_goes_on_with_a_turn_that_waits(process: TurnProcess) -> None:
    async with process.worker():
        asking = await process.say('call pay {"amount": 3}')
        waiting = await process.turns.wait(asking)
        assert waiting.state == "input_required"
        between = await process.say("meanwhile")
        assert (await process.turns.wait(between)).state == "completed"
        approval = next(e for e in await process.read(asking) if e.type == "approval.required")
        with pytest.raises(ApprovalNotFoundError):
            await process.turns.answer(asking, Answer("nothing", approved=True))
        answer = await process.turns.answer(asking, Answer(approval.data["call"], approved=True))
        events = await process.read(answer.id)
        with pytest.raises(TurnConflictError):
            await process.turns.answer(asking, Answer(approval.data["approval"], approved=False))
    check_log(events)
    assert types_of(events)[-1] == "completed"
    assert "paid 3" in text_of(events)
    assert process.workspace.effects.words() == ["paid 3"]
    assert (await process.turns.get(asking)).state == "answered"


async def test_a_question_can_be_answered_as_soon_as_it_is_read(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn waits for the answer from the moment that a reader sees the question."""
    close = TurnQueue.close

    async def slow_close(queue: TurnQueue, *given: Any, **options: Any) -> ClosedTurn:
        await asyncio.sleep(0.5)
        return await close(queue, *given, **options)

    monkeypatch.setattr(TurnQueue, "close", slow_close)
    async with process.worker():
        asking = await process.say('call pay {"amount": 3}')
        async with aclosing(process.turns.events(asking)) as events:
            question = await anext(e async for e in events if e.type == "approval.required")
        answer = await process.turns.answer(
            asking, Answer(question.data["approval"], approved=True)
        )
        assert (await process.turns.wait(answer.id)).state == "completed"
    assert process.workspace.effects.words() == ["paid 3"]
    check_log(await process.read(asking))


async def test_a_turn_that_is_retried_keeps_its_limit_and_its_key(process: TurnProcess) -> None:
    first = await process.say("hi", time_limit=7.0, key_id="key_1")
    await process.turns.cancel(first)
    again = await process.turns.retry(first)
    assert (again.time_limit, again.key_id) == (7.0, "key_1")
    assert (await process.turns.retry(first)).id == again.id


async def test_a_turn_is_not_retried_in_another_session_of_its_name(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await process.say("a secret")
    old = await process.turns.cancel(first)

    async def get(turn_id: str) -> Turn:
        assert turn_id == first
        await process.store.delete(old.session)
        await process.store.create(old.session)
        return old

    monkeypatch.setattr(process.turns, "get", get)
    with pytest.raises(SessionNotFoundError):
        await process.turns.retry(first)
    assert await process.turns.of_session(process.workspace.app) == []


async def test_a_message_is_for_the_session_that_was_meant(process: TurnProcess) -> None:
    old = await process.store.create(SessionKey("", process.workspace.app, "user", "default"))
    await process.store.delete(old.key)
    await process.store.create(old.key)
    with pytest.raises(SessionNotFoundError):
        await process.say("hi", public_id=old.public_id)
    assert await process.turns.of_session(process.workspace.app) == []


async def test_an_answer_has_the_time_limit_of_the_turn_that_asked(process: TurnProcess) -> None:
    async with process.worker():
        waiting = await process.turns.wait(
            await process.say('call pay {"amount": 3}', time_limit=50.0)
        )
    answer = await process.turns.answer(waiting.id, Answer(waiting.waits_for[0], approved=True))
    assert answer.time_limit == 50.0


async def test_an_answer_that_cannot_be_used_is_refused_when_it_is_submitted(
    process: TurnProcess,
) -> None:
    """A turn that waits for a call of which its session knows no question."""
    async with process.worker():
        waiting = await process.turns.wait(await process.say('call pay {"amount": 3}'))
    unknown = "update turns set waits_for = '[\"elsewhere\"]' where id = :id"
    async with process.store.database.begin() as connection:
        await connection.execute(sa.text(unknown), {"id": waiting.id})
    with pytest.raises(ApprovalNotFoundError):
        await process.turns.answer(waiting.id, Answer("elsewhere", approved=True))
    assert (await process.turns.get(waiting.id)).state == "input_required"


async def test_what_is_not_there_is_said(process: TurnProcess) -> None:
    with pytest.raises(TurnNotFoundError):
        await process.turns.get("turn_x")
    with pytest.raises(TurnNotFoundError):
        await process.read("turn_x")
    with pytest.raises(SessionNotFoundError):
        await process.say("hi", session="none", create=False)
    turn = await process.say("hi")
    other = Turns(process.store, process.engine, tenant="another")
    with pytest.raises(TurnNotFoundError):
        await other.get(turn)
    with pytest.raises(TurnNotFoundError):
        await other.cancel(turn)


async def test_a_trimmed_log_is_rebuilt_from_the_history(process: TurnProcess) -> None:
    async with process.worker():
        turn = await process.say('call step {"name": "a"}')
        whole = await process.read(turn)
        await process.turns.wait(await process.say("more"))
    while not (await process.turns.get(turn)).trimmed:
        await process.turns.log.trim(older_than=-60)
    coarse = await process.read(turn)
    assert text_of(coarse) == text_of(whole)
    assert types_of(coarse) == ["tool.started", "tool.finished", "message.completed", "completed"]
    assert [event.number for event in coarse] == sorted({event.number for event in coarse})
    assert coarse[-1].number == whole[-1].number
    assert await process.read(turn, after=whole[-1].number) == []


async def test_a_turn_is_read_by_what_submit_returned(process: TurnProcess) -> None:
    submitted = await process.turns.get(await process.say('call step {"name": "a"}'))
    async with process.worker():
        ended = await process.turns.wait(submitted)
        events = await process.read(submitted.id)
        assert [event async for event in process.turns.events(submitted)] == events
        assert [event async for event in process.turns.events(ended)] == events
    assert (ended.state, await process.turns.wait(submitted)) == ("completed", ended)
    assert await process.turns.answer_text(ended) == text_of(events)
    assert await process.turns.answer_text(submitted) is None


async def test_a_turn_read_long_ago_has_the_events_of_the_history(process: TurnProcess) -> None:
    submitted = await process.turns.get(await process.say("hi"))
    async with process.worker():
        await process.turns.wait(submitted)
        await process.turns.wait(await process.say("more"))
    while not (await process.turns.get(submitted.id)).trimmed:
        await process.turns.log.trim(older_than=-60)
    events = [event async for event in process.turns.events(submitted)]
    assert types_of(events) == ["message.completed", "completed"]


async def test_a_turn_of_another_tenant_is_not_read(process: TurnProcess) -> None:
    submitted = await process.turns.get(await process.say("hi"))
    other = Turns(process.store, process.engine, tenant="another")
    with pytest.raises(TurnNotFoundError):
        await anext(other.events(submitted))
    with pytest.raises(TurnNotFoundError):
        await other.wait(submitted)


async def test_a_session_that_a_message_creates_has_it_as_title(process: TurnProcess) -> None:
    await process.say("Where is\nmy parcel?", session="new")
    await process.say("And the other one?", session="new")
    summary = await process.store.summary(SessionKey("", process.workspace.app, "user", "new"))
    assert summary.title == "Where is my parcel?"
