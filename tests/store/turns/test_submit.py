"""Turns handed in, in order: idempotency, busy sessions, answers, cancels, schedules."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa

from lango.core.turns.events import Cancelled, Failed, InputRequired
from lango.core.turns.states import Busy, NewTurn
from lango.errors import (
    CallNotFoundError,
    InvalidIdError,
    SessionBusyError,
    SessionNotFoundError,
    TurnConflictError,
    TurnError,
    TurnNotFoundError,
)
from lango.store.db.sqlite.prepared import SqliteTransaction
from lango.store.db.statement import Prepared, Row
from lango.store.schema.tables import IS_QUEUED
from lango.store.turns.rows import OF_SESSION, Turn
from tests.store.rows import key
from tests.store.rows import said as message
from tests.store.turns.turn_stores import TurnStores, count, opened, said

IN_AN_HOUR = datetime.now(UTC) + timedelta(hours=1)
QUEUED = Prepared(sa.select(sa.func.count().label("queued")).where(OF_SESSION, IS_QUEUED))
AN_HOUR_AGO = datetime.now(timezone(timedelta(hours=5))) - timedelta(hours=1)


async def test_a_turn_is_kept_as_it_was_handed_in(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        given = NewTurn({"text": "hi\x00", "n": 1.0}, {"limit": 3}, "key-1", time_limit=60)
        submitted = await stores.turns.submit(key(tenant), given)
        turn = submitted.turn
        assert (submitted.wakes, submitted.repeated, submitted.interrupted) == (True, False, None)
        assert (turn.state, turn.number, turn.attempts) == ("queued", 1, 0)
        assert (turn.input, turn.options) == ({"text": "hi\ufffd", "n": 1.0}, {"limit": 3})
        assert turn.invocation_id == turn.id
        assert turn.id.startswith("turn_")
        assert (turn.session, turn.session_pk) == (key(tenant), ref.pk)
        assert await stores.turns.get(tenant, turn.id) == turn
        assert await stores.logged(turn) == ["accepted"]


async def test_numbers_follow_each_other_and_pages_go_back(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        for session in ("one", "two"):
            await stores.session(key(tenant, session))
            turns = [await stores.submit(key(tenant, session)) for _ in range(3)]
            assert [turn.number for turn in turns] == [1, 2, 3]
        newest = await stores.turns.of_session(key(tenant, "two"), limit=2)
        assert newest == [turns[2], turns[1]]
        older = await stores.turns.of_session(key(tenant, "two"), before=newest[-1].number)
        assert older == [turns[0]]


async def test_the_same_key_and_input_give_the_same_turn(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        first = await stores.turns.submit(key(tenant), said(idempotency_key="k"))
        again = await stores.turns.submit(key(tenant), said(idempotency_key="k"), busy="reject")
        assert (again.turn, again.repeated, again.wakes) == (first.turn, True, False)
        await stores.session(key(tenant, "other"))
        elsewhere = await stores.turns.submit(key(tenant, "other"), said(idempotency_key="k"))
        assert elsewhere.turn.id != first.turn.id


@pytest.mark.parametrize(
    "other",
    [
        NewTurn({"text": "changed"}, idempotency_key="k"),
        NewTurn({"text": "hi"}, {"limit": 1}, idempotency_key="k"),
    ],
)
async def test_another_input_under_the_same_key_is_refused(
    other: NewTurn, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        await stores.turns.submit(key(tenant), said(idempotency_key="k"))
        with pytest.raises(TurnConflictError, match="key k belongs to another turn"):
            await stores.turns.submit(key(tenant), other)
        assert len(await stores.turns.of_session(key(tenant))) == 1


@pytest.mark.parametrize("bad", ["", "x" * 257, "a\nb"])
async def test_a_key_is_an_id(bad: str, store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        with pytest.raises(InvalidIdError, match="idempotency key"):
            await stores.turns.submit(key(tenant), said(idempotency_key=bad))


async def test_a_session_or_turn_that_is_not_there(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        with pytest.raises(SessionNotFoundError):
            await stores.submit(key(tenant, "none"))
        await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        for where, turn_id in ((tenant, "turn_none"), ("another tenant", turn.id)):
            for doing in (
                stores.turns.get(where, turn_id),
                stores.turns.cancel(where, turn_id),
                stores.turns.answer(where, turn_id, "call-1", said()),
                stores.log.read(where, turn_id),
            ):
                with pytest.raises(TurnNotFoundError):
                    await doing
        assert await stores.state(turn) == "queued"


# --- busy sessions ---------------------------------------------------------------------------


async def test_reject_refuses_a_session_with_a_turn(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        await stores.submit(key(tenant), busy="reject")
        with pytest.raises(SessionBusyError):
            await stores.submit(key(tenant), busy="reject")
        claim = await stores.claim(ref.pk, worker)
        with pytest.raises(SessionBusyError):
            await stores.submit(key(tenant), busy="reject")
        await stores.finish(claim)
        assert (await stores.submit(key(tenant), busy="reject")).number == 2


async def _run_all(stores: TurnStores, pk: int | None) -> list[str]:
    """Run what is queued; the texts in the order they ran."""
    worker, ran = await stores.worker(), list[str]()
    while (claim := await stores.queue.claim(pk or 0, worker)) is not None:
        ran.append(claim.turn.input["text"])
        await stores.finish(claim)
    return ran


async def test_interrupt_stops_the_running_turn_and_goes_first(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        running = await stores.submit(key(tenant), "running")
        claim = await stores.claim(ref.pk, worker)
        for text in ("second", "third"):
            await stores.submit(key(tenant), text)
        submitted = await stores.turns.submit(key(tenant), said("urgent"), busy="interrupt")
        assert (submitted.interrupted, submitted.wakes) == (running.id, False)
        assert await stores.queue.held_by(worker.id) == {claim.id: True}
        assert (await stores.turns.get(tenant, running.id)).cancel_requested
        await stores.finish(claim)
        assert await _run_all(stores, ref.pk) == ["urgent", "second", "third"]


async def test_interrupt_where_nothing_runs_goes_first(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        for text in ("second", "third"):
            await stores.submit(key(tenant), text)
        submitted = await stores.turns.submit(key(tenant), said("urgent"), busy="interrupt")
        assert (submitted.interrupted, submitted.wakes) == (None, False)
        assert len(await stores.heads([ref.pk or 0])) == 1
        await stores.submit(key(tenant), "last")
        assert await _run_all(stores, ref.pk) == ["urgent", "second", "third", "last"]


# --- cancel ----------------------------------------------------------------------------------


@pytest.mark.parametrize("run_at", [None, IN_AN_HOUR])
async def test_a_turn_that_has_not_begun_ends_at_once(
    run_at: datetime | None, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        dropped = (await stores.turns.submit(key(tenant), said("x", run_at=run_at))).turn
        for _ in range(2):
            cancelled = await stores.turns.cancel(tenant, dropped.id)
            assert cancelled.state == "cancelled"
            assert cancelled.ended is not None
        assert await stores.logged(dropped) == ["accepted", "cancelled"]
        await stores.turns.cancel(tenant, turn.id)
        assert await stores.heads([ref.pk or 0]) == []


async def test_the_next_takes_the_place_of_a_cancelled_head(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        head, _ = await stores.submit(key(tenant), "head"), await stores.submit(key(tenant), "next")
        await stores.turns.cancel(tenant, head.id)
        assert len(await stores.heads([ref.pk or 0])) == 1
        assert await _run_all(stores, ref.pk) == ["next"]


async def test_a_running_turn_is_asked_to_stop(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        turn = await stores.submit(key(tenant))
        claim = await stores.claim(ref.pk, worker)
        assert await stores.queue.held_by(worker.id) == {claim.id: False}
        waiting = await stores.turns.cancel(tenant, turn.id)
        assert (waiting.state, waiting.cancel_requested) == ("running", True)
        assert await stores.queue.held_by(worker.id) == {claim.id: True}
        await stores.finish(claim)
        assert (await stores.turns.cancel(tenant, turn.id)).state == "completed"


# --- schedules -------------------------------------------------------------------------------


async def test_a_scheduled_turn_stands_outside_the_order(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        later = await stores.turns.submit(key(tenant), said("later", run_at=IN_AN_HOUR))
        due = await stores.turns.submit(key(tenant), said("due", run_at=AN_HOUR_AGO))
        assert (later.turn.state, later.wakes) == ("scheduled", False)
        assert due.turn.run_at == pytest.approx(AN_HOUR_AGO.timestamp())
        assert await stores.heads([ref.pk or 0]) == []
        await stores.submit(key(tenant), "now", busy="reject")
        assert await _promoted(stores, ref.pk) == 0  # no new head: one is there
        assert await _run_all(stores, ref.pk) == ["now", "due"]
        assert await stores.state(later.turn) == "scheduled"


async def _promoted(stores: TurnStores, pk: int | None) -> int:
    heads = await stores.queue.promote_due(100_000)
    return [head.session_pk for head in heads].count(pk or 0)


async def test_turns_that_are_due_later_are_not_read(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session may have thousands of them, and on SQLite the event loop waits for the rows."""
    most = 0
    usual = SqliteTransaction.find

    def counted(*arguments: Any) -> Sequence[Row]:
        nonlocal most
        rows = usual(*arguments)
        most = max(most, len(rows))
        return rows

    async with opened(sqlite_url) as stores:
        ref = await stores.session(key("t"))
        for number in range(10):
            await stores.turns.submit(key("t"), said(f"later {number}", run_at=IN_AN_HOUR))
            if number in (3, 6):
                await stores.turns.submit(key("t"), said(f"due {number}", run_at=AN_HOUR_AGO))
        monkeypatch.setattr(SqliteTransaction, "find", counted)
        assert await _promoted(stores, ref.pk) == 1
        assert most == 2
        assert await _run_all(stores, ref.pk) == ["due 3", "due 6"]


