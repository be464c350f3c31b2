"""LEDGER: the usage of model calls, while their workers are killed and frozen.

The model is a server of this row that keeps its own count. A worker can die with a whole answer in
its socket, so no account on this side can hold all tokens; what it must hold is a row for every
request, the server's own figures in every row that has any, and no figure for the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any, Final
from uuid import uuid4

import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool

from faults.blackbox.logs import Log, read
from faults.blackbox.model_server import ModelServer
from faults.harness import Guarantee, Outcome, Run
from faults.turns.clients import until_over
from faults.turns.processes import Crew, WorkerProcess, keep_log, run_until_stopped
from faults.turns.workspace import TurnProcess, Workspace, temporary_workspace, turn_process
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins import plugins
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core import failpoints
from lango.store.schema.tables import messages, model_calls, sessions
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.rows import Turn
from lango.turns import event_loop
from lango.turns.worker import TurnWorker, WorkerOptions

WORKERS: Final = 2
CONCURRENCY: Final = 8
DEAD_AFTER: Final = 2.0
DRAIN: Final = 20.0
"""Seconds for workers that lost their turns to settle their calls; without turns they end."""
TURNS_PER_BLOW: Final = 6
PAUSES: Final = (0.2, 0.9)
SPARED: Final = 3
"""A turn with this many attempts may end before the next fault."""
DEATHS: Final = ("call.", "model.end", "append.")
"""The prefixes of the failpoints at which a worker may die by itself."""
DIES: Final = 1 / 250
LATE: Final = 3.0
"""Seconds in which a worker that lost its turn settles a call, if it is not frozen."""
NONCE: Final = re.compile(r"N[0-9a-f]+x\d+")


Span = tuple[float, float]
"""The begin and the end of a time."""


def count(uid: str, k: str) -> dict[str, str]:
    """Count something."""
    return {"counted": uid + k}


def _agent(model: str) -> LlmAgent:
    def llm(name: str) -> ModelAdapter:
        return ModelAdapter(f"vllm:{name}", base_url=model, api_key="none")

    aide = LlmAgent(name="aide", model=llm("aide"), tools=[count])
    return LlmAgent(name="payer", model=llm("payer"), tools=[AgentTool(aide)])


def pay(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    """The job of a worker: run turns, and die at random failpoints."""
    keep_log(workspace)
    warnings.simplefilter("ignore")
    failpoints.armed = partial(_die, random.Random(f"{options['seed']} {os.getpid()}"))
    event_loop.run(_pay(workspace, options, ready))


def _die(drawn: random.Random, name: str) -> None:
    if name.startswith(DEATHS) and drawn.random() < DIES:
        os.kill(os.getpid(), signal.SIGKILL)


async def _pay(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
        app = _app(process.store, workspace.app, options["model"])
        worker = TurnWorker(
            process.store,
            process.engine,
            {workspace.app: app},
            WorkerOptions(concurrency=CONCURRENCY),
        )
        await run_until_stopped(worker, ready, DRAIN)


def _app(store: SqlSessionStore, name: str, model: str) -> DurableAgent:
    runner = AgentRunner(
        _agent(model), SessionServiceAdapter(store), plugins=plugins(store), name=name
    )
    return DurableAgent(runner, store)


@dataclass
class ServerCount:
    """The counts of the model server."""

    requests_by_nonce: dict[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]]
    )
    """By nonce: the turn and the agent of each request."""
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """By nonce: the tokens of each answer that was sent completely."""

    @classmethod
    def from_log(cls, lines: list[dict[str, Any]]) -> ServerCount:
        """Build the counts from the server's log."""
        made = cls()
        for line in lines:
            nonce = str(line["nonce"])
            if line["kind"] == "asked":
                made.requests_by_nonce[nonce] = str(line["uid"]), str(line["agent"])
            elif line["whole"]:
                made.tokens[nonce] = line["tokens"][0], line["tokens"][1]
        return made


