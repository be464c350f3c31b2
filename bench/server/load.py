"""Clients that read turns as they are streamed, of all servers in the same rounds."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.rounds import Sample
from bench.server.http_client import Reply, ask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from bench.server.contenders import Contender

_MAKERS: Final = 16  # sessions made at a time, before a round
_LOOK_EVERY: Final = 0.1


@dataclass(frozen=True, slots=True)
class Round:
    """The measurements of one round of one server; times in seconds."""

    per_turn: Sample
    database_cpu: float  # per turn
    first_byte: Sequence[float]
    first_word: Sequence[float]
    failed: int  # turns, which no other figure includes


async def new_sessions(contender: Contender, count: int) -> list[str]:
    """New sessions, by id; created a few at a time."""
    makers = asyncio.Semaphore(_MAKERS)

    async def make() -> str:
        async with makers:
            return await contender.session()

    return await asyncio.gather(*(make() for _ in range(count)))


class Rounds:
    """Rounds of turns at one server, each turn in a session of its own."""

    def __init__(self, contender: Contender, clients: int, each: int, words: int) -> None:
        self.contender = contender
        self.clients = clients
        self.each = each
        self.words = words
        self.done: list[Round] = []

    @property
    def turns(self) -> int:
        """Of a round."""
        return self.clients * self.each

    async def run(self) -> Sample:
        """One round."""
        sessions = await new_sessions(self.contender, self.turns)
        async with _database_cpu(self.contender) as used:
            cpu_before, began = self.contender.server.cpu, time.monotonic()
            queues = [sessions[number :: self.clients] for number in range(self.clients)]
            replies_by_client = await asyncio.gather(*map(self._client, queues))
            seconds = time.monotonic() - began
        replies = [reply for each in replies_by_client for reply in each]
        good = [reply for reply in replies if self.contender.api.end in reply.raw]
        if not good:
            raise ValueError(f"{self.contender.name}: {replies[0].raw.decode()}")
        sample = Sample(seconds / len(good), (self.contender.server.cpu - cpu_before) / len(good))
        self.done.append(
            Round(
                sample,
                sum(used.values()) / len(good),
                [reply.first_byte for reply in good],
                [reply.first_mark for reply in good if reply.first_mark is not None],
                len(replies) - len(good),
            )
        )
        return sample

    async def _client(self, sessions: Sequence[str]) -> list[Reply]:
        api, base = self.contender.api, self.contender.server.base
        return [
            await ask(base, api.turn(session, str(self.words)), api.word) for session in sessions
        ]


@asynccontextmanager
async def _database_cpu(contender: Contender) -> AsyncGenerator[dict[int, float]]:
    """CPU seconds of the database's processes meanwhile, by process.

    They are looked at again and again, for a server's pool may end some: of those a little is lost.
    """
    before = await contender.database_cpu()
    used: dict[int, float] = {}

    async def look() -> None:
        for pid, seconds in (await contender.database_cpu()).items():
            used[pid] = seconds - before.get(pid, 0.0)

    async def watch() -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            await look()

    watching = asyncio.create_task(watch())
    try:
        yield used
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    await look()
