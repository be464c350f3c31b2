"""One attempt at a turn: from the claim until the turn is closed or the claim is lost."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeVar

from lango.core.backoff import delays
from lango.core.causes import MAX_CAUSES, Cause, cause_of
from lango.core.current import current_tenant, current_turn
from lango.core.failpoints import failpoint
from lango.core.ids import new_id
from lango.core.turns.event_json import usage_of
from lango.core.turns.events import (
    ENDS,
    LEAKED_CANCELLATION,
    ApprovalRequired,
    Cancelled,
    Completed,
    CredentialRequired,
    End,
    Event,
    Failed,
    GivenUp,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    Publish,
    Started,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from lango.errors import Fenced, StoreUnavailableError, TurnError, TurnTimeoutError
from lango.providers.embeddings import Embedder
from lango.providers.policy.loop_throttle import LoopThrottle
from lango.store.db.retry import outlast_outages
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.claim import ClosedTurn, TurnQueue
from lango.store.turns.log import LoggedEvent, TurnLog, logged_events, types_and_data
from lango.store.turns.rows import Claim
from lango.store.turns.traces import store_step, system_of
from lango.telemetry.logs import FIELDS
from lango.telemetry.tracing import names
from lango.turns.log.feeds import AttemptBegun, Feeds
from lango.turns.log.replay import missing_events, resets, stored_turn
from lango.turns.log.writer import LogWriter
from lango.turns.traces import AttemptTrace

logger = logging.getLogger(__name__)

T = TypeVar("T")

STOP_GRACE: Final = 5.0
"""Seconds that an agent has to end after a stop request."""
_RETRY_EVERY: Final = 1.0
_TRIES: Final = 5
_NOT_STORED: Final = "The end of this turn could not be stored; see the worker's log for the error."


class _RefusedError(Exception):
    """This worker cannot end the turn: the database or the stored data prevents it."""


class LoadedApp(Protocol):
    """An app whose turns a worker can run."""

    @property
    def fingerprint(self) -> str:
        """Identifies this version of the agent."""
        ...

    @property
    def remembers(self) -> bool:
        """Whether the messages of its turns join their users' memory."""
        ...

    @property
    def embedder(self) -> Embedder | None:
        """The model that embeds entries of memory, if searches compare their meaning."""
        ...

    def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        """Run or resume the turn of a claim: its events, then one end. Does not close the turn.

        An app may pass events to `publish` instead of yielding them: that is cheaper for deltas.

        A claim with a verdict is not run: this closes its history and ends with the verdict.
        """
        ...


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What all attempts of a worker share."""

    store: SqlSessionStore
    queue: TurnQueue
    log: TurnLog
    writer: LogWriter
    feeds: Feeds = field(default_factory=Feeds)
    start_throttle: LoopThrottle = field(default_factory=lambda: LoopThrottle(per_pass=1))
    abandoned_runs: set[asyncio.Task[End]] = field(default_factory=set[asyncio.Task[End]])
    """Agent runs that ignored their cancellation and have not ended yet."""


class Attempt:
    """A claimed turn while this worker runs it.

    The attempt's task settles the turn: it closes the turn, hands it back, or finds that another
    worker has claimed it. The agent runs in a child task, so an agent that swallows or leaks a
    cancellation neither ends nor blocks the attempt's task.
    """

    def __init__(
        self, context: WorkerContext, app: LoadedApp, claim: Claim, *, began: int = 0
    ) -> None:
        self.claim = claim
        self.claim_ids = {claim.id}
        self.closed: ClosedTurn | None = None
        self.end: End | None = None  # of the turn, once it is closed
        self.last_events: Sequence[LoggedEvent] = ()  # those that were logged with the close
        self._context = context
        self._app = app
        self._abort = asyncio.Event()
        self._expired = False
        self._closing = claim.verdict is not None
        self._texts: dict[str, list[str]] = {}  # of unfinished messages
        self._calls: set[str] = set()  # tool calls without a result
        # By their ids; logged with the close.
        self._questions: dict[str, ApprovalRequired | CredentialRequired] = {}
        self._causes: dict[str, Cause] = {}  # of tools that failed, by error id
        self._began = time.monotonic()
        self._agent: asyncio.Task[End] | None = None
        self._abandoned = asyncio.Event()
        self._trace = AttemptTrace(claim, began, system_of(context.store.database))
        context.writer.begin(claim, self.give_up)
        context.feeds.publish(claim.turn, AttemptBegun(claim))
        self._log_info("started, attempt %d.", claim.turn.attempts)
        self.task = asyncio.create_task(self._run(), name=claim.turn.id)

    def _log_info(self, text: str, *values: object, **extra_fields: object) -> None:
        """Log a line about the turn, with extra fields."""
        if not logger.isEnabledFor(logging.INFO):
            return
        turn = self.claim.turn
        identity = (turn.id, turn.session.app_name, turn.session.session_id)
        fields = {
            "turn": turn.id,
            "app": turn.session.app_name,
            "attempt": turn.attempts,
            **extra_fields,
        }
        logger.info(
            f"Turn %s of %s, session %s: {text}", *identity, *values, extra={FIELDS: fields}
        )

    def _log_end(self, end: End) -> None:
        took = time.monotonic() - self._began
        ended = {"state": end.type, "seconds": round(took, 3)}
        if not isinstance(end, Failed):
            self._log_info("%s after %.1f s.", end.type, took, **ended)
        elif logger.isEnabledFor(logging.INFO):
            cause = cause_of(end.error)
            self._log_info(
                "failed after %.1f s: %s",
                took,
                cause,
                **ended,
                error=cause.type,
                error_id=end.error_id,
            )

    def stop(self) -> None:
        """Ask the agent to end; after STOP_GRACE seconds its task is cancelled."""
        if not self._abort.is_set():
            self._abort.set()
            asyncio.get_running_loop().call_later(STOP_GRACE, self._cancel_agent)

    def give_up(self) -> None:
        """End without closing the turn: another worker owns it, or will own it."""
        if not self._closing:  # closing detects the lost claim, and may already have committed
            self._trace.lose()
            self.abandon()

    def abandon(self) -> None:
        """End immediately, in any state."""
        self.task.cancel()

    def _cancel_agent(self) -> None:
        if not self._closing and self._agent is not None and not self._agent.done():
            self._agent.cancel()
            asyncio.get_running_loop().call_later(STOP_GRACE, self._abandoned.set)

    def _expire(self) -> None:
        if not self._closing:
            self._expired = True
            self.stop()

    async def _run(self) -> None:
        timer = asyncio.get_running_loop().call_later(self.claim.time_left, self._expire)
        outlast_outages()
        current_tenant.set(self.claim.turn.session.tenant)
        current_turn.set(self.claim.turn.id)
        self._trace.enter()
        try:
            await self._run_and_close()
        except asyncio.CancelledError:
            logger.info(
                "Turn %s: this worker stopped running it without closing it.", self.claim.turn.id
            )
        except BaseException as error:
            if not _is_fence(error):
                raise
            self._trace.lose()
            logger.info("Another worker has taken over turn %s.", self.claim.turn.id)
        finally:
            timer.cancel()
            self._trace.end(self.end, self.closed.turn if self.closed else None)
            self._context.writer.end(self.claim)

    async def _run_and_close(self) -> None:
        """Run the turn to its end and close it, or hand it back to another worker."""
        verdict = self.claim.verdict
        try:
            end = await (self._end() if verdict is None else self._end_as(verdict))
            self._closing = True
            self.closed = await self._close(end)
            self._log_end(self.end or end)
            failpoint("turn.closed")
        except _RefusedError:
            worker, claim_id, queue = self.claim.worker, self.claim.id, self._context.queue
            await self._retry(lambda: queue.hand_back(worker, claim_id, unclosed=True), tries=None)

    async def _retry(self, step: Callable[[], Awaitable[T]], tries: int | None = _TRIES) -> T:
        """Retry a step for as long as the database is away; _RefusedError if it fails otherwise.

        A step that fails for another reason is tried `tries` times, without limit if that is None.
        """
        waits = (
            delays(tries - 1, first=_RETRY_EVERY / 4) if tries else itertools.repeat(_RETRY_EVERY)
        )
        while True:
            try:
                return await step()
            except StoreUnavailableError:
                logger.warning(
                    "Turn %s cannot be closed: the database is unavailable. Retrying.",
                    self.claim.turn.id,
                )
                await asyncio.sleep(_RETRY_EVERY)
            except Exception as error:
                logger.exception("Turn %s could not be closed.", self.claim.turn.id)
                wait = next(waits, None)
                if wait is None:
                    raise _RefusedError from error
                await asyncio.sleep(wait)

    async def _end(self) -> End:
        """Run the turn and return its end; close the history of a run that ended irregularly."""
        self._agent = agent = asyncio.create_task(self._run_agent(), name=self.claim.turn.id)
        abandoning = asyncio.create_task(self._abandoned.wait())
        try:
            await asyncio.wait([agent, abandoning], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            agent.cancel()
            await asyncio.wait([agent], timeout=STOP_GRACE)
            raise
        finally:
            abandoning.cancel()
            if not agent.done():
                self._abandon_agent(agent)
        end, is_regular = self._outcome(agent)
        if self._expired and isinstance(end, Cancelled):
            end = Failed(TurnTimeoutError(), end.text, end.usage)
        if is_regular or not isinstance(end, GivenUp):
            return end
        return await self._end_by_force(end)

    def _abandon_agent(self, agent: asyncio.Task[End]) -> None:
        """Abandon a task that does not end; the fence rejects its later writes."""
        self._context.abandoned_runs.add(agent)
        agent.add_done_callback(self._context.abandoned_runs.discard)
        agent.add_done_callback(_forget)
        logger.error(
            "A tool or model of turn %s ignores its cancellation. The worker abandoned its task "
            "(%d such tasks still run) and rejects its writes.",
            self.claim.turn.id,
            len(self._context.abandoned_runs),
        )

    def _outcome(self, agent: asyncio.Task[End]) -> tuple[End, bool]:
        """How the agent's task ended, and whether regularly; raises Fenced if it was fenced."""
        if not agent.done() or (agent.cancelled() and self._abort.is_set()):
            return Cancelled(self._unfinished), False
        if agent.cancelled():
            return Failed(TurnError(LEAKED_CANCELLATION), self._unfinished), False
        error = agent.exception()
        if error is None and self._calls and isinstance(agent.result(), Completed):
            # ADK silently ends a run whose task was cancelled from inside.
            return Failed(
                TurnError(LEAKED_CANCELLATION), self._unfinished, agent.result().usage
            ), False
        if error is None:
            return agent.result(), True
        if _is_fence(error):
            raise error
        logger.error("Turn %s failed outside its agent.", self.claim.turn.id, exc_info=error)
        cause = error if isinstance(error, Exception) else TurnError(f"The agent raised {error!r}.")
        return Failed(cause, self._unfinished), False

    async def _end_by_force(self, end: GivenUp) -> End:
        """Close the history of a run that ended irregularly, under a new epoch.

        Parts of the run may still be alive: the new epoch rejects their writes.
        """
        self._closing = True
        old, claim_id = self.claim, new_id("clm")
        self.claim_ids.add(claim_id)
        await self._retry(lambda: self._context.writer.write(old))  # the unfinished text
        self._context.writer.end(old)
        self.claim = await self._retry(lambda: self._context.queue.renew(old, end, claim_id))
        self._context.writer.begin(self.claim, self.give_up)
        return await self._end_as(end)

    async def _run_agent(self) -> End:
        if self.claim.resumes:
            await self._log_missing_events()
            self._calls.clear()  # the agent answers the calls of earlier attempts
        return await self._run_app()

    async def _end_as(self, verdict: GivenUp) -> End:
        """Close the history of a turn that is not run again.

        If an earlier claim also failed to close it, the turn ends with an open history.
        """

        async def close_history() -> End:
            end = await self._run_app()
            await self._log_missing_events()
            return end

        try:
            end = await self._retry(close_history)
        except _RefusedError:
            if not self.claim.close_failures:
                raise
            logger.error(
                "The history of turn %s could not be closed; the turn ends without it.",
                self.claim.turn.id,
            )
            return verdict
        return end if type(end) is type(verdict) else verdict

    async def _run_app(self) -> End:
        await self._context.start_throttle.enter()  # many starts at once would block the event loop
        end: End | None = None
        claim = self.claim
        async with aclosing(
            self._app.run(claim, abort=self._abort, publish=partial(self._publish, claim))
        ) as events:
            async for event in events:
                if isinstance(event, ENDS):
                    end = event
                elif not isinstance(event, Started):  # the claim has logged Started
                    self._publish(claim, event)
        return end or Failed(TurnError("The agent ended without a result."))

    def _publish(self, claim: Claim, event: Event) -> None:
        """Publish an event of a run under a claim; Fenced if that run was abandoned."""
        if claim is not self.claim or self.task.done():
            raise Fenced
        if isinstance(event, MessageDelta):
            self._texts.setdefault(event.message, []).append(event.text)
        elif isinstance(event, MessageCompleted | MessageReset):
            self._texts.pop(event.message, None)
        elif isinstance(event, ToolStarted):
            self._calls.add(event.call)
        elif isinstance(event, ToolFinished):
            self._calls.discard(event.call)
            if event.cause and event.error_id and len(self._causes) < MAX_CAUSES:
                self._causes[event.error_id] = event.cause
        if isinstance(event, ApprovalRequired):  # logged with the close: only then answerable
            self._questions[event.approval.id] = event
            return
        if isinstance(event, CredentialRequired):
            self._questions[event.request.id] = event
            return
        self._context.writer.add(claim, event)
        self._context.feeds.publish(claim.turn, event)

    @property
    def _unfinished(self) -> str:
        return "\n\n".join(map("".join, self._texts.values()))

    async def _log_missing_events(self) -> None:
        """Log what earlier attempts stored but did not log, and reset their unfinished messages.

        A turn that is given up gets no resets: its unfinished text stays, as nothing replaces it.
        """
        turn = self.claim.turn
        logged = await self._context.log.read_all(turn)
        self._trace.report_loss(logged)
        stored = await stored_turn(self._context.store, turn, full_history=False)
        missing = missing_events(logged, stored.events)
        is_resumed = self.claim.verdict is None
        unfinished_messages = resets(logged, missing, stored.messages) if is_resumed else []
        for event in [*unfinished_messages, *missing]:
            self._publish(self.claim, event)

    async def _close(self, end: End) -> ClosedTurn:
        """Close the turn; raises Fenced if another worker has claimed it.

        If an earlier claim also failed to close it, the turn ends as failed.
        """
        try:
            return await self._retry(lambda: self._close_as(end))
        except _RefusedError:
            if not self.claim.close_failures:
                raise
        return await self._retry(lambda: self._close_as(Failed(TurnError(_NOT_STORED))), tries=None)

    async def _close_as(self, end: End) -> ClosedTurn:
        unwritten = await self._context.writer.rest(self.claim)
        questions = tuple(self._questions.values())
        with store_step(names.CLOSE, self._context.store.database):
            closed = await self._context.queue.close(
                self.claim,
                end,
                (*unwritten, *questions),
                self._causes,
                remembers=self._app.remembers,
            )
        for question in questions:
            self._context.feeds.publish(self.claim.turn, question)
        self.end = _with_stored_fields(end, closed)
        entries = types_and_data((*unwritten, *questions, self.end))
        end_time = closed.turn.ended or time.time()
        self.last_events = logged_events(
            entries, closed.turn.last_event, self.claim.epoch, end_time
        )
        return closed


def _with_stored_fields(end: End, closed: ClosedTurn) -> End:
    """The end with the usage and the error id that the turn was closed with."""
    if isinstance(end, Failed) and closed.turn.error is not None:
        end = replace(end, error_id=str(closed.turn.error.get("error_id", "")))
    return end if closed.turn.usage is None else replace(end, usage=usage_of(closed.turn.usage))


def _forget(task: asyncio.Task[End]) -> None:
    """Retrieve an abandoned task's exception, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


def _is_fence(error: BaseException) -> bool:
    """Whether this is Fenced, or an exception group that contains it."""
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    return isinstance(error, Fenced) or any(map(_is_fence, inner))
