"""The processes of a kill sweep: they run an agent's turns, and die at a failpoint."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, Literal

from lango.adk.apps.load import Root
from lango.adk.artifacts import SqlArtifactService
from lango.adk.durable.ledger import saving
from lango.adk.durable.run import DurableAgent
from lango.adk.memory import SqlMemoryService
from lango.adk.plugins import plugins
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core import failpoints
from lango.core.failpoints import failpoint
from lango.core.turns.events import ENDS, Answer, End, Publish, TurnEvent
from lango.core.turns.inputs import input_of
from lango.core.turns.states import NewTurn
from lango.errors import SessionExistsError
from lango.store.sessions.entries import SessionKey, StateChange
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.claim import TurnQueue
from lango.store.turns.rows import Claim, Turn
from lango.store.turns.submit import SqlTurnStore
from lango.store.turns.workers import Worker, Workers

APP: Final = "app"
USER: Final = "user"
OVER_AFTER: Final = 60.0
"""Seconds after which a trial counts as hanging."""
PROOF_LASTS: Final = 0.1
"""Seconds for which a write proves to a sweep's worker that it still holds its turn; a frozen
worker is woken later than that."""
_FRAMES: Final = 12
"""Innermost frames of an error that a trace keeps."""

Mode = Literal["kill", "freeze"]


@dataclass(frozen=True, slots=True)
class HumanReply:
    """A person's answer to the call that the previous turn waits for."""

    approved: bool = True
    payload: Any = None


TurnInput = str | HumanReply
"""One turn of a sweep: a message, or the answer to the previous turn's question."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The agent under test, its turns, and the database."""

    make_app: Callable[[], Root]
    turns: Sequence[TurnInput]
    url: str
    state: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class _Trap:
    """Records failpoints and effects, and kills or freezes the process at one failpoint."""

    trace: Path | None = None
    at: int | None = None
    mode: Mode = "kill"
    passed: int = 0

    def __call__(self, name: str) -> None:
        self.passed += 1
        self.write(f"point {name}")
        if self.passed == self.at:
            os.kill(os.getpid(), signal.SIGKILL if self.mode == "kill" else signal.SIGSTOP)

    def write(self, line: str) -> None:
        """Write one line that survives the death of the process."""
        if self.trace is None:
            return
        file = os.open(self.trace, os.O_APPEND | os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(file, f"{line}\n".encode())
        os.close(file)


_trap: Final = _Trap()


def arm(trace: Path, at: int | None, mode: Mode = "kill") -> None:
    """Make this process write to `trace`, and stop at the failpoint with number `at`."""
    _trap.trace, _trap.at, _trap.mode, _trap.passed = trace, at, mode, 0
    failpoints.armed = _trap


def disarm() -> None:
    """Turn the failpoints off."""
    failpoints.armed = None
    _trap.trace = None


def effect(name: str) -> None:
    """Called by a tool where it has an irreversible effect: the sweep counts it."""
    failpoint("tool.before_effect")
    run = saving.get()
    kind = "again" if run is None or run.idempotent else "once"
    _trap.write(f"effect {kind} {run.call if run else '-'} {name}")
    failpoint("tool.effect")


def note_error(error: BaseException) -> None:
    """Record the error that ended a process too early, and where it was raised."""
    text = " ".join(str(error).split())
    frames = reversed(extract_tb(error.__traceback__))
    locations = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
    _trap.write(f"error {type(error).__name__} {text[:300]} at {' < '.join(locations[:_FRAMES])}")


def _drop(event: TurnEvent) -> None:
    """Stands for the turn's log, which the sweep does not judge."""
    del event


async def run_turns(
    sweep: Sweep,
    key: SessionKey,
    worker: str,
    dead: Sequence[str],
    *,
    log: Publish = _drop,
    publish: Publish | None = _drop,
) -> None:
    """Submit all turns and run them to their ends, resuming the turns of dead workers.

    `log` gets the events that the turns yield, `publish` the deltas that bypass ADK.
    """
    store = SqlSessionStore(sweep.url, pool_size=2)
    try:
        trial_worker = _TrialWorker(sweep, store, key, worker, log, publish)
        await trial_worker.open(dead)
        for number in range(len(sweep.turns)):
            await asyncio.wait_for(trial_worker.run(number), OVER_AFTER)
    finally:
        await store.close()


def durable_agent(sweep: Sweep, store: SqlSessionStore, key: SessionKey) -> DurableAgent:
    """The agent of a sweep, with its sessions, artifacts and memory in a store."""
    runner = AgentRunner(
        sweep.make_app(),
        SessionServiceAdapter(store, tenant=key.tenant),
        SqlArtifactService(store, tenant=key.tenant),
        SqlMemoryService(store, tenant=key.tenant, requires_session=True),
        plugins=plugins(),
        name=APP,
    )
    agent = DurableAgent(runner, store, remembers=True)
    agent.proof_lasts = PROOF_LASTS
    return agent


class _TrialWorker:
    def __init__(
        self,
        sweep: Sweep,
        store: SqlSessionStore,
        key: SessionKey,
        worker: str,
        log: Publish,
        publish: Publish | None,
    ) -> None:
        self.log = log
        self.publish = publish
        self.sweep = sweep
        self.store = store
        self.key = key
        self.turns = SqlTurnStore(store.database)
        self.queue = TurnQueue(store.database, dead_after=600.0)
        self.workers = Workers(store.database)
        self.agent = durable_agent(sweep, store, key)
        self.worker = Worker(worker, {APP: self.agent.fingerprint})

    async def open(self, dead: Sequence[str]) -> None:
        """Create the session, unregister the dead workers, and register this one."""
        with suppress(SessionExistsError):
            await self.store.create(self.key, StateChange(self.sweep.state))
        for worker_id in dead:
            await self.workers.remove(worker_id)
        await self.workers.register(self.worker)

    async def run(self, number: int) -> None:
        """Run one turn to its end, also one that another worker started."""
        turn = await self._submit(number)
        while turn is not None and turn.ended is None:
            claim = await self.queue.claim(turn.session_pk, self.worker)
            if claim is not None:
                end = await self._end(claim)
                await self.queue.close(claim, end, remembers=self.agent.remembers)
                failpoint("turn.closed")
            turn = await self.turns.get(self.key.tenant, turn.id)

    async def _end(self, claim: Claim) -> End:
        async with aclosing(self.agent.run(claim, publish=self.publish)) as events:
            async for event in events:
                self.log(event)
                if isinstance(event, ENDS):
                    return event
        raise RuntimeError("the turn yielded no end event")

    async def _submit(self, number: int) -> Turn | None:
        """Submit the turn of that number; None if it answers a question that was not asked."""
        turn_input = self.sweep.turns[number]
        unique = f"turn-{number}"
        if isinstance(turn_input, str):
            new = NewTurn(input_of(turn_input), idempotency_key=unique)
            return (await self.turns.submit(self.key, new)).turn
        turns = await self.turns.of_session(self.key)
        answered = next((turn for turn in turns if turn.idempotency_key == unique), None)
        if answered is not None:
            return answered
        waiting = next((turn for turn in turns if turn.state == "input_required"), None)
        if waiting is None:
            return None
        answered_calls = {turn.answers for turn in turns}
        call = next(call for call in waiting.waits_for if call not in answered_calls)
        answer = input_of([Answer(call, turn_input.approved, turn_input.payload)])
        new = NewTurn(answer, idempotency_key=unique)
        return (await self.turns.answer(self.key.tenant, waiting.id, call, new)).turn
