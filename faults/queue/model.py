"""The turn queue in plain Python: the reference for the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lango.core.turns.states import (
    MAX_ATTEMPTS,
    MIN_ALONE,
    NEXT,
    SUSPECT_AFTER,
    Busy,
    TurnState,
    most_losses_beside,
)
from lango.store.sessions.entries import SessionKey
from lango.store.turns.claim import NO_WORKER


@dataclass
class ModelTurn:
    """One turn."""

    id: str
    number: int
    text: str
    invocation: str
    state: TurnState
    answers: str | None = None
    key: str | None = None
    due: bool = False  # of a scheduled turn
    overdue: bool = False  # of a running turn
    cancel: bool = False
    attempts: int = 0
    handed_over: int = 0
    lost_alone: int = 0
    epoch: int = 0
    claim: str | None = None
    closing: bool = False  # its claim came with a verdict
    waits_for: tuple[str, ...] = ()
    log: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])  # type and epoch

    @property
    def losses(self) -> int:
        """Attempts that may have killed their worker, including the current one."""
        return self.attempts - self.handed_over

    def become(self, state: TurnState) -> None:
        """Change the state by an allowed transition."""
        assert state in NEXT[self.state], f"{self.state} became {state}"
        self.state = state

    def end(self, state: TurnState, epoch: int) -> None:
        """End, once."""
        self.become(state)
        self.log.append((state, epoch))


@dataclass
class ModelSession:
    """One session with its queue."""

    key: SessionKey
    pk: int
    epoch: int = 0
    owner: str | None = None
    turns: list[ModelTurn] = field(default_factory=list[ModelTurn])
    queue: list[ModelTurn] = field(default_factory=list[ModelTurn])
    running: ModelTurn | None = None
    deleted: bool = False
    messages: list[str] = field(default_factory=list[str])
    ledger: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])

    def __repr__(self) -> str:
        return f"session {self.key.tenant[-4:]}/{self.key.session_id}"

    # --- submitting -----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether `reject` would refuse a turn."""
        return self.running is not None or bool(self.queue)

    def known(self, key: str | None) -> ModelTurn | None:
        """The turn with an idempotency key."""
        return next((turn for turn in self.turns if key and turn.key == key), None)

    def accept(self, turn: ModelTurn, busy: Busy) -> None:
        """Add an accepted turn to the queue or the schedule."""
        self.turns.append(turn)
        turn.log.append(("accepted", self.epoch))
        if turn.state == "scheduled":
            return
        if busy == "interrupt":
            self.queue.insert(0, turn)
            if self.running is not None:
                self.running.cancel = True
        else:
            self.queue.append(turn)

    def answered(self, invocation: str) -> set[str]:
        """The calls of an invocation that have an answer."""
        turns = self._turns_of(invocation)
        return {turn.answers for turn in turns if turn.answers is not None}

    def waited(self, invocation: str) -> set[str]:
        """The calls that the turns of an invocation have waited for."""
        return {call for turn in self._turns_of(invocation) for call in turn.waits_for}

    def is_open(self, invocation: str) -> bool:
        """Whether a turn of an invocation runs, or an answer to one waits to run."""
        return any(
            turn.state == "running" or (turn.state == "queued" and turn.answers is not None)
            for turn in self._turns_of(invocation)
        )

    def _turns_of(self, invocation: str) -> list[ModelTurn]:
        return [turn for turn in self.turns if turn.invocation == invocation]

    def settle(self, invocation: str) -> None:
        """Waiting turns are answered when all of their calls are."""
        for turn in self.turns:
            if turn.invocation != invocation or turn.state not in ("input_required", "answered"):
                continue
            done = set(turn.waits_for) <= self.answered(invocation)
            if done != (turn.state == "answered"):
                turn.become("answered" if done else "input_required")

    def cancel(self, turn: ModelTurn) -> None:
        """Cancel a turn that has not begun; request it of a running one."""
        if turn.state in ("queued", "scheduled"):
            if turn in self.queue:
                self.queue.remove(turn)
            turn.answers = None
            turn.end("cancelled", self.epoch)
            self.settle(turn.invocation)
        elif turn.state == "running":
            turn.cancel = True

    def promote(self) -> None:
        """Queue the scheduled turns that are due."""
        for turn in self.turns:
            if turn.state == "scheduled" and turn.due:
                turn.become("queued")
                self.queue.append(turn)

    # --- running --------------------------------------------------------------------------------

    def has_work(self, living: set[str]) -> bool:
        """Whether a worker must be able to find this session."""
        return bool(self.running or self.queue) and self.owner not in living

    def take(
        self, worker: str, *, blamed: str | None, most_losses: int
    ) -> tuple[ModelTurn | None, TurnState | None]:
        """The turn that a worker claims, and how it must close that turn, if it must.

        `blamed` is the turn that is blamed for its dead worker.
        """
        turn, verdict = self.running, None
        if turn is not None:
            alone = turn.lost_alone + (blamed == turn.id and not turn.closing)
            verdict = _hopeless(turn, alone)
            if verdict is None and turn.losses > most_losses and turn.losses >= SUSPECT_AFTER:
                return None, None
            turn.lost_alone = alone
        elif self.queue:
            turn = self.queue.pop(0)
        else:
            return None, None
        self.epoch, self.owner, turn.closing = self.epoch + 1, worker, verdict is not None
        turn.epoch, self.running = self.epoch, turn
        if turn.state == "queued":
            turn.become("running")
        if verdict is None:
            turn.attempts += 1
            turn.log.append(("started", self.epoch))
        return turn, verdict

    def hand_over(self, worker: str) -> list[str]:
        """The worker stops gracefully; return the claims it hands over."""
        turn = self.running
        if turn is None or self.owner != worker or turn.closing:
            return []
        turn.handed_over += 1
        return [turn.claim or ""]

    def renew(self, turn: ModelTurn, claim: str) -> None:
        """The worker fences off what still runs of the turn, to close it."""
        self.epoch += 1
        turn.epoch, turn.claim, turn.closing = self.epoch, claim, True

    def hand_back(self, turn: ModelTurn) -> None:
        """A living worker hands its claim back."""
        self.epoch, self.owner = self.epoch + 1, NO_WORKER
        turn.epoch, turn.claim = self.epoch, None
        turn.handed_over += not turn.closing

    def holds(self, turn: ModelTurn, claim: str) -> bool:
        """Whether a claim may write."""
        return not self.deleted and self.running is turn and turn.claim == claim

    def close(self, turn: ModelTurn, end: TurnState) -> None:
        """End the running turn and release the session."""
        turn.end(end, self.epoch)
        self.running = self.owner = None
        if end in ("failed", "cancelled"):  # the machine's turns store no answer
            turn.answers = None
            self.settle(turn.invocation)


