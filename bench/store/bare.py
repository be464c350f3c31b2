"""Bare asyncpg: the statements of bare.sql, and nothing around them.

One contender is the least work for the database. The other makes the promises of lango's append
as well: what it costs beyond the first is the price of these promises, in any program.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self
from uuid import uuid4

from bench.events import invocation_id, text, tokens
from bench.pg import connect, open_pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.pg import Pool
    from bench.store.contenders import Fill, Writer


def _sections() -> dict[str, str]:
    """bare.sql by section name."""
    parts = Path(__file__).with_name("bare.sql").read_text().split("-- name: ")[1:]
    return {name: sql for name, _, sql in (part.partition("\n") for part in parts)}


SQL: Final = _sections()
ROWS_LOADED: Final = 80


class BareWriter:
    """Appends to one session, sending the version it knows."""

    def __init__(self, pool: Pool, session: int, version: int) -> None:
        self._pool = pool
        self._session = session
        self._version = version
        self._content = ""
        self._tokens = 0

    def stage(self, count: int, size: int) -> None:  # noqa: ARG002 (the content is all there is)
        """Make the content of the next appends."""
        self._content = text(size)
        self._tokens = tokens(size)

    async def append(self) -> None:
        """One statement, one round trip."""
        async with self._pool.acquire() as connection:
            self._version = await connection.fetchval(
                SQL["append"], self._session, self._version, "user", self._content, None,
                self._tokens,
            )  # fmt: skip


class Bare:
    """The yardstick."""

    name = "bare asyncpg"
    schema: ClassVar[str] = "bare"
    tables: ClassVar[Sequence[str]] = ("tables",)

    @property
    def message_table(self) -> str:
        """Of its own schema."""
        return f"{self.schema}.b_message"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect to a database whose tables are there."""
        return cls(await open_pool(url, cls.schema))

    @classmethod
    async def prepare(cls, url: str) -> None:
        """Create the tables."""
        connection = await connect(url, cls.schema)
        await connection.execute(f"create schema {cls.schema}")
        for section in cls.tables:
            await connection.execute(SQL[section])
        await connection.close()

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()

    async def sessions(self, count: int, fill: Fill | None = None) -> Sequence[str]:
        """New sessions, by id."""
        async with self._pool.acquire() as connection:
            made = [str(row["id"]) for row in await connection.fetch(SQL["create"], count)]
        if fill:
            await self.extend(made, 1, fill.messages, fill.size)
            await self.advance(made, fill.messages, fill.size)
        return made

    async def extend(self, sessions: Sequence[str], first: int, last: int, size: int) -> None:
        """Put messages number `first` to `last` into each of these sessions, in bulk."""
        keys = [int(session) for session in sessions]
        async with self._pool.acquire() as connection:
            await connection.execute(SQL["fill"], keys, first, last, text(size), tokens(size))

    async def advance(self, sessions: Sequence[str], messages: int, size: int) -> None:
        """Update the message counts of the sessions."""
        keys = [int(session) for session in sessions]
        async with self._pool.acquire() as connection:
            await connection.execute(SQL["advance"], keys, messages, tokens(size))

    async def writer(self, session: str) -> Writer:
        """A writer that knows the session's version."""
        async with self._pool.acquire() as connection:
            version = await connection.fetchval(
                "select version from b_session where id = $1", int(session)
            )
        return BareWriter(self._pool, int(session), int(version))

    async def load(self, session: str) -> int:
        """The newest rows by key."""
        async with self._pool.acquire() as connection:
            return len(await connection.fetch(SQL["load"], int(session)))


class PromisedWriter:
    """Appends to one session, of which it knows the epoch."""

    def __init__(self, pool: Pool, session: int) -> None:
        self._pool = pool
        self._session = session
        self._content = ""
        self._tokens = 0
        self._ids: list[str] = []

    def stage(self, count: int, size: int) -> None:
        """Make the content and the ids of the next appends."""
        self._content = text(size)
        self._tokens = tokens(size)
        self._ids = [str(uuid4()) for _ in range(count)]
        self._turn = invocation_id()

    async def append(self) -> None:
        """One statement, one round trip; a new event."""
        async with self._pool.acquire() as connection:
            seq = await connection.fetchval(
                SQL["promised append"], self._session, 0, self._ids.pop(), self._turn, "user",
                self._content, None, self._tokens, "{}",
            )  # fmt: skip
        if seq is None:
            raise LookupError("The event was not stored.")


class Promised(Bare):
    """The least for an append that is fenced, idempotent, numbered, and merges state."""

    name = "bare, with the same promises"
    schema = "promised"
    tables = ("tables", "promises")

    async def writer(self, session: str) -> Writer:
        """A writer of the first epoch."""
        return PromisedWriter(self._pool, int(session))
