"""Temporal's side of running turns: an activity claims its turn, and lasts until the turn ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, NoReturn

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from lango.core.failpoints import failpoint
from lango.core.turns.events import Failed, error_data
from lango.core.values import JsonObject
from lango.errors import TurnNotFoundError
from lango.store.turns.rows import Head
from lango.store.turns.submit import SqlTurnStore
from lango.turns.engine.cancel import cancel_turn
from lango.turns.engine.head_messages import decode_head
from lango.turns.engine.protocol import Engine, EngineWorker, RunningAttempt
from lango.turns.engine.temporal_client import ACTIVITY

logger = logging.getLogger(__name__)

HEARTBEAT_EVERY: Final = 2.0
_ROOM_WITHIN: Final = 2.0
"""Seconds after which a turn goes to another worker, if this one is full."""
_BUSY_TRIES: Final = 2
"""Tries to claim a queued turn; then another turn of its session runs, and will dispatch it."""
_UNKNOWN_TRIES: Final = 10
"""Tries to find a turn: its session was deleted, or it is of another database of this name."""
_MAX_WAIT: Final = 5.0


class LaterError(ApplicationError):
    """The turn cannot be claimed here and now: Temporal tries again."""

    def __init__(self, reason: str, seconds: float = 1.0) -> None:
        super().__init__(
            reason,
            type="Later",
            next_retry_delay=timedelta(seconds=seconds),
            category=ApplicationErrorCategory.BENIGN,
        )


class TurnActivity:
    """The activity of one worker, for all its task queues."""

    def __init__(self, engine: Engine, worker: EngineWorker, slots: int) -> None:
        self._engine, self._worker = engine, worker
        self._turns = SqlTurnStore(engine.queue.database)
        self._slots = asyncio.Semaphore(slots)
        self._running: dict[str, RunningAttempt] = {}  # by turn
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def leave(self) -> None:
        """Give all activities back to Temporal, whatever their attempts do."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    @activity.defn(name=ACTIVITY)
    async def run(self, message: Any) -> JsonObject:
        """Run a turn; the result is its state, and a failed turn fails the activity."""
        failpoint("activity.start")
        head = decode_head(message)
        if head is None:
            raise LaterError("Another version of lango wrote this message.", _MAX_WAIT)
        work = asyncio.create_task(self._work(head))
        cancelling: asyncio.Task[None] | None = None
        while pending := [task for task in (work, cancelling) if task and not task.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError:  # Temporal requests a cancellation only once
                if cancelling is None and _is_cancel_requested():
                    cancelling = asyncio.create_task(self._cancel(head))
        state = await work
        failpoint("activity.end")
        if state == "cancelled":
            await _end_as_cancelled()
        return {"turn": head.turn, "state": state}

    async def _work(self, head: Head) -> str:
        """Run the session's work up to the end of this turn; returns the turn's state."""
        try:
            async with self._slot():
                if head.run_at is not None:
                    await self._promote(head)
                while True:
                    attempt = self._running.get(head.turn) or await self._worker.take(
                        head.session_pk
                    )
                    if attempt is None:
                        return await self._unclaimed(head)
                    await self._send_heartbeats(attempt)
                    if attempt.claim.turn.id == head.turn:
                        return _outcome(attempt)
        except ApplicationError:
            raise
        except Exception as error:
            logger.warning("Turn %s could not be claimed; retrying: %r", head.turn, error)
            raise LaterError("The turn could not be claimed.") from error

    async def _cancel(self, head: Head) -> None:
        """Cancel a turn whose activity was cancelled in Temporal; retry until this worker stops."""
        while not self._stopped.done():
            try:
                await cancel_turn(self._turns, self._engine, head.tenant, head.turn)
            except TurnNotFoundError:
                return
            except Exception:
                logger.exception("Turn %s could not be cancelled; retrying.", head.turn)
                await asyncio.wait([self._stopped], timeout=HEARTBEAT_EVERY)
            else:
                return

    @asynccontextmanager
    async def _slot(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(_ROOM_WITHIN):
                await self._slots.acquire()
        except TimeoutError:
            raise LaterError("This worker is full.") from None
        try:
            if not await self._worker.room():
                raise LaterError("This worker is stopping.")
            yield
        finally:
            self._slots.release()

    async def _promote(self, head: Head) -> None:
        due = await self._engine.queue.promote_due()
        if other_heads := [due_head for due_head in due if due_head.session_pk != head.session_pk]:
            self._engine.dispatch(other_heads)

    async def _send_heartbeats(self, attempt: RunningAttempt) -> None:
        """Send heartbeats until an attempt has ended."""
        turn_id = attempt.claim.turn.id
        self._running[turn_id] = attempt
        try:
            endings: list[asyncio.Future[None]] = [attempt.task, self._stopped]
            while not (
                await asyncio.wait(
                    endings, timeout=HEARTBEAT_EVERY, return_when=asyncio.FIRST_COMPLETED
                )
            )[0]:
                activity.heartbeat()
                failpoint("activity.heartbeat")
        finally:
            if self._running.get(turn_id) is attempt:
                del self._running[turn_id]
        if not attempt.task.done():
            raise LaterError("This worker has stopped.")

    async def _unclaimed(self, head: Head) -> str:
        """The state of a turn that this worker could not claim; LaterError if it may soon."""
        tries = activity.info().attempt
        try:
            turn = await self._turns.get(head.tenant, head.turn)
        except TurnNotFoundError:
            if tries < _UNKNOWN_TRIES:
                raise LaterError("No such turn in this worker's database.") from None
            return "unknown"
        if turn.state == "failed":
            _fail(turn.error or {})
        if turn.state == "scheduled":
            raise LaterError("The turn is not due.", max((turn.run_at or 0) - time.time(), 0.5))
        if turn.state == "running":
            seconds = min(float(tries), _MAX_WAIT)
            raise LaterError("A live worker runs the turn.", seconds)
        if turn.state == "queued" and tries <= _BUSY_TRIES:
            raise LaterError("The session is busy.", 0.5)
        return turn.state


def _outcome(attempt: RunningAttempt) -> str:
    """The state of the turn that an attempt has run."""
    end = attempt.end
    if end is None:
        raise LaterError("The attempt ended without ending the turn.")
    if isinstance(end, Failed):
        _fail(error_data(end.error, end.error_id))
    return end.type


def _fail(error: Mapping[str, Any]) -> NoReturn:
    """Fail the activity with the error that a client of the turn sees."""
    raise ApplicationError(
        str(error.get("message", "")),
        *([{"error_id": error["error_id"]}] if error.get("error_id") else []),
        type=str(error.get("type", "")),
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,  # the turn's worker has logged it
    )


def _is_cancel_requested() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


async def _end_as_cancelled() -> None:
    """Make Temporal show a cancelled turn as cancelled; without effect if it does not answer."""
    if _is_cancel_requested():
        raise asyncio.CancelledError
    # Temporal takes a cancellation only of activities that it was asked to cancel.
    info, client = activity.info(), activity.client()
    handle = client.get_activity_handle(info.activity_id, run_id=info.activity_run_id)
    try:
        async with asyncio.timeout(_MAX_WAIT):
            await handle.cancel(reason="The turn was cancelled in lango.")
            await client.get_async_activity_handle(task_token=info.task_token).report_cancellation()
    except Exception as error:  # noqa: BLE001 - shown as completed, with the state as the result
        logger.info("Temporal did not record the cancellation of a turn: %r", error)
        return
    activity.raise_complete_async()
