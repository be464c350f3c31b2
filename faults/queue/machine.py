"""QUEUE: a hypothesis state machine of the turn queue against the model in plain Python."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from faults.harness import Guarantee, Outcome, Run
from faults.machines import on_both_databases, run_machine
from faults.queue.client import QueueClient
from faults.queue.model import ModelSession, ModelTurn
from faults.queue.submits import CALLS, Submitting
from lango.core.ids import new_id
from lango.core.turns.events import Cancelled, Completed, End, Failed, InputRequired, MessageDelta
from lango.core.turns.states import TurnState
from lango.errors import Fenced
from lango.store.turns.ledger import Finished, ToolRun
from lango.store.turns.rows import Claim
from lango.store.turns.workers import Worker
from tests.store.turns.turn_stores import every_head

STEPS: Final = 40
HEADS_EVERY: Final = 5  # steps; the rows it reads are compared after each
WEIGHTS: Final = {
    **{"submit": 12, "cancel": 2, "answer": 6, "promote": 1, "delete": 1},
    **{"claim": 10, "take_over": 4, "write": 6, "close": 7, "expire": 1},
    **{
        "renew": 1,
        "hand_back": 2,
        "freeze": 2,
        "wake": 2,
        "replace": 1,
        "append_without_a_turn": 1,
    },
}
ENDS: Final[list[End]] = [
    Completed(),
    Failed(RuntimeError("no")),
    Cancelled("half an ans"),
    InputRequired(CALLS[:1]),
    InputRequired(CALLS[:1]),
    InputRequired(CALLS),
]


@dataclass
class HeldClaim:
    """A claim that a worker holds, or has lost without knowing."""

    claim: Claim
    session: ModelSession
    turn: ModelTurn

    @property
    def good(self) -> bool:
        return self.session.holds(self.turn, self.claim.id)

    def __repr__(self) -> str:
        return f"claim {self.claim.epoch} of {self.session}, turn {self.turn.number}"


class Turns(Submitting):
    """The queue with several workers; each step is compared with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.workers: list[Worker] = []
        self.dead: set[str] = set()
        self.held: list[HeldClaim] = []
        self.steps = 0
        for both in (True, True, False):
            self.enter(both=both)

    @rule(seed=st.integers(0, 2**32))
    def step(self, seed: int) -> None:
        """One rule for all, and dice of our own.

        Left to itself, hypothesis does without some rules at a time and prefers what comes first:
        hardly a turn was ever answered.
        """
        dice = Random(seed)
        action = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        note(f"{action}:")
        getattr(self, action)(dice)

    # --- workers ----------------------------------------------------------------------------

    def enter(self, *, both: bool) -> Worker:
        apps = self.apps if both else self.apps[:1]
        worker = Worker(new_id("wrk"), dict.fromkeys(apps, "print"))
        self.run(self.clients[0].workers.register(worker))
        self.workers.append(worker)
        self.model.living.add(worker.id)
        self.model.entered.add(worker.id)
        return worker

    def freeze(self, dice: Random) -> None:
        """Freeze a worker; one in two never wakes."""
        worker = dice.choice(self.workers)
        self._freeze(worker.id)
        if dice.choice([True, False]):
            self.dead.add(worker.id)

    def _freeze(self, worker_id: str) -> None:
        self.run(self.clients[0].freeze(worker_id))
        self.model.living.discard(worker_id)

    def wake(self, dice: Random) -> None:
        worker = dice.choice(self.workers)
        if worker.id not in self.dead and self.run(self.client(dice).workers.beat(worker.id)):
            self.model.living.add(worker.id)
            self.model.blamed.pop(worker.id, None)

    def replace(self, dice: Random) -> None:
        """Stop a worker gracefully, and start another."""
        worker = dice.choice(self.workers)
        claims = [
            claim for each in self.model.existing_sessions() for claim in each.hand_over(worker.id)
        ]
        self.run(self.client(dice).workers.remove(worker.id, claims))
        self.model.living.discard(worker.id)
        self.model.entered.discard(worker.id)
        self.workers.remove(worker)
        self.enter(both=dice.choice([True, False]))

    # --- running ----------------------------------------------------------------------------

    def claim(self, dice: Random) -> None:
        living = self.model.living
        sessions = [each for each in self.model.existing_sessions() if each.has_work(living)]
        workers = [each for each in self.workers if each.id in living]
        if not (sessions and workers) or not dice.randrange(4):
            sessions, workers = self.model.sessions[-4:], self.workers  # some of them deleted
        session = dice.choice(sessions)
        self._claim(session, dice.choice(workers), self.client(dice))

    def take_over(self, dice: Random) -> None:
        """A turn's worker freezes, another resumes the turn, and the first wakes and writes."""
        busy = [session for session in self.model.existing_sessions() if session.owner]
        if not busy:
            return
        session = dice.choice(busy)
        self._freeze(session.owner or "")
        living = [each for each in self.workers if each.id in self.model.living]
        zombies = [held for held in self.held if held.good and held.session is session]
        self._claim(session, living[0] if living else self.enter(both=True), self.client(dice))
        for zombie in zombies:
            self._write(dice, zombie)

    def _claim(
        self, session: ModelSession, worker: Worker, client: QueueClient
    ) -> HeldClaim | None:
        may = session.key.app_name in worker.apps and worker.id in self.model.living
        free = not session.deleted and session.owner not in self.model.living
        claim = self.run(client.queue.claim(session.pk, worker))
        turn, verdict = self._model_takes(session, worker.id) if may and free else (None, None)
        assert (claim and claim.turn.id) == (turn and turn.id)
        if claim is None or turn is None:
            return None
        turn.claim = claim.id
        assert (claim.epoch, claim.turn.attempts) == (session.epoch, turn.attempts)
        assert claim.turn.state == "running"
        assert (claim.verdict and claim.verdict.type) == verdict
        self.held = [*self.held[-12:], HeldClaim(claim, session, turn)]
        return self.held[-1]

    def _model_takes(
        self, session: ModelSession, worker: str
    ) -> tuple[ModelTurn | None, TurnState | None]:
        running, model = session.running, self.model
        judged = running is not None and not running.closing
        blamed = model.blame(session.owner) if judged else None
        return session.take(worker, blamed=blamed, most_losses=model.most_losses(worker))

    def close(self, dice: Random) -> None:
        if self.held:
            end = dice.choice(ENDS)
            self._close(self.pick(dice), end, self.client(dice))

    def pick(self, dice: Random) -> HeldClaim:
        """A valid claim, or one in four times any of the newest."""
        good = [held for held in self.held if held.good]
        if not good or not dice.randrange(4):
            good = self.held[-5:]
        return dice.choice(good)

    def _close(self, held: HeldClaim, end: End, client: QueueClient) -> None:
        """Close a turn, with the claim's verdict if it has one."""
        session, turn = held.session, held.turn
        end = held.claim.verdict or end
        own = turn.claim == held.claim.id and not session.deleted
        try:
            closed = self.run(client.queue.close(held.claim, end))
        except Fenced:
            assert not own
            return
        assert own
        if session.running is turn:
            session.close(turn, end.type)  # pyright: ignore[reportArgumentType]
            turn.waits_for = end.calls if isinstance(end, InputRequired) else ()
            session.settle(turn.invocation)
            assert (closed.next is not None) == bool(session.queue)
        assert closed.turn.state == turn.state or turn.waits_for

    def renew(self, dice: Random) -> None:
        """Raise the epoch of a claim to close its turn; the old claim is then lost."""
        if not self.held:
            return
        held, claim_id = self.pick(dice), new_id("clm")
        good = held.good
        try:
            claim = self.run(self.client(dice).queue.renew(held.claim, Cancelled(), claim_id))
        except Fenced:
            assert not good
            return
        assert good
        held.session.renew(held.turn, claim_id)
        assert (claim.id, claim.epoch) == (claim_id, held.session.epoch)
        self.held.append(HeldClaim(claim, held.session, held.turn))
        self._write(dice, held)

    def hand_back(self, dice: Random) -> None:
        """A worker hands back a claim that it does not run; a lost claim is not changed."""
        if not self.held:
            return
        held = self.pick(dice)
        worker, claim_id, good = held.claim.worker, held.claim.id, held.good
        assert self.run(self.client(dice).queue.hand_back(worker, claim_id)) == good
        if good:
            held.session.hand_back(held.turn)
        self._write(dice, held)

    def expire(self, dice: Random) -> None:
        if not self.held:
            return
        held = self.pick(dice)
        self.run(self.client(dice).expire(held.claim.turn.id))
        held.turn.overdue = True

    def write(self, dice: Random) -> None:
        if self.held:
            self._write(dice, self.pick(dice))

    def _write(self, dice: Random, held: HeldClaim) -> None:
        """Write under the claim: a valid claim writes, a lost one writes nothing."""
        what = dice.choice(["append", "log", "start", "start", "finish"])
        if what == "append":
            self._append(dice, held.session, held.claim.epoch, good=held.good)
        elif what == "log":
            self._log(held, self.client(dice))
        else:
            self._use_tool(dice, held, finish=what == "finish")

    def _log(self, held: HeldClaim, client: QueueClient) -> None:
        deltas = [MessageDelta("m", "x"), MessageDelta("m", "y")]
        try:
            number = self.run(client.log.append(held.claim, deltas))
        except Fenced:
            assert not held.good
        else:
            assert held.good
            held.turn.log += [("message.delta", held.claim.epoch)] * 2
            assert number == len(held.turn.log)

    def _use_tool(self, dice: Random, held: HeldClaim, *, finish: bool) -> None:
        idempotent, call = dice.choice([True, False]), dice.choice(CALLS)
        run = ToolRun(held.turn.invocation, call, "tool", {}, idempotent)
        ledger, key = held.session.ledger, (held.turn.invocation, call)
        client = self.client(dice)
        if finish and key not in ledger:
            return
        try:
            if finish:
                self.run(client.ledger.finish(held.claim, run, self.events, {"n": 1}))
                verdict: Any = None
            else:
                verdict = self.run(client.ledger.start(held.claim, run))
        except Fenced:
            assert not held.good
            return
        assert held.good
        if finish:
            if ledger[key] is None:
                ledger[key] = Finished(self.events, {"n": 1})
            return
        repeated = "run" if idempotent else "unknown"
        assert verdict == ((ledger[key] or repeated) if key in ledger else "run")
        ledger.setdefault(key, None)

    # --- what always holds ------------------------------------------------------------------

    @invariant()
    def rows_are_the_model(self) -> None:
        self.steps += 1
        if self.steps % HEADS_EVERY == 0:
            self.work_is_found(self.apps)
        found = self.run(self.clients[1].rows(self.tenants))
        expected = {
            turn.id: (turn.state, turn.number, turn.attempts, turn.cancel, len(turn.log))
            for _, turn in self.model.turns()
        }
        existing_sessions = self.model.existing_sessions()
        assert found.turns == expected
        queues = {
            each.pk: [turn.id for turn in each.queue] for each in existing_sessions if each.queue
        }
        assert found.queues == queues
        assert found.epochs == {each.pk: each.epoch for each in existing_sessions}
        assert found.owners == {
            each.pk: each.owner for each in existing_sessions if each.owner is not None
        }
        idle = {each.pk for each in existing_sessions if each.running is None}
        assert found.ready == {queue[0] for pk, queue in queues.items() if pk in idle}

    def work_is_found(self, apps: list[str]) -> None:
        """No wake-up is lost: exactly the sessions with work and no living worker are listed."""
        shown = self.run(every_head(self.clients[0].queue, apps))
        sessions = [each for each in self.model.existing_sessions() if each.key.app_name in apps]
        expected = {each.pk for each in sessions if each.has_work(self.model.living)}
        assert sorted(head.session_pk for head in shown) == sorted(expected)
        lost = {each.pk for each in sessions if each.running and each.pk in expected}
        assert {head.session_pk for head in shown if head.lost} == lost

    def teardown(self) -> None:
        """At the end a new worker finishes every accepted turn."""
        for worker in self.workers:
            self.run(self.clients[0].freeze(worker.id))
        self.model.living.clear()
        for apps in (self.apps, self.apps[:1]):
            self.work_is_found(apps)
        self.enter(both=True)
        self.run(self.clients[0].make_due(self.tenants))
        self.run(self.clients[0].queue.promote_due(100_000))
        for _, turn in self.model.turns():
            turn.due = True
        for session in self.model.existing_sessions():
            session.promote()
            while session.has_work(self.model.living):
                held = self._claim(session, self.workers[-1], self.clients[0])
                if held is not None:
                    self._close(held, Completed(), self.clients[0])
        self.work_is_found(self.apps)
        self.rows_are_the_model()
        self._check_logs()

    def _check_logs(self) -> None:
        ends = {"completed", "failed", "cancelled", "input_required"}
        for session, turn in self.model.turns():
            page = self.run(self.clients[1].log.read(session.key.tenant, turn.id))
            assert page.is_end
            assert [(event.type, event.epoch) for event in page.events] == turn.log
            assert [event.number for event in page.events] == list(range(1, len(turn.log) + 1))
            assert [event.type in ends for event in page.events].count(True) == 1
            assert page.events[-1].type in ends
            epochs = [event.epoch for event in page.events]
            assert epochs == sorted(epochs)
        for session in self.model.existing_sessions():
            loaded = self.run(self.clients[0].sessions.load(session.key, None))
            assert loaded is not None
            assert [row.event_id for row in loaded.messages] == session.messages


def on_one_database(url: str, runs: int, seed_value: int, *, shrink: bool = True) -> None:
    """Run the machine; raise the first failure, after printing the steps to it."""
    with asyncio.Runner() as runner:
        clients = [QueueClient(url), QueueClient(url)]
        try:
            attributes: dict[str, Any] = {"runner": runner, "clients": clients}
            run_machine(
                Turns, attributes, runs=runs, steps=STEPS, seed_value=seed_value, shrink=shrink
            )
        finally:
            for client in clients:
                runner.run(client.sessions.close())


def same_as_the_model(run: Run) -> Outcome:
    """The machine on both databases."""
    # SQLite gets a quarter of the runs, 30 at least if there are so many.
    runs = {"postgresql": run.count, "sqlite": max(run.count // 4, min(run.count, 30))}
    return on_both_databases(run, runs, STEPS, on_one_database)


QUEUE: Final = Guarantee(
    "QUEUE",
    "the turn queue is the model, and every accepted turn ends",
    full=2_000,
    ci=60,
    run=same_as_the_model,
    parts=4,
)
