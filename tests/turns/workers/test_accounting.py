"""A worker accounts for every turn it has claimed, whatever tools and the database do to it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.workflow import START, Workflow

from faults.turns.agents import loaded
from faults.turns.workspace import TurnProcess, check_log
from lango.adk.apps.load import Root
from lango.adk.durable.giving_up import give_up
from lango.adk.durable.ledger import INTERRUPTED
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.turns.events import GivenUp, MessageDelta, Publish, TurnEvent
from lango.errors import Fenced, StoreUnavailableError
from lango.providers.scripted import ScriptedProvider, demo
from lango.store.schema.tables import turns
from lango.store.turns.claim import ClosedTurn, TurnQueue
from lango.store.turns.rows import Claim, Turn
from lango.store.turns.workers import Worker
from lango.turns import attempt
from lango.turns.worker import TurnWorker, WorkerOptions
from tests.store.rows import beside

OPEN_CALL = ["user", "assistant", "tool"]


async def leaky() -> str:
    """Let out a CancelledError, though the turn is not cancelled."""
    inner = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    inner.cancel()
    await inner
    return "never"


class Stubborn:
    """A tool that swallows its cancellation, as a library's `except BaseException` does."""

    def __init__(self) -> None:
        self.began, self.release, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(self) -> str:
        """Hold on."""
        self.began.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        self.ended.set()
        return "late"


def _worker(process: TurnProcess, *tools: Callable[..., Any] | BaseTool) -> TurnWorker:
    model = ModelAdapter(ScriptedProvider(rule=demo), "demo")
    return _serving(process, LlmAgent(name="agent", model=model, tools=[*tools]))


def _serving(process: TurnProcess, root: Root) -> TurnWorker:
    runner = AgentRunner(root, SessionServiceAdapter(process.store), name=process.workspace.app)
    return TurnWorker(
        process.store, process.engine, {process.workspace.app: DurableAgent(runner, process.store)}
    )


async def _ended(process: TurnProcess, turn: str) -> Turn:
    async with asyncio.timeout(30):
        return await process.turns.wait(turn)


async def _roles(process: TurnProcess, turn: Turn) -> list[str]:
    rows = await process.store.messages(turn.session, limit=100)
    return [row.role for row in rows if row.invocation_id == turn.invocation_id]


async def _column(process: TurnProcess, turn: str, name: str) -> int:
    async with beside(process.workspace.url) as connection:
        found = sa.select(turns.c[name]).where(turns.c.id == turn)
        return await connection.scalar(found) or 0


async def test_a_tool_that_leaks_a_cancellation_fails_its_turn(process: TurnProcess) -> None:
    async with _worker(process, leaky):
        turn, after = await process.say("call leaky {}"), await process.say("and now?")
        ended = await _ended(process, turn)
        assert (ended.state, ended.attempts) == ("failed", 1)
        assert "CancelledError" in (ended.error or {})["message"]
        assert await _roles(process, ended) == OPEN_CALL
        check_log(await process.read(turn))
        assert (await _ended(process, after)).state == "completed"


async def test_an_agent_hears_of_a_cancellation_that_leaked_in_the_agent_it_called(
    process: TurnProcess,
) -> None:
    model = ModelAdapter(ScriptedProvider(rule=demo), "demo")
    helper = LlmAgent(name="helper", model=model, tools=[leaky])
    async with _worker(process, AgentTool(helper)):
        turn = await process.say('call helper {"request": "call leaky {}"}')
        assert (await _ended(process, turn)).state == "completed"
    finished = [event for event in await process.read(turn) if event.type == "tool.finished"]
    assert [event.data["name"] for event in finished] == ["helper"]
    assert "cut off while it ran leaky" in str(finished[0].data["error"])


async def test_a_node_that_leaks_a_cancellation_fails_its_turn(process: TurnProcess) -> None:
    async def leaks(node_input: str) -> str:
        return node_input + await leaky()

    async with _serving(process, Workflow(name="flow", edges=[(START, leaks)])):
        turn = await _ended(process, await process.say("go"))
    assert turn.state == "failed"
    assert "The node leaks failed" in (turn.error or {})["message"]


