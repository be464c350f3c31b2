"""Turns by their service and one worker, in one process."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from faults.turns.place import Process, check_log, text_of, types_of
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


async def test_a_turn_is_submitted_read_and_completed(here: Process) -> None:
    async with here.worker():
        turn = await here.say('call step {"name": "a"}')
        events = await here.read(turn)
    check_log(events)
    assert types_of(events)[:2] == ["accepted", "started"]
    assert {"thought.delta", "tool.started", "tool.finished", "message.delta"} <= set(
        types_of(events)
    )
    assert text_of(events) == 'I asked: step gave {"result":"done"}.'
    ended = await here.turns.get(turn)
    assert (ended.state, ended.last_event, ended.attempts) == ("completed", len(events), 1)
    assert events[-1].data["usage"]["input"] > 0


async def test_a_key_gives_one_turn(here: Process) -> None:
    first = await here.say("hi", idempotency_key="k")
    assert await here.say("hi", idempotency_key="k") == first
    with pytest.raises(TurnConflictError):
        await here.say("ho", idempotency_key="k")
    async with here.worker():
        assert (await here.turns.wait(first)).state == "completed"
        assert await here.say("hi", idempotency_key="k") == first
    turns = await here.turns.of_session(here.place.app)
    assert [turn.id for turn in turns] == [first]


async def test_turns_of_a_session_run_in_order(here: Process) -> None:
    turns = [await here.say(f'call step {{"name": "{n}"}}') for n in range(5)]
    async with here.worker():
        for turn in turns:
            assert (await here.turns.wait(turn)).state == "completed"
    assert here.place.effects.words() == [f"{w} {n}" for n in range(5) for w in ("begin", "end")]


async def test_a_busy_session_rejects_when_asked_to(here: Process) -> None:
    await here.say("one")
    with pytest.raises(SessionBusyError):
        await here.say("two", busy="reject")


async def test_interrupt_stops_what_runs_and_goes_first(here: Process) -> None:
    async with here.worker():
        running = await here.say('call hold {"name": "never"}')
        await here.place.effects.wait(lambda effects: "held never" in effects)
        queued = await here.say("later")
        urgent = await here.say("now", busy="interrupt")
        assert (await here.turns.wait(running)).state == "cancelled"
        assert (await here.turns.wait(urgent)).state == "completed"
        assert (await here.turns.wait(queued)).state == "completed"
    first, second = await here.turns.get(urgent), await here.turns.get(queued)
    assert (first.started or 0) < (second.started or 0)


async def test_a_cancelled_turn_keeps_what_was_said(here: Process) -> None:
    async with here.worker(delay=0.05):
        turn = await here.say(" ".join(["one", *["more"] * 1_000, "last"]))  # for a minute
        async for event in here.turns.events(turn):
            if event.type == "message.delta":
                await here.turns.cancel(turn)
                break
        ended = await here.turns.wait(turn)
        events = await here.read(turn)
        assert ended.state == "cancelled"
        check_log(events)
        text = events[-1].data["text"]
        assert text.startswith("You")
        assert "last" not in text
        follow_up = await here.say("go on")
        assert (await here.turns.wait(follow_up)).state == "completed"
    rows = await here.store.messages((await here.turns.get(turn)).session)
    assert text in [row.content for row in rows]


async def test_a_queued_turn_is_cancelled_by_its_row_alone(here: Process) -> None:
    turn = await here.say("never")
    reading = asyncio.create_task(here.read(turn))
    assert (await here.turns.cancel(turn)).state == "cancelled"
    assert types_of(await reading) == ["accepted", "cancelled"]
    assert (await here.turns.cancel(turn)).state == "cancelled"


async def test_a_scheduled_turn_runs_when_it_is_due(here: Process) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.5)
    later = await here.say("later", run_at=due)
    async with here.worker():
        at_once = await here.say("at once")
        assert (await here.turns.wait(at_once)).state == "completed"
        ended = await here.turns.wait(later)
    assert ended.state == "completed"
    assert (ended.started or 0) >= due.timestamp()


async def test_a_turn_that_runs_too_long_fails(here: Process) -> None:
    async with here.worker():
        turn = await here.say('call hold {"name": "never"}', time_limit=0.3)
        ended = await here.turns.wait(turn)
    assert ended.state == "failed"
    assert ended.error
    assert ended.error["type"] == "TurnTimeoutError"


async def test_an_answer_goes_on_with_a_turn_that_waits(here: Process) -> None:
    async with here.worker():
        asking = await here.say('call pay {"amount": 3}')
        waiting = await here.turns.wait(asking)
        assert waiting.state == "input_required"
        between = await here.say("meanwhile")
        assert (await here.turns.wait(between)).state == "completed"
        approval = next(e for e in await here.read(asking) if e.type == "approval.required")
        with pytest.raises(ApprovalNotFoundError):
            await here.turns.answer(asking, Answer("nothing", approved=True))
        answer = await here.turns.answer(asking, Answer(approval.data["call"], approved=True))
        events = await here.read(answer.id)
        with pytest.raises(TurnConflictError):
            await here.turns.answer(asking, Answer(approval.data["approval"], approved=False))
    check_log(events)
    assert types_of(events)[-1] == "completed"
    assert "paid 3" in text_of(events)
    assert here.place.effects.words() == ["paid 3"]
    assert (await here.turns.get(asking)).state == "answered"


async def test_a_question_can_be_answered_as_soon_as_it_is_read(
    here: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn waits for the answer from the moment that a reader sees the question."""
    close = TurnQueue.close

    async def slow_close(queue: TurnQueue, *given: Any, **options: Any) -> ClosedTurn:
        await asyncio.sleep(0.5)
        return await close(queue, *given, **options)

    monkeypatch.setattr(TurnQueue, "close", slow_close)
    async with here.worker():
        asking = await here.say('call pay {"amount": 3}')
        async with aclosing(here.turns.events(asking)) as events:
            question = await anext(e async for e in events if e.type == "approval.required")
        answer = await here.turns.answer(asking, Answer(question.data["approval"], approved=True))
        assert (await here.turns.wait(answer.id)).state == "completed"
    assert here.place.effects.words() == ["paid 3"]
    check_log(await here.read(asking))


