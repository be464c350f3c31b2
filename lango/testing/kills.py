"""Kill sweeps test whether an agent's turns survive the death of their process at any moment.

A run without kills records the failpoints that its turns pass. Then, for each drawn failpoint, the
turns run again in a new process, which is killed (or frozen) there. Another process resumes them
and may be killed as well. The final database must equal that of the first run. A frozen process is
woken afterwards, and must not be able to write anything.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lango.adk.apps.load import Root
from lango.store.sessions.entries import SessionKey
from lango.testing.kill_checks import Recovery, Snapshot, Trace, Trial, snapshot, wrongs
from lango.testing.kill_trials import (
    APP,
    PROOF_LASTS,
    USER,
    Mode,
    Sweep,
    TurnInput,
    arm,
    disarm,
    note_error,
    run_turns,
)

SESSION: Final = "session"
_FAILED: Final = 3
_COLLECT_EVERY: Final = 20
"""Trials after which the parent collects its garbage. After `gc.freeze` all objects count as old,
and Python would rarely collect them; the larger the parent, the longer a fork takes."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A difference that a kill caused."""

    point: str
    number: int
    problem: str

    def __str__(self) -> str:
        return f"{self.point} (failpoint {self.number}): {self.problem}"


@dataclass(slots=True)
class SweepReport:
    """The result of a sweep."""

    seed: int
    points: int  # failpoints of the run without kills
    kinds: frozenset[str] = frozenset()  # their names
    trials: int = 0
    kills: int = 0  # including those in recovery
    killed_at: Counter[str] = field(default_factory=Counter[str])
    unknown: int = 0  # trials in which a tool that may not run twice was interrupted
    woken: int = 0  # frozen processes woken after another had taken over their turn
    zombie_effects: int = 0  # effects of tools in frozen processes after they were woken
    wrong: list[Wrong] = field(default_factory=list[Wrong])
    undisturbed: Snapshot | None = None  # of the run without kills
    effects: tuple[str, ...] = ()  # of the run without kills, by name

    @property
    def is_exact(self) -> bool:
        """Whether no kill changed anything."""
        return not self.wrong


def kill_sweep(
    make_app: Callable[[], Root],
    turns: Sequence[TurnInput],
    url: str,
    *,
    count: int | None = None,
    seed: int | None = None,
    freezes: float = 0.0,
    more_kills: int = 0,
    first: int = 0,
    state: dict[str, Any] | None = None,
) -> SweepReport:
    """Kill an agent at its failpoints, and report what that changed.

    `make_app` returns a new agent each time; its model must be deterministic, and its tools report
    their effects with `effect`. `turns` are messages, or a `Reply` to the previous turn's question.
    `count` failpoints are drawn, kind by kind starting at kind number `first`; by default each
    failpoint is tried once. `freezes` is the share of trials in which the process is frozen
    instead of killed, and woken at the end; `more_kills` is the maximum number of kills during
    recovery. Call this where no event loop runs.
    """
    sweep = Sweep(make_app, turns, url, state or {})
    seed = secrets.randbelow(2**32) if seed is None else seed
    drawn = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="lango-kills-") as folder:
        sweeper = _Sweeper(sweep, Path(folder), drawn, freezes, more_kills)
        return sweeper.run(seed, count, first)