async def _trials(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    databases = run.databases.each()
    trials = [
        _trial(kind, url, turns, random.Random(drawn.randrange(2**32)), outcome)
        for number, (kind, url) in enumerate(databases.items())
        if (turns := (run.count + number) // len(databases))
    ]
    await asyncio.gather(*trials)
    return outcome


async def _trial(kind: str, url: str, turns: int, drawn: random.Random, outcome: Outcome) -> None:
    with temporary_workspace(url) as workspace:
        log = Log(workspace.folder / "model")
        server = ModelServer(log, uuid4().hex[:6])
        options = {"model": await server.start(), "seed": drawn.randrange(2**32)}
        try:
            async with (
                turn_process(workspace, dead_after=DEAD_AFTER) as process,
                Crew(workspace, WORKERS, job=pay, **options) as crew,
            ):
                turn_ids: dict[str, str] = {}
                for number in range(turns):
                    uid = f"U{drawn.randrange(16**8):08x}"
                    turn_ids[uid] = await process.say(f"BOX:payer:{uid}", session=f"s{number // 2}")
                frozen: list[Span] = []
                most = max(turns // TURNS_PER_BLOW, 1)
                blows = await _strike_until_over(crew, process, drawn, most, frozen)
                await crew.dismiss()
                counted = ServerCount.from_log(read(workspace.folder / "model"))
                judge = Judge(kind, counted, frozen, outcome)
                await judge.check(process, turn_ids)
            outcome.note(f"{kind}: {turns} turns, {_listed(blows)}; {judge}")
        finally:
            await server.stop()
            log.close()


def _listed(blows: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(blows.items()))


async def _strike_until_over(
    crew: Crew, process: TurnProcess, drawn: random.Random, most: int, frozen: list[Span]
) -> Counter[str]:
    striking = asyncio.create_task(_strike(crew, process, drawn, most, frozen))
    mending = asyncio.create_task(_mend(crew))
    try:
        with suppress(TimeoutError):  # the checks find a turn that never ends
            await until_over(process)
    finally:
        striking.cancel()
        mending.cancel()
        blows = await striking + await mending
    return blows


async def _mend(crew: Crew) -> Counter[str]:
    """Replace the workers that died by themselves; return their number."""
    deaths: Counter[str] = Counter()
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0.2)
            deaths["deaths at failpoints"] += await crew.mend()
    return deaths


async def _strike(
    crew: Crew, process: TurnProcess, drawn: random.Random, most: int, frozen: list[Span]
) -> Counter[str]:
    """Repeatedly kill or freeze a worker; return how often each, and add the times to `frozen`."""
    blows: Counter[str] = Counter()
    with suppress(asyncio.CancelledError):
        while blows.total() < most:
            await asyncio.sleep(drawn.uniform(*PAUSES))
            await until_over(process, SPARED)
            hit = drawn.choice(crew.members) if crew.members else None
            if hit is None or not hit.is_alive:
                continue
            kills = drawn.random() < 0.5
            blows["kills" if kills else "freezes"] += 1
            _send(hit, signal.SIGKILL if kills else signal.SIGSTOP)
            if not kills:
                began = time.time()
                try:
                    await asyncio.sleep(drawn.uniform(0.3, 2 * DEAD_AFTER))
                finally:
                    _send(hit, signal.SIGCONT)
                    frozen.append((began, time.time()))
    return blows


def _send(hit: WorkerProcess, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it died at a failpoint in the same moment
        hit.send(number)


class Judge:
    """Compares the rows with the model server's counts."""

    def __init__(
        self, kind: str, server: ServerCount, frozen: list[Span], outcome: Outcome
    ) -> None:
        self._kind, self._server, self._frozen, self._outcome = kind, server, frozen, outcome
        self._settled: set[str] = set()
        self._cut_off = 0

    async def check(self, process: TurnProcess, turn_ids: dict[str, str]) -> None:
        """Check every row, every request and every turn."""
        rows = await _rows(process)
        self._check_settled(rows)
        for uid, turn_id in turn_ids.items():
            rows_of_turn = [row for row in rows if row.turn == turn_id]
            self._check_requests(uid, rows_of_turn)
            self._check_turn(await process.turns.get(turn_id), rows_of_turn)
        strange = {row.turn for row in rows} - set(turn_ids.values())
        self._expect(not strange, f"rows of turns that are none: {sorted(strange)[:3]}")
        lost = await _stored_answers(process) - self._settled
        self._expect(not lost, f"{len(lost)} stored answers without usage: {sorted(lost)[:3]}")

    def _check_settled(self, rows: list[sa.Row[Any]]) -> None:
        """Every row with figures has those of one answer; no row is still open."""
        open_rows = [row.call_id for row in rows if row.outcome == "started"]
        self._expect(not open_rows, f"{len(open_rows)} rows are still under way")
        for row in rows:
            if row.input_tokens is None:
                self._cut_off += row.outcome == "cut_off"
                continue
            nonce, figures = row.request_id, (row.input_tokens, row.output_tokens)
            twice = nonce in self._settled
            self._settled.add(nonce)
            same = self._server.tokens.get(nonce) == figures and not twice
            self._expect(same, f"the row {row.call_id} of {nonce} has {figures}, twice: {twice}")

    def _check_requests(self, uid: str, rows: list[sa.Row[Any]]) -> None:
        """Every request has a row, of the same turn and agent."""
        requests = [
            nonce
            for nonce, (request_uid, _) in self._server.requests_by_nonce.items()
            if request_uid == uid
        ]
        open_requests = Counter(
            self._server.requests_by_nonce[nonce][1]
            for nonce in requests
            if nonce not in self._settled
        )
        open_rows = Counter(row.agent for row in rows if row.input_tokens is None)
        without = open_requests - open_rows
        self._expect(not without, f"{uid}: requests without a row: {dict(without)}")

    def _check_turn(self, turn: Turn, rows: list[sa.Row[Any]]) -> None:
        """The turn has the sum of its rows; calls settled late by a lost worker may be missing."""
        self._expect(turn.ended is not None, f"{turn.id} is {turn.state}")
        usage = turn.usage or {}
        turn_usage = (usage.get("input", 0), usage.get("output", 0))
        paid = [row for row in rows if row.input_tokens is not None]
        late = [row for row in paid if turn.attempts > 1 and _is_late(row, turn, self._frozen)]
        self._expect(
            turn_usage in _sums(paid, late),
            f"{turn.id} after {turn.attempts} attempts has {turn_usage}, its rows {_sum(paid)}",
        )

    def _expect(self, holds: object, failure: str) -> None:
        self._outcome.expect(holds, f"{self._kind}: {failure}")

    def __str__(self) -> str:
        whole, settled = self._server.tokens, self._settled
        counted = sum(map(sum, whole.values()))
        unknown = [sum(whole[nonce]) for nonce in whole if nonce not in settled]
        return (
            f"{len(self._server.requests_by_nonce)} requests, {len(settled)} settled to the "
            f"token, {self._cut_off} rows cut off; {len(unknown)} answers went out whole to "
            f"workers that died with them, {sum(unknown)} of {counted} tokens "
            f"({sum(unknown) / max(counted, 1):.2%})"
        )


def _is_late(row: sa.Row[Any], turn: Turn, frozen: list[Span]) -> bool:
    ended = row.ended if row.ended.tzinfo else row.ended.replace(tzinfo=UTC)
    return turn.ended is not None and awake(ended.timestamp(), turn.ended, frozen) < LATE


def awake(since: float, until: float, frozen: list[Span]) -> float:
    """The seconds between two times in which no worker was frozen."""
    asleep = (min(until, ended) - max(since, began) for began, ended in frozen)
    return until - since - sum(max(each, 0.0) for each in asleep)


def _sum(rows: list[sa.Row[Any]]) -> tuple[int, int]:
    return sum(row.input_tokens for row in rows), sum(row.output_tokens for row in rows)


def _sums(rows: list[sa.Row[Any]], late: list[sa.Row[Any]]) -> Iterator[tuple[int, int]]:
    """The sum of all, and of all without any of the late ones."""
    for number in range(len(late) + 1):
        for without in itertools.combinations(late, number):
            yield _sum([row for row in rows if row not in without])


async def _rows(process: TurnProcess) -> list[sa.Row[Any]]:
    found = sa.select(model_calls).where(model_calls.c.app_name == process.workspace.app)
    async with process.store.database.snapshot() as connection:
        return list((await connection.execute(found.order_by(model_calls.c.pk))).all())


async def _stored_answers(process: TurnProcess) -> set[str]:
    """The nonces of all answers stored in sessions.

    Without the partial text of a turn that lost its last worker: that model call has no usage.
    """
    found = (
        sa.select(messages.c.content, messages.c.event)
        .join(sessions, sessions.c.pk == messages.c.session_pk)
        .where(sessions.c.app_name == process.workspace.app)
    )
    async with process.store.database.snapshot() as connection:
        answers = (await connection.execute(found)).all()
    return {
        nonce
        for content, event in answers
        if "interrupted" not in (event or ())
        for nonce in NONCE.findall(content or "")
    }


LEDGER: Final = Guarantee(
    "LEDGER",
    "workers killed and frozen: a row for every model request, usage as the model counted it",
    full=1_000,
    ci=100,
    run=lambda run: asyncio.run(_trials(run)),
    parts=2,
)
