"""The store's benchmark: every measure in one run, on a database of its own."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.pg import connect, own_database
from bench.report import summary, verdicts
from bench.rounds import MIN_ROUNDS
from bench.store import append, disk, load, runner_turn, trips
from bench.store.adk import Adk
from bench.store.bare import Bare, Promised
from bench.store.ours import Lango
from bench.targets import exit_code, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bench.report import Table
    from bench.store.contenders import Contender
    from bench.targets import Finding, Result

# PostgreSQL plans for the current table sizes: for tiny tables it would choose, and keep, scans.
_IDLE_SESSIONS: Final = 2_000
_ADK_LONGEST: Final = 10_000  # it loads whole sessions: longer ones would dominate the run


async def _open_adk(url: str) -> Adk:
    return Adk(url)


async def _open_lango(url: str) -> Lango:
    return Lango(url)


OPENERS: Final[Mapping[str, Callable[[str], Awaitable[Contender]]]] = {
    Bare.name: Bare.open,
    Adk.name: _open_adk,
    Lango.name: _open_lango,
}


class Run:
    """The contenders of one run, and the findings so far."""

    def __init__(self, url: str, bare: Bare, promised: Promised, adk: Adk, ours: Lango) -> None:
        self._url = url
        self._promised = promised
        self._adk, self._ours = adk, ours
        self._all = (bare, adk, ours)
        self.findings: list[Finding] = []

    @staticmethod
    def _show(tables: Sequence[Table]) -> None:
        for table in tables:
            print(table, flush=True)

    def _record(self, result: Result) -> None:
        self._show(result.tables)
        self.findings += result.findings

    async def _vacuum(self) -> None:
        connection = await connect(self._url)
        await connection.execute("vacuum analyze")
        await connection.close()

    async def populate(self) -> None:
        """Create sessions of other users, so that no table is tiny."""
        for contender in (*self._all, self._promised):
            await contender.sessions(_IDLE_SESSIONS)
        await self._vacuum()

    async def quick(self) -> None:
        """Run the measures that noise does not affect."""
        self._record(await disk.per_message(self._all, self._url))
        ends = (load.SHORTEST, load.LONGEST)
        sessions = await load.fill_sessions(self._all, {Adk.name: load.SHORTEST}, ends)
        await self._vacuum()
        self._record(await trips.count_all(OPENERS, self._url, sessions))
        self._record(await load.memory(self._all, sessions))
        # Times are shown, client CPU among them, but none is judged: a quick run is a noisy one.
        self._show((await append.one_at_a_time(self._all, self._promised, MIN_ROUNDS)).tables)
        self._show((await load.window(self._all, sessions, MIN_ROUNDS)).tables)
        self._record(
            await settle(partial(runner_turn.cpu_of_turn, (self._adk, self._ours)), MIN_ROUNDS)
        )

    async def full(self) -> None:
        """Everything."""
        self._record(await disk.per_message(self._all, self._url))
        sessions = await load.fill_sessions(self._all, {Adk.name: _ADK_LONGEST})
        await self._vacuum()
        self._record(await trips.count_all(OPENERS, self._url, sessions))
        self._record(await load.memory(self._all, sessions))
        for measure in (
            partial(append.one_at_a_time, self._all, self._promised),
            partial(append.at_once, self._all, 16),
            partial(append.at_once, self._all, 64),
            partial(append.at_length, self._all),
            partial(load.window, self._all, sessions),
            partial(runner_turn.cpu_of_turn, (self._adk, self._ours)),
        ):
            self._record(await settle(measure, MIN_ROUNDS))


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    began = time.monotonic()
    async with own_database() as url:
        for prepare in (Bare.prepare, Promised.prepare, Adk.prepare, Lango.prepare):
            await prepare(url)
        contenders = await Bare.open(url), await Promised.open(url), Adk(url), Lango(url)
        run = Run(url, *contenders)
        try:
            await run.populate()
            await (run.quick() if quick else run.full())
        finally:
            for contender in contenders:
                await contender.close()
    print(verdicts(run.findings))
    print(summary("store", run.findings, time.monotonic() - began))
    return exit_code(run.findings)
