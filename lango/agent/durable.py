"""Durable turns of one agent: submitted to the database, run here, and streamed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from lango.adk.durable.run import DurableAgent
from lango.adk.runner import TurnOptions, UserInput
from lango.adk.tools.approvals import answers_by_question
from lango.core.ids import new_id
from lango.core.turns.events import ENDS, Answer, Failed, Started, TurnEvent
from lango.core.values import JsonObject
from lango.errors import TurnError, TurnNotFoundError
from lango.store.sessions.entries import SessionKey
from lango.store.turns.rows import Turn
from lango.turns.engine.database import ChosenSessions, LocalEngine
from lango.turns.engine.protocol import Engine
from lango.turns.log.feeds import Feed, Feeds
from lango.turns.log.following import follow
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker, WorkerOptions

logger = logging.getLogger(__name__)


class DurableTurns:
    """Runs the turns of one agent that its callers wait for, from the first one to `close`.

    The caller closes an engine that it passes in.
    """

    def __init__(
        self,
        agent: DurableAgent,
        engine: Engine | None = None,
        options: WorkerOptions | None = None,
    ) -> None:
        self.agent = agent
        self._owns_engine = engine is None
        self._engine = engine or LocalEngine(agent.store.database)
        self._sessions = ChosenSessions(self._engine)
        self._turns = Turns(agent.store, self._engine, tenant=agent.sessions.tenant)
        self._app = agent.runner.app.name
        self._options = options
        self._feeds = Feeds()
        self._worker: TurnWorker | None = None
        self._starting = asyncio.Lock()

    async def close(self) -> None:
        """Let running turns finish; other workers resume those that do not."""
        async with self._starting:
            worker, self._worker = self._worker, None
            if worker is None:
                return
            await worker.stop()
            self._feeds.end(TurnError("The agent was closed while its turn ran."))
            if self._owns_engine:
                await self._engine.close()

    async def _start(self) -> None:
        """Start the worker, unless it is running."""
        async with self._starting:
            if self._worker is None:
                await self._engine.open()
                apps, store = {self._app: self.agent}, self.agent.store
                worker = TurnWorker(store, self._sessions, apps, self._options, self._feeds)
                await worker.start()
                self._worker = worker

    async def run(
        self,
        user_id: str,
        session_id: str,
        user_input: UserInput,
        options: TurnOptions | None = None,
    ) -> AsyncGenerator[TurnEvent]:
        """Run one turn: Started, its events, one end. Closing the generator early cancels it.

        Answers to questions that no turn asked run immediately, without a turn.
        """
        options = options or TurnOptions()
        key = new_id("key")
        session = SessionKey(self._turns.tenant, self._app, user_id, session_id)
        with self._feeds.subscribe(session, key) as feed:
            try:
                await self._start()
                turn = await self._submit(session.checked(), user_input, key, options)
            except Exception as error:  # noqa: BLE001 - every error is the turn's end
                yield Started(options.attempt)
                yield Failed(error)
                return
            if turn is None:
                run = self.agent.runner.run(user_id, session_id, user_input, options)
            else:
                run = self._follow(turn, feed, options.abort, cancel=True)
            async with aclosing(run) as events:
                async for event in events:
                    yield _counted(event, options.attempt if turn else 1)

    async def unfinished(self, user_id: str, session_id: str) -> list[Turn]:
        """The queued and running turns of a session, oldest first."""
        newest = await self._turns.of_session(self._app, user=user_id, session=session_id)
        return [turn for turn in reversed(newest) if turn.state in ("queued", "running")]

    async def resume(
        self, turn_id: str, *, abort: asyncio.Event | None = None
    ) -> AsyncGenerator[TurnEvent]:
        """Yield a submitted turn's events from its start; run it unless another process does."""
        await self._start()
        turn = await self._turns.get(turn_id)
        with self._feeds.subscribe(turn.session, turn.idempotency_key) as feed:
            async with aclosing(self._follow(turn, feed, abort)) as events:
                async for event in events:
                    yield event

    async def _submit(
        self, session: SessionKey, user_input: UserInput, key: str, options: TurnOptions
    ) -> Turn | None:
        """Submit the message or answers; None if no turn waits for these answers."""
        if isinstance(user_input, str):
            return await self._turns.submit(
                self._app,
                user_input,
                user=session.user_id,
                session=session.session_id,
                idempotency_key=key,
                options=_options(options),
            )
        if not isinstance(user_input, Sequence):
            return None
        questions = await self.agent.runner.questions(session.user_id, session.session_id)
        answers = answers_by_question(user_input, questions)
        asking_turn = await self._asking_turn(questions[next(iter(answers))].turn)
        if asking_turn is None:
            return None
        turn_answers = [
            Answer(call, answer.approved, answer.payload) for call, answer in answers.items()
        ]
        return await self._turns.answer(asking_turn.id, turn_answers, idempotency_key=key)

    async def _asking_turn(self, invocation_id: str) -> Turn | None:
        """The first turn of an invocation, which has its id; None if it ran without turns."""
        try:
            return await self._turns.get(invocation_id)
        except TurnNotFoundError:
            return None

    async def _follow(
        self, turn: Turn, feed: Feed, abort: asyncio.Event | None, *, cancel: bool = False
    ) -> AsyncGenerator[TurnEvent]:
        """Yield a turn's events; it runs here unless another process runs it."""
        is_over = False
        with self._sessions.choose(turn.session_pk):
            try:
                async with (
                    self._stopped_by(abort, turn),
                    aclosing(follow(self._turns, turn, feed)) as events,
                ):
                    async for event in events:
                        is_over = isinstance(event, ENDS)
                        yield event
            except Exception as error:  # noqa: BLE001 - every error is the turn's end
                is_over = True
                yield Failed(error)
            finally:
                if cancel and not is_over:
                    await self._cancel(turn)

    @asynccontextmanager
    async def _stopped_by(self, abort: asyncio.Event | None, turn: Turn) -> AsyncGenerator[None]:
        """Inside, setting `abort` cancels the turn."""
        if abort is None:
            yield
            return
        stopping = asyncio.create_task(self._cancel_on(abort, turn))
        try:
            yield
        finally:
            if not abort.is_set():  # else let the cancellation finish
                stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)

    async def _cancel_on(self, abort: asyncio.Event, turn: Turn) -> None:
        await abort.wait()
        await self._cancel(turn)

    async def _cancel(self, turn: Turn) -> None:
        try:
            await self._turns.cancel(turn.id)
        except Exception as error:  # noqa: BLE001 - it is deleted, or the database is down
            logger.warning("Turn %s was not cancelled: %s", turn.id, error)


def _options(options: TurnOptions) -> JsonObject:
    """The options that the turn's row stores."""
    return {
        **({"state": options.state} if options.state else {}),
        **({"keep_agent": True} if options.keep_agent else {}),
    }


def _counted(event: TurnEvent, attempt: int) -> TurnEvent:
    """Count the retry after an unknown agent, which is a turn of its own, as a later attempt."""
    if isinstance(event, Started) and attempt > 1:
        return replace(event, attempt=event.attempt + attempt - 1)
    return event
