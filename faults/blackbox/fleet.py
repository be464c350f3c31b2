"""The servers and workers of a project, and the faults injected into them."""

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
class FleetMember:
    """One member of the fleet: when a server's process is replaced, the new one keeps its port."""

    kind: str
    running: Running
    port: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


class Fleet:
    """Two servers and two workers on PostgreSQL, or one server with its worker on SQLite."""

    def __init__(self, zygote: Zygote, folder: Path, env: dict[str, str], log: Log) -> None:
        self._zygote, self._folder, self._env, self._log = zygote, folder, env, log
        self.members: list[FleetMember] = []
        self.done: Counter[str] = Counter()

    async def start(self, *, is_one: bool) -> None:
        """Start all members, and wait until they are ready."""
        self._worker_inside = is_one
        kinds = ["server"] if is_one else ["server", "server", "worker", "worker"]
        for kind in kinds:
            self.members.append(FleetMember(kind, await self._start(kind, 0)))
        for member in self.members:
            await self._ready(member)

    @property
    def urls(self) -> list[str]:
        """The URLs of the servers."""
        return [f"http://127.0.0.1:{member.port}" for member in self.members if member.port]

    async def _start(self, kind: str, port: int) -> Running:
        argv = ["worker"]
        if kind == "server":
            worker = "--worker" if self._worker_inside else "--no-worker"
            argv = ["serve", "--port", str(port), worker]
        return await self._zygote.start(*argv, env=self._env)

    async def _ready(self, member: FleetMember) -> None:
        log_text = await member.running.wait_for_log(
            "Serving" if member.kind == "server" else "Running turns"
        )
        if member.kind == "server":
            found = _ADDRESS.search(log_text)
            assert found, log_text
            member.port = int(found[1])

    async def _replace(self, member: FleetMember, number: signal.Signals) -> None:
        self._log.add("signal", kind_of=member.kind, pid=member.running.pid, number=int(number))
        member.running.signal(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(member.running.ended), _DRAIN)
        await member.running.kill()
        member.running = await self._start(member.kind, member.port)
        await self._ready(member)

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
        for member in self.members:
            async with member.busy:
                await self._replace(member, signal.SIGTERM)

    async def inject_fault(self, drawn: random.Random, number: int, url: str) -> None:
        """Inject the next fault, and wait until the member serves again."""
        blows = _BLOWS_ON_ONE if self._worker_inside else _BLOWS
        what, _, where = blows[number % len(blows)].partition(" ")
        self.done[blows[number % len(blows)]] += 1
        if where.endswith("connections"):
            await self._end_connections(url, 1_000 if where.startswith("all") else 4)
            return
        member = drawn.choice([member for member in self.members if member.kind == where])
        async with member.busy:
            if what == "freeze":
                member.running.signal(signal.SIGSTOP)
                # Shorter or longer than the time after which it counts as dead.
                is_short = self._worker_inside or drawn.random() < 0.5
                try:
                    await asyncio.sleep(drawn.uniform(*((0.3, 2.0) if is_short else (6.0, 9.0))))
                finally:
                    member.running.signal(signal.SIGCONT)
            else:
                kill = what == "kill"
                await self._replace(member, signal.SIGKILL if kill else signal.SIGTERM)

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
        """Send SIGTERM to all; return those that did not end."""
        for member in self.members:
            member.running.signal(signal.SIGTERM)
        stubborn: list[str] = []
        for member in self.members:
            try:
                await asyncio.wait_for(asyncio.shield(member.running.ended), _DRAIN)
            except TimeoutError:
                stubborn.append(f"a {member.kind} did not end within {_DRAIN:g} s of SIGTERM")
                await member.running.kill()
        return stubborn