async def test_a_due_turn_wakes_an_idle_session(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        for minutes in (1, 3, 2):
            run_at = AN_HOUR_AGO - timedelta(minutes=minutes)
            await stores.turns.submit(key(tenant), said(f"{minutes}", run_at=run_at))
        assert await _promoted(stores, ref.pk) == 1
        assert await _promoted(stores, ref.pk) == 0
        assert await _run_all(stores, ref.pk) == ["3", "2", "1"]


# --- answers ---------------------------------------------------------------------------------


async def _waiting(stores: TurnStores, tenant: str, *calls: str) -> Turn:
    await stores.submit(key(tenant), "ask")
    ref = await stores.sessions.locate(key(tenant))
    claim = await stores.claim(ref.pk, await stores.worker())
    return (await stores.queue.close(claim, InputRequired(calls))).turn


@pytest.mark.parametrize("later", [0, 1, 5])
async def test_an_answer_is_a_turn_of_the_same_invocation(
    later: int, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        waiting = await _waiting(stores, tenant, "call-1")
        assert (waiting.state, waiting.waits_for) == ("input_required", ("call-1",))
        for number in range(later):
            await stores.submit(key(tenant), f"{number}")
        answer = (await stores.turns.answer(tenant, waiting.id, "call-1", said("yes"))).turn
        assert (answer.invocation_id, answer.answers) == (waiting.invocation_id, "call-1")
        assert answer.id != answer.invocation_id
        assert await stores.state(waiting) == "answered"
        assert await _run_all(stores, ref.pk) == [*map(str, range(later)), "yes"]
        assert await stores.logged(waiting) == ["accepted", "started", "input_required"]


async def test_a_call_is_answered_once(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        waiting = await _waiting(stores, tenant, "call-1", "call-2")
        yes = said("yes", idempotency_key="k")
        first = await stores.turns.answer(tenant, waiting.id, "call-1", yes)
        assert await stores.state(waiting) == "input_required"  # for the other call
        again = await stores.turns.answer(tenant, waiting.id, "call-1", yes)
        assert (again.turn, again.repeated) == (first.turn, True)
        for call, new, why in (
            ("call-1", said("yes"), "answered already"),
            ("call-2", yes, "belongs to another turn"),
        ):
            with pytest.raises(TurnConflictError, match=why):
                await stores.turns.answer(tenant, waiting.id, call, new)
        with pytest.raises(SessionBusyError, match="waits for no result yet"):
            await stores.turns.answer(
                tenant, waiting.id, "call-3", said("yes")
            )  # the answer may ask
        await stores.turns.cancel(tenant, first.turn.id)
        with pytest.raises(CallNotFoundError, match="does not wait"):
            await stores.turns.answer(tenant, waiting.id, "call-3", said("yes"))
        await stores.turns.answer(tenant, waiting.id, "call-1", said("yes"))
        await stores.turns.answer(tenant, waiting.id, "call-2", said("no"))
        assert await stores.state(waiting) == "answered"


async def test_a_call_that_two_turns_wait_for_is_answered_once(store_url: str, tenant: str) -> None:
    """The answer to one of two calls runs, and waits for the other call as the first turn does."""
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        waiting = await _waiting(stores, tenant, "call-1", "call-2")
        answer = (await stores.turns.answer(tenant, waiting.id, "call-1", said())).turn
        claim = await stores.claim(ref.pk, await stores.worker())
        await stores.queue.close(claim, InputRequired(("call-2",)))
        await stores.turns.answer(tenant, answer.id, "call-2", said())
        assert [await stores.state(waiting), await stores.state(answer)] == ["answered", "answered"]
        with pytest.raises(TurnConflictError):
            await stores.turns.answer(tenant, waiting.id, "call-2", said())


async def test_a_turn_that_waits_for_what_is_answered_is_answered(
    store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        waiting = await _waiting(stores, tenant, "call-1", "call-2")
        await stores.turns.answer(tenant, waiting.id, "call-1", said())
        await stores.turns.answer(tenant, waiting.id, "call-2", said())
        claim = await stores.claim(ref.pk, await stores.worker())
        closed = await stores.queue.close(claim, InputRequired(("call-2",)))
        assert closed.turn.state == "answered"
        assert closed.next is not None
        assert await stores.logged(closed.turn) == ["accepted", "started", "input_required"]


async def test_a_cancelled_answer_leaves_the_call_open(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        waiting = await _waiting(stores, tenant, "call-1")
        answer = (await stores.turns.answer(tenant, waiting.id, "call-1", said("yes"))).turn
        await stores.turns.cancel(tenant, answer.id)
        assert await stores.state(waiting) == "input_required"
        await stores.turns.answer(tenant, waiting.id, "call-1", said("no"))
        assert await _run_all(stores, ref.pk) == ["no"]


@pytest.mark.parametrize("end", [Failed(TurnError("early")), Cancelled()])
@pytest.mark.parametrize("stored", [False, True])
async def test_an_answer_counts_once_it_is_stored(
    end: Failed | Cancelled, stored: bool, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        waiting = await _waiting(stores, tenant, "call-1")
        answer = (await stores.turns.answer(tenant, waiting.id, "call-1", said("yes"))).turn
        claim = await stores.claim(ref.pk, await stores.worker())
        if stored:
            event = message(f"{answer.id}.user", invocation_id=answer.invocation_id)
            await stores.sessions.append(ref, event, claim.epoch)
        closed = await stores.queue.close(claim, end)
        assert closed.turn.answers == ("call-1" if stored else None)
        assert await stores.state(waiting) == ("answered" if stored else "input_required")
        again = stores.turns.answer(tenant, waiting.id, "call-1", said("again"))
        if stored:
            with pytest.raises(TurnConflictError, match="answered already"):
                await again
            return
        await again
        assert await stores.state(waiting) == "answered"
        assert await _run_all(stores, ref.pk) == ["again"]


async def test_a_turn_that_asked_nothing_takes_no_answer(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref = await stores.session(key(tenant))
        turn = await stores.submit(key(tenant))
        for _ in range(2):
            with pytest.raises(CallNotFoundError, match="does not wait"):
                await stores.turns.answer(tenant, turn.id, "call-1", said())
            await _run_all(stores, ref.pk)


# --- deleted sessions ------------------------------------------------------------------------


async def test_a_deleted_session_takes_its_turns_along(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        ref, worker = await stores.session(key(tenant)), await stores.worker()
        turns: list[Any] = [await stores.submit(key(tenant)) for _ in range(2)]
        await stores.claim(ref.pk, worker)
        await stores.turns.submit(key(tenant), said(run_at=AN_HOUR_AGO))
        await stores.sessions.delete(key(tenant))
        assert await stores.heads([ref.pk or 0]) == []
        assert await stores.queue.held_by(worker.id) == {}
        assert await _promoted(stores, ref.pk) == 0
        for turn in turns:
            with pytest.raises(TurnNotFoundError):
                await stores.turns.get(tenant, turn.id)
        for table in ("turns", "turn_events", "tool_ledger"):
            assert await count(store_url, table, ref.pk) == 0


async def test_a_turn_behind_another_than_it_thinks_is_refused(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        first = await stores.turns.submit(key(tenant), said(idempotency_key="k"), after=0)
        with pytest.raises(SessionBusyError, match="in the meantime"):
            await stores.submit(key(tenant), after=0)
        again = await stores.turns.submit(key(tenant), said(idempotency_key="k"), after=0)
        assert (again.turn, again.repeated) == (first.turn, True)
        assert (await stores.submit(key(tenant), after=1)).number == 2


# --- titles ----------------------------------------------------------------------------------


async def title(stores: TurnStores, tenant: str) -> str:
    return (await stores.sessions.summary(key(tenant))).title


@pytest.mark.parametrize("busy", ["enqueue", "interrupt"])
async def test_the_first_message_is_the_title(busy: Busy, store_url: str, tenant: str) -> None:
    """On PostgreSQL `interrupt` takes the way of several statements."""
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        for text in ("Where is\nmy parcel?", "Hello?"):
            await stores.turns.submit(key(tenant), NewTurn({"text": text}), busy=busy)
        assert await title(stores, tenant) == "Where is my parcel?"


@pytest.mark.parametrize("run_at", [None, IN_AN_HOUR])
async def test_a_title_that_was_given_stays(
    run_at: datetime | None, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        await stores.sessions.rename(key(tenant), "Parcel")
        await stores.turns.submit(key(tenant), NewTurn({"text": "Hello"}, run_at=run_at))
        assert await title(stores, tenant) == "Parcel"


async def test_a_later_message_is_no_title(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        await stores.session(key(tenant))
        await stores.turns.submit(key(tenant), NewTurn({"text": "Hello"}))
        await stores.sessions.rename(key(tenant), "")
        await stores.turns.submit(key(tenant), NewTurn({"text": "Again"}))
        assert await title(stores, tenant) == ""
