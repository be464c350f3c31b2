"""Text that a bus carries to readers before it is in the log: no gap, no repeat, in any process."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from faults.turns.workspace import TurnProcess, Workspace, turn_process
from lango.core.turns.events import (
    Cancelled,
    Completed,
    Event,
    MessageCompleted,
    MessageDelta,
    ToolStarted,
)
from lango.core.turns.positions import Position
from lango.errors import Fenced, StoreUnavailableError
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.log import LogCursor, LoggedEvent, TurnLog
from lango.store.turns.rows import Claim
from lango.store.turns.submit import SqlTurnStore
from lango.store.turns.workers import Worker, Workers
from lango.turns.bus.event_messages import decode_events, encode_events
from lango.turns.bus.protocol import BusMessage, OnMessage
from lango.turns.engine.database import LocalEngine
from lango.turns.log.writer import STREAM_FOR, LogWriter
from lango.turns.service import Turns
from tests.turns.log.claims import claim_as, claimed

_AGAIN = 0.05


class Hub:
    """A bus within the test: every member receives what the others publish, unless it is cut."""

    def __init__(self) -> None:
        self.members: list[HubBus] = []
        self.is_cut = False

    def bus(self) -> "HubBus":
        self.members.append(HubBus(self))
        return self.members[-1]


class HubBus:
    reaches_others = carries_data = is_connected = True

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._on_message: OnMessage | None = None

    async def listen(self, on_message: OnMessage, on_connect: Callable[[], None]) -> NoReturn:
        self._on_message = on_message
        on_connect()
        await asyncio.Event().wait()
        raise AssertionError("The event is never set.")

    async def publish(self, messages: Sequence[BusMessage]) -> None:
        for member in self._hub.members if not self._hub.is_cut else ():
            if member is not self and member._on_message is not None:
                for message in messages:
                    member._on_message(message.topic, message.data)

    def subscribe(self, topic: str) -> None: ...

    def unsubscribe(self, topic: str) -> None: ...


class ReaderProcess:
    """Another process that reads."""

    def __init__(self, workspace: Workspace, hub: Hub) -> None:
        self.store = SqlSessionStore(workspace.url)
        self.engine = LocalEngine(self.store.database, bus=hub.bus())
        self.turns = Turns(self.store, self.engine)


@pytest_asyncio.fixture
async def hub() -> Hub:
    return Hub()


@pytest_asyncio.fixture
async def writing(workspace: Workspace, hub: Hub) -> AsyncIterator[TurnProcess]:
    """The process of the worker."""
    made = TurnProcess(workspace)
    made.engine = LocalEngine(made.store.database, bus=hub.bus())
    async with made.store, made.engine:
        yield made


@pytest_asyncio.fixture
async def there(workspace: Workspace, hub: Hub) -> AsyncIterator[ReaderProcess]:
    made = ReaderProcess(workspace, hub)
    async with made.store, made.engine:
        yield made


class Writing:
    """A turn whose log is written, and the events that are in the log so far."""

    def __init__(self, process: TurnProcess, claim: Claim) -> None:
        self.claim, self._process = claim, process
        self.writer = LogWriter(process.turns.log, process.engine.wakes)
        self.is_lost = False
        self.writer.begin(claim, self._lose)

    def _lose(self) -> None:
        self.is_lost = True

    async def say(self, *texts: str) -> None:
        for text in texts:
            self.writer.add(self.claim, MessageDelta("m", text))
            await self.writer.flush()

    async def add(self, event: Event) -> None:
        self.writer.add(self.claim, event)
        await self.writer.flush()

    async def close(self) -> None:
        rest = await self.writer.rest(self.claim)
        await self._process.engine.queue.close(self.claim, Completed(), rest)
        self._process.engine.wakes.notify(self.claim.turn.id)

    async def reaches(self, texts: list[str]) -> bool:
        for _ in range(int(20 * STREAM_FOR / _AGAIN)):
            if await self.in_log() == texts:
                return True
            await asyncio.sleep(_AGAIN)
        return False

    async def in_log(self) -> list[str]:
        events = await self._process.turns.log.read_all(self.claim.turn)
        return [str(event.data.get("text", event.type)) for event in events][2:]


async def _texts(turns: Turns, turn_id: str, after: Position) -> list[LoggedEvent]:
    async with aclosing(turns.events(turn_id, after=after)) as events:
        return [event async for event in events]


async def test_text_is_streamed_before_it_is_written(
    writing: TurnProcess, there: ReaderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.turns.log.writer.STREAM_FOR", 3600.0)
    turn = Writing(writing, await claimed(writing))
    async with aclosing(there.turns.events(turn.claim.turn.id, after=2)) as events:
        reading = asyncio.create_task(anext(events))
        await asyncio.sleep(0.1)
        await turn.say("a")
        first = await reading
        assert (first.position, first.data["text"]) == (Position(3), "a")
        for length, text in enumerate(("b", "c"), 1):
            reading = asyncio.create_task(anext(events))
            await turn.say(text)
            part = await reading
            assert part.data == {"message": "m", "text": text}
            assert part.position == Position(3, length, turn.claim.epoch)
        assert await turn.in_log() == ["a"]
        await turn.add(ToolStarted("call", "tool", {}))
        assert (await anext(events)).type == "tool.started"
        assert await turn.in_log() == ["a", "bc", "tool.started"]


async def test_streamed_text_is_written_after_a_while(writing: TurnProcess, hub: Hub) -> None:
    hub.bus()
    turn = Writing(writing, await claimed(writing))
    running = asyncio.create_task(turn.writer.run())
    turn.writer.add(turn.claim, MessageDelta("m", "a"))
    assert await turn.reaches(["a"])
    turn.writer.add(turn.claim, MessageDelta("m", "b"))
    assert await turn.reaches(["a", "b"])
    running.cancel()


async def test_text_that_no_other_process_reads_is_written_later(
    postgres_url: str, tmp_path: Path
) -> None:
    workspace = Workspace(postgres_url, f"app_{uuid.uuid4().hex}", tmp_path)
    async with turn_process(workspace) as process, turn_process(workspace) as other:
        turn = Writing(process, await claimed(process))
        async with aclosing(process.turns.events(turn.claim.turn.id, after=2)) as events:
            reading = asyncio.create_task(anext(events))
            await asyncio.sleep(0.1)
            await turn.say("a")
            assert (await reading).data["text"] == "a"
            await turn.say("b")
            assert (await anext(events)).data["text"] == "b"
        assert await turn.in_log() == ["a"]
        with other.engine.wakes.subscribe_to_log(turn.claim.turn.id):
            await _until(lambda: not process.engine.wakes.carries_text)
            await turn.say("c")
            assert await turn.in_log() == ["a", "bc"]


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - another process
            await asyncio.sleep(_AGAIN)


async def test_a_reader_resumes_within_an_event(writing: TurnProcess, there: ReaderProcess) -> None:
    turn = Writing(writing, await claimed(writing))
    await turn.say("a", "bc", "de")
    within = Position(3, 3, turn.claim.epoch)
    await turn.close()
    result = [
        e.data.get("text", e.type) for e in await _texts(there.turns, turn.claim.turn.id, within)
    ]
    assert result == ["e", "completed"]
    whole = Position(3, 4, turn.claim.epoch)
    result = [
        e.data.get("text", e.type) for e in await _texts(there.turns, turn.claim.turn.id, whole)
    ]
    assert result == ["completed"]


async def test_the_text_of_a_lost_attempt_is_not_taken_for_the_next_ones(
    writing: TurnProcess, there: ReaderProcess
) -> None:
    turn = Writing(writing, await claimed(writing))
    await turn.say("a", "lost")
    within = Position(3, 4, turn.claim.epoch - 1)  # as if another attempt had streamed it
    await turn.add(MessageCompleted("m", "app", "a and more"))
    await turn.close()
    result = [
        e.data.get("text", e.type) for e in await _texts(there.turns, turn.claim.turn.id, within)
    ]
    assert result == ["lost", "a and more", "completed"]


async def _take_over(process: TurnProcess, claim: Claim) -> Claim:
    """Let another worker claim the turn."""
    await Workers(process.store.database).remove(claim.worker)
    worker = Worker(f"{claim.worker}_next", {process.workspace.app: "print"})
    return await claim_as(process, worker, claim.turn.session_pk)


async def test_a_worker_that_lost_its_turn_in_an_outage_streams_nothing(
    writing: TurnProcess, there: ReaderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Writing(writing, await claimed(writing))
    with monkeypatch.context() as outage:

        async def unavailable(_: object, __: object) -> NoReturn:
            raise StoreUnavailableError

        outage.setattr(TurnLog, "append_many", unavailable)
        with pytest.raises(StoreUnavailableError):
            await turn.say("a")
    taken = await _take_over(writing, turn.claim)  # it writes as many events as are in doubt
    reading = asyncio.create_task(_texts(there.turns, turn.claim.turn.id, Position(2)))
    await asyncio.sleep(0.2)
    with pytest.raises(Fenced):
        await turn.say("b", "c")
    await asyncio.sleep(0.2)
    await writing.engine.queue.close(taken, Completed())
    assert [event.type for event in await reading] == ["started", "completed"]
    assert turn.is_lost


async def test_a_worker_that_knows_that_it_lost_its_turn_streams_nothing(
    writing: TurnProcess, there: ReaderProcess
) -> None:
    turn = Writing(writing, await claimed(writing))
    await turn.say("a")
    await SqlTurnStore(writing.store.database).cancel("", turn.claim.turn.id)
    taken = await _take_over(writing, turn.claim)  # to close it, which logs nothing yet
    reading = asyncio.create_task(_texts(there.turns, turn.claim.turn.id, Position(2)))
    await asyncio.sleep(0.2)
    await turn.add(ToolStarted("call", "tool", {}))
    assert turn.is_lost
    with pytest.raises(Fenced):
        await turn.say("b")
    await asyncio.sleep(0.2)
    await writing.engine.queue.close(taken, Cancelled())
    assert [event.data.get("text") for event in await reading] == ["a", ""]


async def test_without_the_bus_the_log_has_all(
    writing: TurnProcess, there: ReaderProcess, hub: Hub
) -> None:
    turn = Writing(writing, await claimed(writing))
    reading = asyncio.create_task(_texts(there.turns, turn.claim.turn.id, Position(2)))
    await asyncio.sleep(0.1)
    await turn.say("a", "b")
    hub.is_cut = True
    await turn.say("c")
    hub.is_cut = False
    await turn.say("d")  # its reader lacks "c", and waits for the event that has all
    await turn.close()
    result = [str(event.data.get("text", "")) for event in await reading]
    assert "".join(result) == "abcd"


TEXTS = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=6)


@given(TEXTS, st.data())
def test_a_cursor_passes_on_every_character_once(texts: list[str], data: st.DataObject) -> None:
    """Whichever parts are lost, repeated or late, and wherever the reader resumes."""
    sent: list[LoggedEvent] = []
    for number, text in enumerate(texts, 1):
        whole = LoggedEvent(number, "message.delta", {"text": text}, 1, 0.0)
        cuts = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=3)))
        for start, stop in zip([0, *cuts], cuts, strict=False):
            part = replace(whole, data={"text": text[start:stop]}, length=stop)
            sent += [part] * data.draw(st.integers(0, 2))
        sent.append(whole)
    cursor, read = LogCursor(Position()), ""
    for event in sent:
        if data.draw(st.booleans()):
            cursor = LogCursor(Position.parse(str(cursor.position)))
        if (unread := cursor.read(event)) is not None:
            read += str(unread.data["text"])
    assert read == "".join(texts)
    assert cursor.position == Position(len(texts))


def test_events_pass_a_bus_unchanged() -> None:
    events = [LoggedEvent(1, "started", {"attempt": 1}, 2, 3.5), LoggedEvent(2, "x", {}, 1, 0.0, 7)]
    assert decode_events(encode_events(events)) == events


def test_what_a_bus_cannot_carry_or_read_is_looked_up() -> None:
    long = LoggedEvent(1, "message.delta", {"text": "x" * 300_000}, 1, 0.0)
    assert encode_events([long]) == b""
    for foreign in (b"", b'{"v": 2, "events": []}', b"{", b"[]", b'{"v": 1}'):
        assert decode_events(foreign) is None