async def test_a_turn_that_is_retried_keeps_its_limit_and_its_key(here: Process) -> None:
    first = await here.say("hi", time_limit=7.0, key_id="key_1")
    await here.turns.cancel(first)
    again = await here.turns.retry(first)
    assert (again.time_limit, again.key_id) == (7.0, "key_1")
    assert (await here.turns.retry(first)).id == again.id


async def test_a_turn_is_not_retried_in_another_session_of_its_name(
    here: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await here.say("a secret")
    old = await here.turns.cancel(first)

    async def get(turn_id: str) -> Turn:
        assert turn_id == first
        await here.store.delete(old.session)
        await here.store.create(old.session)
        return old

    monkeypatch.setattr(here.turns, "get", get)
    with pytest.raises(SessionNotFoundError):
        await here.turns.retry(first)
    assert await here.turns.of_session(here.place.app) == []


async def test_a_message_is_for_the_session_that_was_meant(here: Process) -> None:
    old = await here.store.create(SessionKey("", here.place.app, "user", "default"))
    await here.store.delete(old.key)
    await here.store.create(old.key)
    with pytest.raises(SessionNotFoundError):
        await here.say("hi", public_id=old.public_id)
    assert await here.turns.of_session(here.place.app) == []


async def test_an_answer_has_the_time_limit_of_the_turn_that_asked(here: Process) -> None:
    async with here.worker():
        waiting = await here.turns.wait(await here.say('call pay {"amount": 3}', time_limit=50.0))
    answer = await here.turns.answer(waiting.id, Answer(waiting.waits_for[0], approved=True))
    assert answer.time_limit == 50.0


async def test_an_answer_that_cannot_be_used_is_refused_when_it_is_submitted(
    here: Process,
) -> None:
    """A turn that waits for a call of which its session knows no question."""
    async with here.worker():
        waiting = await here.turns.wait(await here.say('call pay {"amount": 3}'))
    unknown = "update turns set waits_for = '[\"elsewhere\"]' where id = :id"
    async with here.store.database.begin() as connection:
        await connection.execute(sa.text(unknown), {"id": waiting.id})
    with pytest.raises(ApprovalNotFoundError):
        await here.turns.answer(waiting.id, Answer("elsewhere", approved=True))
    assert (await here.turns.get(waiting.id)).state == "input_required"


async def test_what_is_not_there_is_said(here: Process) -> None:
    with pytest.raises(TurnNotFoundError):
        await here.turns.get("turn_x")
    with pytest.raises(TurnNotFoundError):
        await here.read("turn_x")
    with pytest.raises(SessionNotFoundError):
        await here.say("hi", session="none", create=False)
    turn = await here.say("hi")
    other = Turns(here.store, here.engine, tenant="another")
    with pytest.raises(TurnNotFoundError):
        await other.get(turn)
    with pytest.raises(TurnNotFoundError):
        await other.cancel(turn)


async def test_a_trimmed_log_is_rebuilt_from_the_history(here: Process) -> None:
    async with here.worker():
        turn = await here.say('call step {"name": "a"}')
        whole = await here.read(turn)
        await here.turns.wait(await here.say("more"))
    while not (await here.turns.get(turn)).trimmed:
        await here.turns.log.trim(older_than=-60)
    coarse = await here.read(turn)
    assert text_of(coarse) == text_of(whole)
    assert types_of(coarse) == ["tool.started", "tool.finished", "message.completed", "completed"]
    assert [event.number for event in coarse] == sorted({event.number for event in coarse})
    assert coarse[-1].number == whole[-1].number
    assert await here.read(turn, after=whole[-1].number) == []


async def test_a_turn_is_read_by_what_submit_returned(here: Process) -> None:
    submitted = await here.turns.get(await here.say('call step {"name": "a"}'))
    async with here.worker():
        ended = await here.turns.wait(submitted)
        events = await here.read(submitted.id)
        assert [event async for event in here.turns.events(submitted)] == events
        assert [event async for event in here.turns.events(ended)] == events
    assert (ended.state, await here.turns.wait(submitted)) == ("completed", ended)
    assert await here.turns.answer_text(ended) == text_of(events)
    assert await here.turns.answer_text(submitted) is None


async def test_a_turn_read_long_ago_has_the_events_of_the_history(here: Process) -> None:
    submitted = await here.turns.get(await here.say("hi"))
    async with here.worker():
        await here.turns.wait(submitted)
        await here.turns.wait(await here.say("more"))
    while not (await here.turns.get(submitted.id)).trimmed:
        await here.turns.log.trim(older_than=-60)
    events = [event async for event in here.turns.events(submitted)]
    assert types_of(events) == ["message.completed", "completed"]


async def test_a_turn_of_another_tenant_is_not_read(here: Process) -> None:
    submitted = await here.turns.get(await here.say("hi"))
    other = Turns(here.store, here.engine, tenant="another")
    with pytest.raises(TurnNotFoundError):
        await anext(other.events(submitted))
    with pytest.raises(TurnNotFoundError):
        await other.wait(submitted)


async def test_a_session_that_a_message_creates_has_it_as_title(here: Process) -> None:
    await here.say("Where is\nmy parcel?", session="new")
    await here.say("And the other one?", session="new")
    summary = await here.store.summary(SessionKey("", here.place.app, "user", "new"))
    assert summary.title == "Where is my parcel?"
