"""The log writer under faults, and what a new attempt tells of the one before."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from faults.turns.workspace import TurnProcess
from lango.core.turns.events import (
    Completed,
    Event,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ReasoningDelta,
    ToolProgress,
    ToolStarted,
)
from lango.errors import StoreUnavailableError
from lango.store.db.database import Database
from lango.store.turns.log import PAGE, LoggedEvent, LogPage, LogWrite, TurnLog
from lango.store.turns.rows import Turn
from lango.turns.log.replay import missing_events, resets
from lango.turns.log.writer import LogWriter
from tests.turns.log.claims import claimed

REFUSED = "refused"


class FailingLog(TurnLog):
    """Fails once, before or after the write has been made, and counts the logs of the others."""

    fails: str = ""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.sizes: list[int] = []

    async def append_many(self, writes: Sequence[LogWrite]) -> list[Sequence[LoggedEvent] | None]:
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise StoreUnavailableError
        written = await super().append_many(writes)
        if fails == "after":
            raise StoreUnavailableError
        self.sizes.append(len(writes))
        return written


class Unread(TurnLog):
    """Counts how often it is read on."""

    reads = 0

    async def read_on(self, turn: Turn, after: int, *, limit: int = PAGE) -> LogPage:
        self.reads += 1
        return await super().read_on(turn, after, limit=limit)


class CountedWriter(LogWriter):
    """Counts its flushes."""

    flushes = 0

    async def flush(self) -> None:
        self.flushes += 1
        await super().flush()


def _told(events: Sequence[LoggedEvent]) -> list[tuple[str, str]]:
    return [(e.type, str(e.data.get("text", ""))) for e in events if e.type.endswith(".delta")]


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_a_batch_in_doubt_is_written_once(process: TurnProcess, fails: str) -> None:
    claim, log = await claimed(process), FailingLog(process.store.database)
    writer = LogWriter(log, process.engine.wakes)
    writer.begin(claim, lambda: None)
    writer.add(claim, MessageDelta("m", "a"))
    log.fails = fails
    with pytest.raises(StoreUnavailableError):
        await writer.flush()
    writer.add(claim, ReasoningDelta("m", "b"))
    await writer.flush()
    await process.engine.queue.close(claim, Completed(), await writer.rest(claim))
    assert _told(await process.read(claim.turn.id)) == [
        ("message.delta", "a"),
        ("thought.delta", "b"),
    ]


class RefusingLog(TurnLog):
    """Refuses what holds one text, and once is away when it is asked again."""

    is_away_then = False

    async def append_many(self, writes: Sequence[LogWrite]) -> list[Sequence[LoggedEvent] | None]:
        events = [event for write in writes for event in write.events]
        if MessageDelta("m", REFUSED) in events:
            raise ValueError("no such text")
        if self.is_away_then and len(events) == 1:
            self.is_away_then = False
            raise StoreUnavailableError
        return await super().append_many(writes)


@pytest.mark.parametrize("is_away_then", [False, True])
async def test_an_event_that_is_refused_keeps_no_other_from_its_log(
    process: TurnProcess, is_away_then: bool, caplog: pytest.LogCaptureFixture
) -> None:
    claims = [await claimed(process, f"s{number}") for number in range(3)]
    log = RefusingLog(process.store.database)
    log.is_away_then = is_away_then
    writer = LogWriter(log, process.engine.wakes)
    for claim in claims:
        writer.begin(claim, lambda: None)
        writer.add(claim, ReasoningDelta("m", "before"))
        if claim is claims[1]:
            writer.add(claim, MessageDelta("m", REFUSED))
        writer.add(claim, ReasoningDelta("n", "after"))
    if is_away_then:
        with pytest.raises(StoreUnavailableError):
            await writer.flush()
    await writer.flush()
    for claim in claims:
        assert await writer.rest(claim) == ()
        await process.engine.queue.close(claim, Completed())
        result = _told(await process.read(claim.turn.id))
        assert result == [("thought.delta", "before"), ("thought.delta", "after")]
    left_out = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert left_out == [
        f"The database refused an event (message.delta) of turn {claims[1].turn.id}; "
        "its log lacks the event."
    ]


async def test_many_logs_are_written_some_at_a_time(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.turns.log.writer.TURNS_PER_WRITE", 2)
    claims = [await claimed(process, f"s{number}") for number in range(5)]
    log = FailingLog(process.store.database)
    writer = LogWriter(log, process.engine.wakes)
    for claim in claims:
        writer.begin(claim, lambda: None)
        writer.add(claim, MessageDelta("m", claim.id))
    log.fails = "after"
    with pytest.raises(StoreUnavailableError):
        await writer.flush()
    await writer.flush()  # the two in doubt are there
    assert log.sizes == [2, 1]
    for claim in claims:
        await process.engine.queue.close(claim, Completed(), await writer.rest(claim))
        assert _told(await process.read(claim.turn.id)) == [("message.delta", claim.id)]


async def test_deltas_of_one_message_are_written_as_one(process: TurnProcess) -> None:
    claim = await claimed(process)
    writer = LogWriter(TurnLog(process.store.database), process.engine.wakes)
    writer.begin(claim, lambda: None)
    for text in "abc":
        writer.add(claim, MessageDelta("m", text))
    writer.add(claim, MessageDelta("n", "d"))
    assert await writer.rest(claim) == (MessageDelta("m", "abc"), MessageDelta("n", "d"))
    await writer.flush()  # what was handed to the close is not written twice
    await process.engine.queue.close(claim, Completed(), await writer.rest(claim))
    assert _told(await process.read(claim.turn.id)) == [
        ("message.delta", "abc"),
        ("message.delta", "d"),
    ]


async def test_only_words_that_follow_others_wait(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.turns.log.writer.GATHER", 3600.0)
    claim = await claimed(process)
    writer = LogWriter(TurnLog(process.store.database), process.engine.wakes)
    writer.begin(claim, lambda: None)
    running = asyncio.create_task(writer.run())
    async with asyncio.timeout(20), aclosing(process.turns.events(claim.turn.id)) as events:
        writer.add(claim, MessageDelta("m", "first"))
        received = [(await anext(events)).type for _ in range(3)]
        assert received == ["accepted", "started", "message.delta"]
        await writer.flush()  # on SQLite a reader can be faster than the disk
        writer.add(claim, MessageDelta("m", "second"))
        next_event = asyncio.create_task(anext(events))
        await asyncio.wait([next_event], timeout=0.2)
        assert not next_event.done()
        await writer.flush()
        assert (await next_event).data["text"] == "second"
        for event in (ToolStarted("call", "tool", {}), MessageDelta("n", "third")):
            writer.add(claim, event)
            assert (await anext(events)).type == event.type
    running.cancel()


async def test_who_reads_in_the_process_that_writes_is_handed_the_words(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.turns.service._FIRST_POLL", 3600.0)
    await process.engine.wakes.close()  # the listener may connect late, and then all readers look
    claim, there = await claimed(process), Unread(process.store.database)
    writer = LogWriter(there, process.engine.wakes)
    writer.begin(claim, lambda: None)
    process.turns.log = there
    async with aclosing(process.turns.events(claim.turn.id)) as events:
        received = [await anext(events), await anext(events)]  # accepted and started
        reads = there.reads
        for text in "abc":
            next_event = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            writer.add(claim, MessageDelta("m", text))
            await writer.flush()
            received.append(await next_event)
    assert there.reads == reads
    assert received == await there.read_all(await process.turns.get(claim.turn.id))


async def test_a_log_that_another_worker_writes_is_given_up(process: TurnProcess) -> None:
    claim, other = await claimed(process), await claimed(process, "other")
    lost: list[str] = []
    writer = LogWriter(TurnLog(process.store.database), process.engine.wakes)
    for each in (claim, other):
        writer.begin(each, lambda each=each: lost.append(each.id))
        writer.add(each, MessageDelta("m", "a"))
    await process.store.delete(claim.turn.session)
    await writer.flush()
    assert lost == [claim.id]
    assert (await process.turns.get(other.turn.id)).last_event == other.turn.last_event + 1


async def test_a_lost_log_leaves_nothing_to_do(process: TurnProcess) -> None:
    claim, lost = await claimed(process), list[str]()
    writer = CountedWriter(TurnLog(process.store.database), process.engine.wakes)
    writer.begin(claim, lambda: lost.append(claim.id))
    running = asyncio.create_task(writer.run())
    for text in "ab":  # the second is only streamed, where wake-ups carry text
        writer.add(claim, MessageDelta("m", text))
        await asyncio.sleep(0.2)
    await process.store.delete(claim.turn.session)
    writer.add(claim, ToolStarted("call", "tool", {}))
    async with asyncio.timeout(20):
        while not lost:  # noqa: ASYNC110 - it is only called
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.2)  # by then streamed text would be due
    flushes = writer.flushes
    await asyncio.sleep(0.5)
    assert writer.flushes == flushes
    running.cancel()


def test_a_new_attempt_tells_what_is_missing() -> None:
    logged = [
        _logged(MessageDelta("whole", "a")),
        _logged(MessageCompleted("whole", "agent", "a")),
        _logged(MessageDelta("stored", "b")),
        _logged(ReasoningDelta("lost", "c")),
        _logged(ReasoningDelta("called", "d")),
    ]
    stored: list[Event] = [
        MessageCompleted("whole", "agent", "a"),
        MessageCompleted("stored", "agent", "b b"),
        ToolStarted("call_1", "step", {}),
    ]
    missing = missing_events(logged, stored)
    assert missing == stored[1:]
    lost = resets(logged, missing, {"called"})
    assert lost == [MessageReset("lost")]
    again = [*logged, *map(_logged, [*lost, *missing])]
    assert (missing_events(again, stored), resets(again, [], {"called"})) == ([], [])


def _logged(event: Event) -> LoggedEvent:
    return LoggedEvent(1, event.type, event.data(), 1, 0.0)


async def test_of_the_unwritten_progress_of_a_call_only_the_newest_is_written(
    process: TurnProcess,
) -> None:
    claim, log = await claimed(process), FailingLog(process.store.database)
    writer = LogWriter(log, process.engine.wakes)
    writer.begin(claim, lambda: None)
    for number in range(3):
        writer.add(claim, ToolProgress("a", "dig", number))
        writer.add(claim, MessageDelta("m", str(number)))
        writer.add(claim, ToolProgress("b", "look", number))
    await writer.flush()
    events = (await log.read("", claim.turn.id)).events
    told = [(e.type, e.data.get("text", e.data.get("current"))) for e in events][2:]
    assert told == [
        ("message.delta", "0"),
        ("message.delta", "1"),
        ("tool.progress", 2),
        ("message.delta", "2"),
        ("tool.progress", 2),
    ]