class _Sweeper:
    def __init__(
        self, sweep: Sweep, folder: Path, drawn: random.Random, freezes: float, more_kills: int
    ) -> None:
        self.sweep = sweep
        self.folder = folder
        self.drawn = drawn
        self.freezes = freezes
        self.more_kills = more_kills
        self.trials = 0

    def run(self, seed: int, count: int | None, first: int) -> SweepReport:
        """Run once without kills, then the trials."""
        clean, trace = self.undisturbed()
        report = SweepReport(
            seed, len(trace.points), kinds=frozenset(trace.points), undisturbed=clean
        )
        report.effects = tuple(name for _, _, name in trace.effects)
        numbers = list(range(1, len(trace.points) + 1))
        if count is not None:
            numbers = self._draw(trace.points, count, first)
        for number in numbers:
            self.trial(number, clean, trace, report)
        return report

    def _draw(self, points: Sequence[str], count: int, first: int) -> list[int]:
        """Draw a random failpoint of each kind in rotation, so that rare kinds occur too."""
        kinds = sorted(set(points))
        numbers_of = {
            kind: [number for number, name in enumerate(points, 1) if name == kind]
            for kind in kinds
        }
        picks = (kinds[number % len(kinds)] for number in range(first, first + count))
        return [self.drawn.choice(numbers_of[kind]) for kind in picks]

    def undisturbed(self) -> tuple[Snapshot, Trace]:
        """The result and the trace of the turns without kills."""
        key, path = self._new()
        arm(path, None)
        try:
            asyncio.run(run_turns(self.sweep, key, f"{key.tenant}-undisturbed", ()))
        finally:
            disarm()
        return asyncio.run(snapshot(self.sweep.url, key)), Trace.read(path)

    def trial(self, number: int, clean: Snapshot, trace: Trace, report: SweepReport) -> None:
        """Run one trial: a kill or freeze, the recoveries, and the checks."""
        key, path = self._new()
        mode: Mode = "freeze" if self.drawn.random() < self.freezes else "kill"
        first = self._process(key, path, number, (), mode)
        if not first.is_cut:
            return self._note(report, "?", number, f"was not killed: {Trace.read(path).errors}")
        before, workers = Trace.read(path), [first.worker]
        next_kills = [
            self.drawn.randint(1, 14) for _ in range(self.drawn.randint(0, self.more_kills))
        ]
        resumed = [self._resume(key, path, at, workers) for at in (*next_kills, None)]
        recoveries = [recovery for _, recovery in resumed]
        last = resumed[-1][0]
        after = asyncio.run(snapshot(self.sweep.url, key))
        report.trials += 1
        report.kills += 1 + sum(process.is_cut for process, _ in resumed)
        report.unknown += after.has_unknown
        report.killed_at[before.points[-1]] += 1
        for problem in wrongs(clean, trace, Trial(before, recoveries, after)):
            self._note(report, before.points[-1], number, problem)
        if last.is_cut or last.code:
            self._note(report, before.points[-1], number, f"recovery ended with {last.code}")
        if mode == "freeze":
            self._wake(first, key, path, after, report, number)
        return None

    def _resume(
        self, key: SessionKey, path: Path, at: int | None, workers: list[str]
    ) -> tuple[_Process, Recovery]:
        """Resume in another process, after those of `workers`, to a failpoint or to the end."""
        before, lines = asyncio.run(snapshot(self.sweep.url, key)), _lines(path)
        process = self._process(key, path, at, workers)
        workers.append(process.worker)
        return process, Recovery(before, Trace.read(path, lines))

    def _wake(
        self,
        zombie: _Process,
        key: SessionKey,
        path: Path,
        after: Snapshot,
        report: SweepReport,
        number: int,
    ) -> None:
        """Wake a frozen process: it must neither write anything nor call a model."""
        report.woken += 1
        lines = _lines(path)
        time.sleep(PROOF_LASTS)
        os.kill(zombie.pid, signal.SIGCONT)
        os.waitpid(zombie.pid, 0)
        trace = Trace.read(path, lines)
        report.zombie_effects += len(trace.effects)
        requests = trace.points.count("model.ask")
        if requests:
            self._note(report, "woken", number, f"a zombie has asked the model, {requests} times")
        for row in sorted(asyncio.run(snapshot(self.sweep.url, key)).rows ^ after.rows):
            self._note(report, "woken", number, f"a zombie has changed {row}")

    def _new(self) -> tuple[SessionKey, Path]:
        self.trials += 1
        if self.trials % _COLLECT_EVERY == 0:
            gc.collect()
        tenant = f"{self.folder.name}-{self.trials}"
        return SessionKey(tenant, APP, USER, SESSION), self.folder / f"trace-{self.trials}"

    def _process(
        self,
        key: SessionKey,
        path: Path,
        at: int | None,
        dead: Sequence[str],
        mode: Mode = "kill",
    ) -> _Process:
        """Run the turns in a new process, to a failpoint or to the end."""
        worker = f"{key.tenant}-{len(dead)}"
        gc.freeze()  # a collection in the child would copy the memory that both still share
        pid = os.fork()
        if pid == 0:
            os._exit(_child(self.sweep, key, path, at, mode, worker, dead))
        gc.unfreeze()
        _, status = os.waitpid(pid, os.WUNTRACED)
        cut = os.WIFSIGNALED(status) or os.WIFSTOPPED(status)
        return _Process(pid, worker, cut, 0 if cut else os.WEXITSTATUS(status))

    def _note(self, report: SweepReport, point: str, number: int, problem: str) -> None:
        report.wrong.append(Wrong(point, number, problem))


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    worker: str
    is_cut: bool  # killed or frozen
    code: int


def _child(
    sweep: Sweep,
    key: SessionKey,
    path: Path,
    at: int | None,
    mode: Mode,
    worker: str,
    dead: Sequence[str],
) -> int:
    # A process group of its own: when the shell that started the sweep ends, the kernel continues
    # the frozen processes of its group.
    os.setpgid(0, 0)
    arm(path, at, mode)
    try:
        asyncio.run(run_turns(sweep, key, worker, dead))
    except BaseException as error:  # noqa: BLE001 - the parent reads it, Fenced included
        note_error(error)
        return _FAILED
    return 0


def _lines(path: Path) -> int:
    """The number of lines in a trace so far."""
    return len(path.read_text().splitlines()) if path.exists() else 0