def _hopeless(turn: ModelTurn, alone: int) -> TurnState | None:
    if turn.cancel:
        return "cancelled"
    is_worn_out = turn.losses >= MAX_ATTEMPTS and alone >= MIN_ALONE
    return "failed" if is_worn_out or turn.overdue else None


@dataclass
class Model:
    """Sessions and workers."""

    sessions: list[ModelSession] = field(default_factory=list[ModelSession])
    living: set[str] = field(default_factory=set[str])
    entered: set[str] = field(default_factory=set[str])  # workers with a row, dead or alive
    blamed: dict[str, str] = field(default_factory=dict[str, str])  # by dead worker: a turn, or ""

    def run_by(self, worker: str) -> list[ModelTurn]:
        """The turns that a worker runs, or ran when it died; not those that it only closes."""
        running = [each.running for each in self.existing_sessions() if each.owner == worker]
        return [turn for turn in running if turn is not None and not turn.closing]

    def blame(self, dead: str | None) -> str | None:
        """The turn that is blamed for a dead worker, fixed at the first query."""
        if dead is None or dead not in self.entered:
            return None
        if dead not in self.blamed:
            ran = self.run_by(dead)
            few = [turn for turn in ran if turn.losses > SUSPECT_AFTER] or ran
            self.blamed[dead] = few[0].id if len(few) == 1 else ""
        return self.blamed[dead]

    def most_losses(self, worker: str) -> int:
        """The most lost workers of a turn that a worker may run beside other turns."""
        return most_losses_beside([turn.losses - 1 for turn in self.run_by(worker)])

    def existing_sessions(self) -> list[ModelSession]:
        """The sessions that are not deleted."""
        return [session for session in self.sessions if not session.deleted]

    def turns(self) -> Iterator[tuple[ModelSession, ModelTurn]]:
        """The turns of all sessions that are not deleted."""
        return ((session, turn) for session in self.existing_sessions() for turn in session.turns)
