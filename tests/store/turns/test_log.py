"""The log of a turn: numbered without gaps, written once, read from anywhere, trimmed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event as sa_event

from lango.core.turns.events import Completed, MessageDelta, ToolFinished
from lango.errors import Fenced
from lango.store.schema.tables import sessions, turns
from lango.store.turns.log import LogWrite
from lango.store.turns.rows import OF_SESSION, Claim
from tests.store.rows import PATIENCE, beside, execute, key
from tests.store.turns.turn_stores import TurnStores, count, opened


async def _claimed(stores: TurnStores, tenant: str, session: str = "s") -> Claim:
    ref = await stores.session(key(tenant, session))
    await stores.submit(key(tenant, session))
    return await stores.claim(ref.pk, await stores.worker())


def delta(text: str) -> MessageDelta:
    return MessageDelta("m", text)


async def test_events_are_numbered_and_read_back(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        assert await stores.log.append(claim, [delta("a"), delta("b")]) == 4
        result = ToolFinished("call-1", "tool", {"text": 'é "\x00', "n": 1.0})
        assert await stores.log.append(claim, [result]) == 5
        page = await stores.log.read(tenant, claim.turn.id, after=2)
        assert [(event.number, event.type) for event in page.events] == [
            (3, "message.delta"),
            (4, "message.delta"),
            (5, "tool.finished"),
        ]
        assert page.events[1].data == {"message": "m", "text": "b"}
        assert page.events[2].data["result"] == {"text": 'é "\ufffd', "n": 1.0}
        assert {event.epoch for event in page.events} == {claim.epoch}
        assert not page.is_end
        some = await stores.log.read(tenant, claim.turn.id, after=1, limit=2)
        assert [event.number for event in some.events] == [2, 3]


async def test_a_reader_knows_the_end(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        await stores.queue.close(claim, Completed(), [delta("bye")])
        cut = await stores.log.read(tenant, claim.turn.id, limit=2)
        assert not cut.is_end
        rest = await stores.log.read(tenant, claim.turn.id, after=2)
        assert rest.is_end
        assert [event.type for event in rest.events] == ["message.delta", "completed"]
        assert (await stores.log.read(tenant, claim.turn.id, after=4)).is_end


async def test_no_end_is_written_into_a_log(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        with pytest.raises(ValueError, match="closing the turn"):
            await stores.log.append(claim, [Completed()])


async def test_many_logs_are_written_at_once(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        good = [await _claimed(stores, tenant, name) for name in ("one", "two")]
        lost = await _claimed(stores, tenant, "lost")
        await stores.finish(lost)
        writes = [LogWrite(claim, [delta("x"), delta("y")]) for claim in (good[0], lost, good[1])]
        one, none, two = await stores.log.append_many(writes)
        assert none is None
        for claim, written in zip(good, (one, two), strict=True):
            assert written == (await stores.log.read(tenant, claim.turn.id, after=2)).events
        # Two for one turn are one after the other.
        twice = [LogWrite(good[0], [delta("first")]), LogWrite(good[0], [delta("second")])]
        both = await stores.log.append_many(twice)
        page = await stores.log.read(tenant, good[0].turn.id, after=4)
        assert both == [page.events, page.events]
        assert [event.data["text"] for event in page.events] == ["first", "second"]
        assert await stores.log.append_many([]) == []
        with pytest.raises(Fenced):
            await stores.log.append(lost, [delta("x")])


async def test_a_newer_epoch_closes_the_log_to_older_claims(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        statement = sa.update(sessions).where(sessions.c.pk == claim.turn.session_pk)
        await execute(store_url, statement.values(epoch=sessions.c.epoch + 1))
        with pytest.raises(Fenced):
            await stores.log.append(claim, [delta("x")])


async def test_writers_at_once_leave_no_gap(store_url: str, tenant: str) -> None:
    """And a reader beside them sees every event once, in order."""
    async with opened(store_url) as one, opened(store_url) as two:
        claim = await _claimed(one, tenant)
        seen: list[int] = []

        async def read() -> None:
            while len(seen) < 2 + 60:
                page = await two.log.read(tenant, claim.turn.id, after=seen[-1] if seen else 0)
                seen.extend(event.number for event in page.events)

        async def write(stores: TurnStores) -> None:
            for _ in range(10):
                await stores.log.append(claim, [delta("x"), delta("y")])

        async with asyncio.timeout(60):
            await asyncio.gather(read(), write(one), write(two), write(one))
        assert seen == list(range(1, 63))


async def test_a_batch_that_is_there_is_not_written_again(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        monkeypatch.setattr("lango.store.turns.log.new_id", "bat_{}".format)
        for _ in range(3):
            assert await stores.log.append(claim, [delta("x"), delta("y")]) == 4
        assert len((await stores.log.read(tenant, claim.turn.id)).events) == 4


async def test_old_logs_are_dropped(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        claim = await _claimed(stores, tenant)
        running = await _claimed(stores, tenant, "running")
        await stores.finish(claim)
        await stores.log.trim(3600)
        assert len((await stores.log.read(tenant, claim.turn.id)).events) == 3
        await stores.log.trim(0)
        page = await stores.log.read(tenant, claim.turn.id)
        assert (page.turn.trimmed, page.events, page.is_end) == (True, [], True)
        assert page.turn.state == "completed"
        assert await count(store_url, "turn_events", claim.turn.session_pk) == 0
        kept = await stores.log.read(tenant, running.turn.id)
        assert (kept.turn.trimmed, len(kept.events)) == (False, 2)


async def _ended(stores: TurnStores, tenant: str, count: int) -> list[Claim]:
    claims = [await _claimed(stores, tenant, f"s{number}") for number in range(count)]
    for claim in claims:
        await stores.finish(claim)
    return claims


async def _kept(stores: TurnStores, claims: list[Claim]) -> int:
    turns = [await stores.turns.get(each.turn.session.tenant, each.turn.id) for each in claims]
    return sum(not turn.trimmed for turn in turns)


async def test_one_round_drops_all_old_logs(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.turns.log._TRIMMED_TOGETHER", 2)
    async with opened(store_url) as stores:
        claims = await _ended(stores, tenant, 5)
        assert await stores.log.trim(-60) >= len(claims)
        assert await _kept(stores, claims) == 0
        for claim in claims:
            assert await count(store_url, "turn_events", claim.turn.session_pk) == 0


async def test_a_trim_leaves_the_database_most_of_the_time(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that moves only in the batches and in the pauses shows what part the batches have."""
    clock, used = [0.0], [0.0]
    monkeypatch.setattr("lango.store.turns.log._TRIMMED_TOGETHER", 2)
    async with opened(store_url) as stores:
        await _ended(stores, tenant, 5)
        batch = stores.log._trim_batch  # pyright: ignore[reportPrivateUsage]

        async def slow_batch(*arguments: Any) -> Any:
            clock[0] += 1.0
            used[0] += 1.0
            return await batch(*arguments)

        async def pause(seconds: float) -> None:
            clock[0] += seconds

        monkeypatch.setattr(stores.log, "_trim_batch", slow_batch)
        patched = {"time": SimpleNamespace(monotonic=lambda: clock[0])}
        patched["asyncio"] = SimpleNamespace(sleep=pause)
        for name, module in patched.items():
            monkeypatch.setattr(f"lango.store.turns.log.{name}", module)
        assert await stores.log.trim(-60) >= 5
        assert used[0] >= 3
        assert (used[0] - 1) / (clock[0] - 1) == pytest.approx(0.25)  # the last needs no pause


