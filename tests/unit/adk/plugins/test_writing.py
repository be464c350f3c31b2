"""Writing behind a turn's back."""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import ContextVar

import pytest

from lango.adk.plugins import writing
from lango.adk.plugins.writing import BATCH, ROOM, Writer
from lango.errors import StoreUnavailableError


class Page:
    """Somewhere to write to, which can be shut."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.batches: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.broken = False

    async def write(self, batch: Sequence[int]) -> None:
        await self.open.wait()
        if self.broken:
            raise OSError("broken")
        self.batches.append(len(batch))
        self.written += batch


async def test_everything_is_written_in_order_and_together() -> None:
    page = Page()
    writer = Writer(page.write, "things")
    for number in range(250):
        writer.put(number)
    assert page.written == []
    await writer.flush(5)
    assert page.written == list(range(250))
    assert page.batches == [BATCH, BATCH, 50]


async def test_its_task_lives_only_while_there_is_work() -> None:
    before = len(asyncio.all_tasks())
    page = Page()
    writer = Writer(page.write, "things")
    await writer.flush(1)
    for number in range(3):
        writer.put(number)
        await writer.flush(1)
        assert len(asyncio.all_tasks()) == before
    assert page.written == [0, 1, 2]


async def test_the_work_knows_nothing_of_the_turn() -> None:
    turn: ContextVar[str] = ContextVar("turn", default="none")
    seen: list[str] = []

    async def write(batch: Sequence[int]) -> None:
        del batch
        seen.append(turn.get())

    turn.set("this one")
    writer = Writer(write, "things")
    writer.put(1)
    await writer.flush(1)
    assert seen == ["none"]


async def test_after_a_late_write_no_flush_waits_until_a_write_succeeds() -> None:
    page = Page()
    page.open.clear()
    writer = Writer(page.write, "things")
    writer.put(1)
    await writer.flush(0.01)
    await asyncio.wait_for(writer.flush(60), 5)  # at once
    page.open.set()
    await writer.close(5)
    assert page.written == [1]
    page.open.clear()
    writer.put(2)
    waiting = asyncio.create_task(writer.flush(60))
    await asyncio.sleep(0)
    assert not waiting.done()  # it waits again
    page.open.set()
    await waiting
    assert page.written == [1, 2]


async def test_a_failure_and_a_recovery_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    page = Page()
    page.broken = True
    writer = Writer(page.write, "Things")
    with caplog.at_level(logging.WARNING, writing.__name__):
        for number in range(3):
            writer.put(number)
            await writer.close(5)
        await asyncio.wait_for(writer.flush(60), 5)
        page.broken = False
        writer.put(3)
        await writer.close(5)
    assert caplog.messages == [
        "Things cannot be written and are lost; the turns continue.",
        "Things are written again; 3 were lost.",
    ]
    assert page.written == [3]


async def test_it_keeps_no_more_than_it_has_room_for(caplog: pytest.LogCaptureFixture) -> None:
    page = Page()
    page.open.clear()
    writer = Writer(page.write, "Things")
    with caplog.at_level(logging.WARNING, writing.__name__):
        for number in range(ROOM + 7):
            writer.put(number)
        page.open.set()
        await writer.close(5)
    assert page.written == list(range(ROOM))
    assert caplog.messages[-1] == "Things are written again; 7 were lost."


async def test_closing_gives_up_what_hangs(caplog: pytest.LogCaptureFixture) -> None:
    page = Page()
    page.open.clear()
    writer = Writer(page.write, "things")
    writer.put(1)
    with caplog.at_level(logging.ERROR, writing.__name__):
        await writer.close(0.01)
    assert caplog.messages == ["Ended with things unwritten."]
    assert len(asyncio.all_tasks()) == 1


async def test_a_flush_waits_for_what_was_given_before_it_and_no_more() -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    written: list[int] = []

    async def write(batch: Sequence[int]) -> None:
        await gates[batch[0]].wait()
        written.extend(batch)

    writer = Writer(write, "things")
    writer.put(0)
    waiting = asyncio.create_task(writer.flush(60))
    await asyncio.sleep(0)
    writer.put(1)
    gates[0].set()
    await asyncio.wait_for(waiting, 5)
    assert written == [0]
    gates[1].set()
    await writer.close(5)
    assert written == [0, 1]


async def test_what_the_database_does_not_take_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "AGAIN", 0.0)
    failures, written = 3, list[int]()

    async def write(batch: Sequence[int]) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailableError("away")
        written.extend(batch)

    writer = Writer(write, "things")
    writer.put(1)
    writer.put(2)
    await writer.close(5)
    assert (failures, written) == (0, [1, 2])


async def test_a_flush_ends_when_the_database_refuses_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thing may be late for long, as when its session is locked: others do not wait for it."""
    monkeypatch.setattr(writing, "AGAIN", 3600.0)
    asked, tries = asyncio.Event(), 0

    async def write(batch: Sequence[int]) -> None:
        nonlocal tries
        await asked.wait()
        tries += len(batch)
        raise StoreUnavailableError("away")

    writer = Writer(write, "things")
    writer.put(1)
    waiting = asyncio.create_task(writer.flush(60))
    await asyncio.sleep(0.01)
    asked.set()
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(writer.flush(60), 5)
    assert tries == 1
    await writer.close(0.01)


async def test_a_durable_turn_waits_for_a_database_that_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an answer used is stored before the answer is; others do not wait meanwhile."""
    monkeypatch.setattr(writing, "AGAIN", 0.05)
    page, tries = Page(), 0

    async def write(batch: Sequence[int]) -> None:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise StoreUnavailableError
        await page.write(batch)

    writer = Writer(write, "things")
    writer.put(1)
    await writer.flush(60)
    assert page.written == []
    await asyncio.wait_for(writer.flush(60, outlasts=True), 5)
    assert page.written == [1]