@pytest.mark.parametrize("why", ["cancelled", "late"])
async def test_a_tool_that_swallows_its_cancellation_is_left_behind(
    process: TurnProcess,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(attempt, "STOP_GRACE", 0.1)
    tool = Stubborn()
    async with _worker(process, tool.stubborn) as worker:
        limit = {"time_limit": 10.0} if why == "late" else {}
        turn = await process.say("call stubborn {}", **limit)
        async with asyncio.timeout(30):  # a turn that is late before its tool begins never does
            await tool.began.wait()
        if why == "cancelled":
            await process.turns.cancel(turn)
        ended = await _ended(process, turn)
        state, error = ("cancelled", None) if why == "cancelled" else ("failed", "TurnTimeoutError")
        assert (ended.state, (ended.error or {}).get("type")) == (state, error)
        assert await _roles(process, ended) == OPEN_CALL
        rows = await process.store.messages(ended.session, limit=100)
        assert INTERRUPTED in (rows[-1].tool_calls or "")
        assert "ignores its cancellation" in caplog.text
        assert worker.left_behind == 1
        tool.release.set()
        await tool.ended.wait()
        async with asyncio.timeout(30):
            while worker.left_behind:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        assert await process.store.messages(ended.session, limit=100) == rows
        events = await process.read(turn)
        check_log(events)
        assert (await _ended(process, await process.say("and now?"))).state == "completed"


class Leaking:
    """An app that leaks a cancellation while a part of its run still publishes text."""

    fingerprint = "leaking"
    remembers = False
    embedder = None

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.part: asyncio.Task[None] | None = None

    async def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        del abort
        if claim.verdict is not None:
            assert self.part is not None
            self.closing.set()
            await asyncio.wait([self.part])
            yield claim.verdict
            return
        yield MessageDelta("m", "before")
        self.part = asyncio.create_task(self._publish_later(publish))
        raise asyncio.CancelledError

    async def _publish_later(self, publish: Publish) -> None:
        await self.closing.wait()
        publish(MessageDelta("m", " and after"))


async def test_what_an_abandoned_run_publishes_is_refused(process: TurnProcess) -> None:
    app = Leaking()
    async with TurnWorker(process.store, process.engine, {process.workspace.app: app}):
        turn = await process.say("hi")
        assert (await _ended(process, turn)).state == "failed"
        texts = [e.data["text"] for e in await process.read(turn) if e.type == MessageDelta.type]
    assert texts == ["before"]
    assert app.part is not None
    assert isinstance(app.part.exception(), Fenced)


async def test_a_claim_whose_reply_is_lost_is_handed_back(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = TurnQueue.claim, list[str]()

    async def claim(
        queue: TurnQueue, pk: int, worker: Worker, claim_id: str | None = None, **more: bool
    ) -> Claim | None:
        made = await real(queue, pk, worker, claim_id, **more)
        if made is not None and not lost:
            lost.append(made.id)
            raise StoreUnavailableError
        return made

    monkeypatch.setattr(TurnQueue, "claim", claim)
    async with _worker(process):
        turn = await process.say("hi")
        ended = await _ended(process, turn)
    assert lost
    assert (ended.state, ended.attempts) == ("completed", 2)
    assert await _column(process, turn, "handed_over") == 1


async def test_a_claim_that_is_being_made_is_not_handed_back(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = TurnQueue.claim, list[int]()
    async with _worker(process) as worker:

        async def claim(
            queue: TurnQueue, pk: int, worker_: Worker, claim_id: str | None = None, **more: bool
        ) -> Claim | None:
            made = await real(queue, pk, worker_, claim_id, **more)
            if made is not None:  # the database knows of it, and the worker does not yet
                await worker._reconcile_claims()  # pyright: ignore[reportPrivateUsage]
                looks.append(pk)
            return made

        monkeypatch.setattr(TurnQueue, "claim", claim)
        ended = await _ended(process, await process.say("hi"))
    assert looks
    assert (ended.state, ended.attempts) == ("completed", 1)


class Refusing:
    """A database that refuses to close turns so often, with an error that we do not know."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left, self.tries = times, 0
        real = TurnQueue.close

        async def close(
            queue: TurnQueue, claim: Claim, end: Any, *more: Any, **options: Any
        ) -> ClosedTurn:
            self.tries += 1
            refuses = self.left > 0 and getattr(end, "type", "") == "completed"
            if refuses:
                self.left -= 1
                raise RuntimeError("refused")
            return await real(queue, claim, end, *more, **options)

        monkeypatch.setattr(TurnQueue, "close", close)
        monkeypatch.setattr(attempt, "_RETRY_EVERY", 0.01)


@pytest.mark.parametrize(
    ("refused", "attempts", "state"),
    [(4, 1, "completed"), (5, 2, "completed"), (10, 2, "failed")],
    ids=["a while", "by one worker", "by two"],
)
async def test_an_end_that_is_refused_is_tried_again_elsewhere_and_then_fails(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch, refused: int, attempts: int, state: str
) -> None:
    refusing = Refusing(monkeypatch, refused)
    async with _worker(process):
        turn = await process.say("hi")
        ended = await _ended(process, turn)
    assert (ended.state, ended.attempts, refusing.tries) == (state, attempts, refused + 1)
    assert await _column(process, turn, "handed_over") == attempts - 1
    assert await _column(process, turn, "close_failures") == attempts - 1
    assert await _roles(process, ended) == ["user", "assistant"]
    check_log(await process.read(turn))


@pytest.mark.parametrize(
    ("refused", "close_failures", "roles"),
    [(4, 0, OPEN_CALL), (5, 1, OPEN_CALL), (10, 1, OPEN_CALL[:-1])],
)
async def test_a_history_that_cannot_be_closed_is_left_to_another_worker_first(
    process: TurnProcess,
    refused: int,
    close_failures: int,
    roles: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = [RuntimeError("refused")] * refused

    async def refusing(*arguments: Any) -> GivenUp:
        if left:
            raise left.pop()
        return await give_up(*arguments)

    async with process.worker(drain=0.0):
        turn = await process.say('call hold {"name": "never"}')
        await process.workspace.effects.wait(lambda effects: "held never" in effects)
    await process.turns.cancel(turn)
    monkeypatch.setattr("lango.adk.durable.run.give_up", refusing)
    monkeypatch.setattr(attempt, "_RETRY_EVERY", 0.01)
    async with process.worker():
        ended = await _ended(process, turn)
    assert (ended.state, left) == ("cancelled", [])
    assert await _roles(process, ended) == roles
    assert await _column(process, turn, "close_failures") == close_failures
    check_log(await process.read(turn))


@pytest.mark.parametrize("why", ["cancelled", "gone"])
async def test_a_lost_turn_of_an_app_that_no_worker_has_is_closed(
    process: TurnProcess, why: str
) -> None:
    async with process.worker(drain=0.0):
        turn = await process.say('call hold {"name": "never"}')
        await process.workspace.effects.wait(lambda effects: "held never" in effects)
    app = process.workspace.app
    renamed = loaded(process.store, f"{app}_renamed", process.workspace.effects)
    patience = 0.0 if why == "gone" else 3600.0
    options = WorkerOptions(app_gone_after=patience)
    async with TurnWorker(process.store, process.engine, renamed, options):
        after = await process.say("and now?")
        if why == "cancelled":
            await process.turns.cancel(turn)
        ended = await _ended(process, turn)
        error = ended.error or {}
        expected = ("cancelled", None) if why == "cancelled" else ("failed", "AppGoneError")
        assert (ended.state, error.get("type")) == expected
        assert why == "cancelled" or app in error["message"]
        assert await _roles(process, ended) == OPEN_CALL
        assert (await process.turns.get(after)).state == "queued"
    check_log(await process.read(turn))
    async with process.worker():
        assert (await _ended(process, after)).state == "completed"


async def test_a_lost_turn_waits_a_while_for_its_app(process: TurnProcess) -> None:
    async with process.worker(drain=0.0):
        turn = await process.say('call hold {"name": "go"}')
        await process.workspace.effects.wait(lambda effects: "held go" in effects)
    renamed = loaded(process.store, f"{process.workspace.app}_renamed", process.workspace.effects)
    async with TurnWorker(process.store, process.engine, renamed) as other:
        await other._close_unloaded()  # pyright: ignore[reportPrivateUsage]
        assert (await process.turns.get(turn)).state == "running"
        (process.workspace.folder / "go").touch()
        async with process.worker():
            assert (await _ended(process, turn)).state == "completed"
