"""G17: clients of `lango serve` that lose their streams anywhere, and reconnect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import httpx

from faults.harness import Guarantee, Outcome, Run, new_tenant
from faults.server.processes import Project, Server, project, servers
from faults.server.sse import ConnectionFrames, FrameReader, check_complete_log, frames, whole_log
from faults.turns.clients import until_over
from faults.turns.processes import Crew
from faults.turns.workspace import TurnProcess, temporary_workspace, turn_process

READERS: Final = 4
WORKERS: Final = 2
WORDS: Final = 80
DELAY: Final = 0.02
DEAD_AFTER: Final = 3.0  # on a busy machine, living workers must not count as dead
CUTS_PER_KILL: Final = 15
_ON_POSTGRES: Final = 0.75  # of the cuts: there are two servers to choose from
_KILLS_PER_SERVER: Final = 4  # where workers are separate processes
_SPARED: Final = 3  # attempts, after which a turn gets no more kills: five would fail it
_MOST_FRAMES: Final = 12
_MOST_BYTES: Final = 1_800
_STREAM: Final = "text/event-stream"
_PATIENCE: Final = 600.0
"""Seconds in which a turn must end despite all restarts; a limit, not a measurement."""


@dataclass
class Tally:
    """The counts of all readers together."""

    cuts: int = 0
    torn: int = 0  # cuts in the middle of a frame
    lost: int = 0  # connections lost by a server's death
    turns: int = 0
    resets: int = 0
    parts: int = 0  # frames that came before their text was in the log
    wrong: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Cut:
    """The point at which a client disconnects: after some frames, or some bytes."""

    frames: int
    bytes: int

    @classmethod
    def drawn(cls, drawn: random.Random) -> Cut:
        if drawn.random() < 0.5:
            return cls(drawn.randint(1, _MOST_FRAMES), 1 << 30)
        return cls(1 << 30, drawn.randint(0, _MOST_BYTES))


class Reader:
    """Submits turns over HTTP and reads each to its end, over as many connections as needed."""

    def __init__(self, doors: Sequence[Server], tally: Tally, drawn: random.Random) -> None:
        self._doors = doors
        self._clients = {door.port: door.client() for door in doors}
        self._tally, self._drawn = tally, drawn
        self._app = doors[0].project.workspace.app

    async def read(self, cuts: int) -> None:
        """Run turns until all readers together have disconnected `cuts` times."""
        async with AsyncExitStack() as ending:
            for client in self._clients.values():
                await ending.enter_async_context(client)
            while self._tally.cuts < cuts:
                try:
                    async with asyncio.timeout(_PATIENCE):
                        await self._talk()
                except (AssertionError, TimeoutError) as wrong:
                    self._tally.wrong.append(f"turn {self._tally.turns}: {wrong!r}")
                    return

    async def _talk(self) -> None:
        self._tally.turns += 1
        word = uuid4().hex[:6]
        text = " ".join(f"{word}-{number}" for number in range(WORDS))
        session = (await self._request("POST", "/v1/sessions", {"app": self._app})).json()["id"]
        path = f"/v1/sessions/{session}/turns"
        message = {"message": f'call step {{"name": "{word}"}} then {text}'}
        thoughts = self._drawn.random() < 0.5
        # The response may be lost: the same idempotency key returns it again.
        sent = {"json": message, "headers": {"Accept": _STREAM, "Idempotency-Key": word}}
        query = f"?thoughts={str(thoughts).lower()}"
        first, turn = ConnectionFrames(0, thoughts=thoughts), ""
        while not turn:
            turn = await self._read_connection(first, "POST", path + query, sent)
        connections = [first]
        while not connections[-1].saw_the_end:
            connections.append(await self._come_back(turn, connections, thoughts=thoughts))
        await self._check(turn, connections, f"You said: {text}")

    async def _come_back(
        self, turn: str, before: list[ConnectionFrames], *, thoughts: bool
    ) -> ConnectionFrames:
        """Resume at the reader's position, or at any earlier one, as a reloaded page would."""
        newest = max((connection.last for connection in before), key=lambda each: each.number)
        newest = before[-1].last if before[-1].last.number >= newest.number else newest
        forgets = self._drawn.random() < 0.25
        after = self._drawn.randint(0, newest.number) if forgets else newest
        connection = ConnectionFrames(after, thoughts=thoughts)
        path = f"/v1/turns/{turn}/events?thoughts={str(thoughts).lower()}"
        sent: dict[str, Any] = {}
        if self._drawn.random() < 0.5:
            sent["headers"] = {"Last-Event-ID": str(connection.start)}
        else:
            path += f"&after={connection.start}"
        await self._read_connection(connection, "GET", path, sent)
        return connection

    async def _read_connection(
        self, connection: ConnectionFrames, method: str, path: str, sent: dict[str, Any]
    ) -> str:
        """Read one connection until it is cut; return the turn's id, if the server sent it."""
        cut, turn = Cut.drawn(self._drawn), ""
        client = await self._client()
        try:
            async with client.stream(method, path, **sent) as response:
                assert response.status_code == 200, f"{path}: {await response.aread()!r}"
                turn = response.headers.get("location", "").rpartition("/")[2]
                await self._read_up_to(cut, response, connection)
        except httpx.TransportError:
            self._tally.lost += 1
        return turn

    async def _read_up_to(
        self, cut: Cut, response: httpx.Response, connection: ConnectionFrames
    ) -> None:
        reader, room = FrameReader(), cut.bytes
        async for chunk in response.aiter_bytes():
            taken = chunk[:room]
            room -= len(taken)
            for frame in reader.feed(taken):
                connection.frames.append(frame)
                if connection.saw_the_end:
                    return
                if len(connection.frames) == cut.frames:
                    self._tally.cuts += 1
                    return
            if not room:
                self._tally.cuts += 1
                self._tally.torn += reader.is_torn
                return

    async def _check(self, turn: str, connections: list[ConnectionFrames], text: str) -> None:
        """Check each connection against the log; a reader at its end gets no more events."""
        log = await self._read_whole_log(turn)
        self._tally.resets += check_complete_log(log, text)
        for connection in connections:
            connection.check(log)
            self._tally.parts += connection.parts
        over = await self._request("GET", f"/v1/turns/{turn}/events?after={log[-1].id}")
        assert over.status_code == 204, f"behind the end there is {over.text}"

    async def _read_whole_log(self, turn: str) -> list[Any]:
        """Read a whole log over one connection."""
        while True:
            client = await self._client()
            with suppress(httpx.TransportError):
                async with client.stream("GET", f"/v1/turns/{turn}/events?thoughts=1") as response:
                    return whole_log([frame async for frame in frames(response)])

    async def _request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request without a stream until it gets a response."""
        key = {"Idempotency-Key": uuid4().hex}
        while True:
            client = await self._client()
            with suppress(httpx.TransportError):
                response = await client.request(method, path, json=body, headers=key)
                assert response.is_success, f"{path}: {response.text}"
                return response

    async def _client(self) -> httpx.AsyncClient:
        """A client for any server that seems up, or else for the next one."""
        up = [door for door in self._doors if door.up.is_set()]
        door = self._drawn.choice(up or self._doors)
        await door.up.wait()
        return self._clients[door.port]


class Killer:
    """Kills workers and servers at random times."""

    def __init__(self, process: TurnProcess, doors: Sequence[Server], crew: Crew | None) -> None:
        self._process, self._doors, self._crew = process, doors, crew
        self.workers = self.servers = 0

    async def kill(self, most: int, drawn: random.Random) -> None:
        """Kill processes until cancelled, or until `most` were killed."""
        while self.workers + self.servers < most:
            await asyncio.sleep(drawn.uniform(0.3, 2.0))
            await until_over(self._process, _SPARED)
            kills = self.workers + self.servers
            if self._crew is not None and kills % _KILLS_PER_SERVER != 1:
                self.workers += 1
                await self._crew.replace(drawn.randrange(WORKERS))
            else:
                self.servers += 1
                door = drawn.choice(self._doors)
                await door.kill()
                await door.start()


async def _run_on(
    served: Project, count: int, seed: int, outcome: Outcome, *, is_fleet: bool
) -> None:
    """Make `count` cuts on a fleet of servers and workers, or on one server with its worker."""
    drawn, tally = random.Random(seed), Tally()
    async with (
        turn_process(served.workspace, dead_after=DEAD_AFTER) as process,
        servers(served, 2 if is_fleet else 1, with_worker=not is_fleet) as doors,
        AsyncExitStack() as ending,
    ):
        crew = (
            Crew(served.workspace, WORKERS, delay=DELAY, dead_after=DEAD_AFTER)
            if is_fleet
            else None
        )
        if crew is not None:
            await ending.enter_async_context(crew)
        killer = Killer(process, doors, crew)
        killing = asyncio.create_task(killer.kill(max(count // CUTS_PER_KILL, 1), drawn))
        readers = [Reader(doors, tally, random.Random(drawn.random())) for _ in range(READERS)]
        await asyncio.gather(*(each.read(count) for each in readers))
        killing.cancel()
        with suppress(asyncio.CancelledError):
            await killing
    for wrong in tally.wrong:
        outcome.fail(wrong)
    outcome.note(
        f"{tally.cuts} cuts ({tally.torn} within a frame) and {tally.lost} connections lost over "
        f"{tally.turns} turns on {len(doors)} server{'s' * is_fleet}, {killer.workers} workers "
        f"and {killer.servers} servers killed, {tally.resets} messages begun anew"
    )
    if tally.parts:
        outcome.note(f"{tally.parts} parts of text read before they were in the log")


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    cuts = {True: round(run.count * _ON_POSTGRES)}
    cuts[False] = run.count - cuts[True]
    for is_fleet, count in cuts.items():
        url = run.databases.postgres if is_fleet else run.databases.sqlite
        with temporary_workspace(url) as workspace:
            made = await project(workspace, new_tenant(), delay=DELAY)
            await _run_on(made, count, drawn.randrange(2**32), outcome, is_fleet=is_fleet)
    return outcome


G17: Final = Guarantee(
    "G17",
    "streams over HTTP cut at any byte while workers and servers die: no gap, no repeat, one end",
    full=1_000,
    ci=100,
    run=lambda run: asyncio.run(_trial(run)),
)
