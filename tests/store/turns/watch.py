"""What the statements about turns read."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from lango.store.db.leases import Lease
from lango.store.db.sqlite.driver import InlineConnection
from tests.store.turns.turn_stores import TurnStores


class Reads(NamedTuple):
    """What a statement read."""

    rows: int  # of the turns; on SQLite, steps of its virtual machine
    buffers: int  # of PostgreSQL


def _reads(plan: dict[str, Any]) -> Reads:
    """The rows that the scans of a plan read, and the buffers of all of it."""
    scans = [node for node in _nodes(plan) if node.get("Relation Name") == "turns"]
    per_loop = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    rows = sum(node["Actual Loops"] * sum(node.get(name, 0) for name in per_loop) for node in scans)
    return Reads(rows, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _steps(url: str, sql: str, parameters: Any) -> int:
    """The steps that SQLite takes, rounded to ten."""
    count = 0

    def more() -> None:
        nonlocal count
        count += 10

    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.set_progress_handler(more, 10)
        connection.execute(sql, parameters).fetchall()
    return count


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


class Watch:
    """The rows that the statements of an engine read, by the plans of the same statements."""

    def __init__(self, stores: TurnStores) -> None:
        self.stores = stores
        self.seen: list[tuple[str, Any]] = []
        self._patch = pytest.MonkeyPatch()

    async def __aenter__(self) -> "Watch":
        await self.stores.sessions.database.open()
        event.listen(sa.Engine, "before_cursor_execute", self._executed)
        fetch, fetch_locked = Lease.fetch, Lease.fetch_locked
        fetch_inline = InlineConnection.fetch

        async def fetched(lease: Lease, sql: str, *arguments: Any) -> list[Any]:
            self._note(sql, arguments)
            return await fetch(lease, sql, *arguments)

        async def locked(lease: Lease, sql: str, locking: int, *arguments: Any) -> list[Any]:
            self._note(sql, (True, *arguments))
            return await fetch_locked(lease, sql, locking, *arguments)

        def fetched_inline(connection: InlineConnection, sql: str, parameters: Any) -> list[Any]:
            self._note(sql, parameters)
            return fetch_inline(connection, sql, parameters)

        self._patch.setattr(InlineConnection, "fetch", fetched_inline)
        self._patch.setattr(Lease, "fetch", fetched)
        self._patch.setattr(Lease, "fetch_locked", locked)
        return self

    async def __aexit__(self, *_error: object) -> None:
        event.remove(sa.Engine, "before_cursor_execute", self._executed)
        self._patch.undo()

    def _executed(self, _c: Any, _u: Any, sql: str, parameters: Any, *_rest: Any) -> None:
        self._note(sql, parameters)

    def _note(self, sql: str, parameters: Any) -> None:
        if " turns" in sql and not sql.startswith("INSERT"):
            self.seen.append((sql, parameters))

    async def reads(self) -> Reads:
        """What the only statement reads when it is done again."""
        ((sql, parameters),) = self.seen
        if self.stores.url.startswith("sqlite"):
            return Reads(_steps(self.stores.url, sql, parameters), 0)
        engine = await self.stores.sessions.database.open()
        async with engine.connect() as connection:
            explain = f"explain (analyze, buffers, format json) {sql}"
            plan = (await connection.exec_driver_sql(explain, parameters)).scalar_one()
        return _reads((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])

    async def plans(self) -> list[str]:
        """How PostgreSQL would do each again."""
        found: list[str] = []
        engine = await self.stores.sessions.database.open()
        for sql, parameters in self.seen:
            async with engine.connect() as connection:
                rows = await connection.exec_driver_sql(f"explain {sql}", parameters)
                found.append("\n".join(row[0] for row in rows))
        return found