async def test_workers_that_trim_together_leave_nothing(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.turns.log._TRIMMED_TOGETHER", 2)
    async with opened(store_url) as one, opened(store_url) as two, opened(store_url) as three:
        claims = await _ended(one, tenant, 20)
        async with asyncio.timeout(60):
            counts = await asyncio.gather(*(stores.log.trim(-60) for stores in (one, two, three)))
        assert sum(counts) >= len(claims)
        assert await _kept(one, claims) == 0


async def test_a_batch_on_sqlite_is_two_statements(sqlite_url: str, tenant: str) -> None:
    seen: list[str] = []

    def executed(_c: Any, _u: Any, sql: str, *_rest: Any) -> None:
        seen.append(sql)

    async with opened(sqlite_url) as stores:
        claims = await _ended(stores, tenant, 5)
        engine = await stores.sessions.database.open()
        sa_event.listen(engine.sync_engine, "before_cursor_execute", executed)
        assert await stores.log.trim(-60) == len(claims)
    assert [sql.split()[0] for sql in seen] == ["DELETE", "UPDATE"]


async def test_the_log_of_a_locked_turn_is_left_for_the_next_round(
    postgres_url: str, tenant: str
) -> None:
    async with opened(postgres_url) as stores:
        claims = await _ended(stores, tenant, 3)
        first = claims[0].turn.session_pk
        async with beside(postgres_url) as other, asyncio.timeout(PATIENCE):
            await other.execute(sa.select(turns).where(OF_SESSION).with_for_update(), _of(first))
            await stores.log.trim(-60)
            assert await _kept(stores, claims) == 1
        await stores.log.trim(-60)
        assert await _kept(stores, claims) == 0


def _of(session_pk: int) -> dict[str, int]:
    return {"of_session": session_pk}
