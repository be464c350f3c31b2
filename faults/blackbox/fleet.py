"""Servers and workers of a project, and what is done to them."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from faults.blackbox.evidence import connected
from faults.blackbox.logs import Log
from faults.blackbox.processes import Running, Zygote

_ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:(\d+)")
_BLOWS: Final = (
    *("kill worker", "freeze worker", "end connections", "kill server", "kill worker"),
    *("stop worker", "freeze server", "freeze worker", "end all connections"),
)
_BLOWS_ON_ONE: Final = ("kill server", "freeze server", "kill server", "stop server")
_DRAIN: Final = 20.0


@dataclass
class Seat:
    """A place in the fleet: a server's keeps its port when another process takes it."""

    kind: str
    running: Running
    port: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


class Fleet:
    """Two servers and two workers on PostgreSQL, or one server with its worker on SQLite."""

    def __init__(self, zygote: Zygote, folder: Path, env: dict[str, str], log: Log) -> None:
        self._zygote, self._folder, self._env, self._log = zygote, folder, env, log
        self.seats: list[Seat] = []
        self.done: Counter[str] = Counter()

    async def start(self, *, is_one: bool) -> None:
        """Start all of it."""
        self._worker_inside = is_one
        kinds = ["server"] if is_one else ["server", "server", "worker", "worker"]
        for kind in kinds:
            self.seats.append(Seat(kind, await self._start(kind, 0)))
        for seat in self.seats:
            await self._ready(seat)

    @property
    def urls(self) -> list[str]:
        """Where the servers are."""
        return [f"http://127.0.0.1:{seat.port}" for seat in self.seats if seat.port]

    async def _start(self, kind: str, port: int) -> Running:
        argv = ["worker"]
        if kind == "server":
            worker = "--worker" if self._worker_inside else "--no-worker"
            argv = ["serve", "--port", str(port), worker]
        return await self._zygote.start(*argv, env=self._env)

    async def _ready(self, seat: Seat) -> None:
        told = await seat.running.said("Serving" if seat.kind == "server" else "Running turns")
        if seat.kind == "server":
            found = _ADDRESS.search(told)
            assert found, told
            seat.port = int(found[1])

    async def _replace(self, seat: Seat, number: signal.Signals) -> None:
        self._log.add("signal", kind_of=seat.kind, pid=seat.running.pid, number=int(number))
        seat.running.signal(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(seat.running.ended), _DRAIN)
        await seat.running.kill()
        seat.running = await self._start(seat.kind, seat.port)
        await self._ready(seat)

    async def deploy(self) -> None:
        """Write the next version of the agents, then restart one process after the other."""
        agents = self._folder / "agents.py"
        old = agents.read_text("utf-8")
        text = old.replace('VERSION = "A"', 'VERSION = "B"')
        assert text != old, "the agents have no version"
        new = self._folder / "agents.new"
        new.write_text(text, "utf-8")
        new.replace(agents)
        self.done["deploy"] += 1
        for seat in self.seats:
            async with seat.busy:
                await self._replace(seat, signal.SIGTERM)

    async def blow(self, drawn: random.Random, number: int, url: str) -> None:
        """The next blow; waits until what it struck serves again."""
        blows = _BLOWS_ON_ONE if self._worker_inside else _BLOWS
        what, _, where = blows[number % len(blows)].partition(" ")
        self.done[blows[number % len(blows)]] += 1
        if where.endswith("connections"):
            await self._end_connections(url, 1_000 if where.startswith("all") else 4)
            return
        seat = drawn.choice([seat for seat in self.seats if seat.kind == where])
        async with seat.busy:
            if what == "freeze":
                seat.running.signal(signal.SIGSTOP)
                # Shorter than it takes to be held for dead, or longer.
                is_short = self._worker_inside or drawn.random() < 0.5
                try:
                    await asyncio.sleep(drawn.uniform(*((0.3, 2.0) if is_short else (6.0, 9.0))))
                finally:
                    seat.running.signal(signal.SIGCONT)
            else:
                kill = what == "kill"
                await self._replace(seat, signal.SIGKILL if kill else signal.SIGTERM)

    async def _end_connections(self, url: str, most: int) -> None:
        connection = await connected(url)
        try:
            ended = await connection.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
                " order by random() limit $1",
                most,
            )
            self.done["connections"] += len(ended)
        finally:
            await connection.close()

    async def stop(self) -> list[str]:
        """Let every process end; which of them did not."""
        for seat in self.seats:
            seat.running.signal(signal.SIGTERM)
        stubborn: list[str] = []
        for seat in self.seats:
            try:
                await asyncio.wait_for(asyncio.shield(seat.running.ended), _DRAIN)
            except TimeoutError:
                stubborn.append(f"a {seat.kind} did not end within {_DRAIN:g} s of SIGTERM")
                await seat.running.kill()
        return stubborn
