"""A pooler between us and PostgreSQL that shares server connections: PgBouncer in transaction mode.

Each transaction may run on another connection of the server. So no setting outlives one: a
transaction sets what the role's own settings lack. Prepared statements are used if the pooler keeps
track of them (PgBouncer from 1.21); else each statement is parsed in the message that runs it
(ADR 21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from lango.core.ids import new_id

_UNNAMED: Final = ""
"""The name of a statement that the server forgets with the next one."""
_KEPT: Final = 200
"""Statements that a connection keeps: as many as PgBouncer does by default."""
SEARCH_PATH: Final = "search_path"

_INSPECT: Final = """
select 'statement' as name, name as setting from pg_prepared_statements where name = $1
union all
select name, case name
  when 'search_path' then '"' || replace(current_schema(), '"', '""') || '"' else setting end
from pg_settings where name = any($2::text[])
"""
"""The settings of a server connection, and whether this statement itself has a name there."""


class LocalSettings:
    """The settings that each transaction of an engine sets, as the role's own do not suffice."""

    def __init__(self, required: Mapping[str, str]) -> None:
        self._required = required
        self._missing: dict[str, str] = {}
        self.begin = "begin"
        """Begins a transaction with these settings, in one message."""

    @property
    def is_pooled(self) -> bool:
        """Whether there is a pooler."""
        return bool(self._required)

    @property
    def missing(self) -> Mapping[str, str]:
        """The settings that a server connection was found to lack, with their values."""
        return self._missing

    async def read(self, raw: Any) -> None:
        """Read a server connection's settings; let asyncpg's connection know its pooler."""
        settings = await _inspect(raw, list(self._required))
        raw.is_tracked = "statement" not in settings
        # Those of one connection are not those of all: a role may have been altered meanwhile.
        self._missing |= {
            name: value
            for name, value in self._required.items()
            if not _suffices(name, settings.get(name) or "", value)
        }
        self.begin = ";".join(
            ("begin", *(f"set local {name}={value}" for name, value in self._missing.items()))
        )

    def listen(self, engine: AsyncEngine) -> None:
        """Apply the settings to all transactions of the engine."""
        _OF_ENGINES[engine.sync_engine] = self
        event.listen(engine.sync_engine, "begin", self._apply)

    def _apply(self, connection: sa.Connection) -> None:
        if self._missing:
            calls = (sa.func.set_config(*item, True) for item in self._missing.items())
            connection.execute(sa.select(*calls))


def _suffices(name: str, value: str, required: str) -> bool:
    """Whether a server's own setting will do: the same, or a shorter timeout."""
    if value == required or name == SEARCH_PATH:
        return value == required
    return value.isdecimal() and 0 < int(value) < int(required)


_OF_ENGINES: Final[WeakKeyDictionary[Engine, LocalSettings]] = WeakKeyDictionary()
_NONE: Final = LocalSettings({})


def local_settings(engine: AsyncEngine) -> LocalSettings:
    """The settings that each transaction of an engine sets; none without a pooler."""
    return _OF_ENGINES.get(engine.sync_engine, _NONE)


async def _inspect(raw: Any, settings: Sequence[str]) -> dict[str, str]:
    """Settings of a server connection by name, and the statement's name if it was passed on.

    A pooler that keeps track of prepared statements replaces the names that clients give them.
    """
    name = new_id("stm")
    await raw.execute("begin")
    statement = await raw.prepare(_INSPECT, name=name)
    values = {row["name"]: row["setting"] for row in await statement.fetch(name, settings)}
    end = f'deallocate "{name}";commit' if "statement" in values else "commit"
    await raw.execute(end)
    return values


def pooled_class(usual: Any) -> Any:
    """An asyncpg connection class for a server connection that is shared.

    asyncpg's own names for prepared statements are those of other processes as well, and without
    names it describes each statement anew, in a round trip of its own. This one remembers what a
    statement returns, and sends the rest in one.
    """

    class PooledConnection(usual):
        def __init__(self, *arguments: Any) -> None:
            usual.__init__(self, *arguments)
            self.is_tracked = False
            self._known: dict[str, Any] = {}

        async def prepare(self, query: str, *, name: str | None = None, **options: Any) -> Any:
            if name is None:
                name = new_id("stm") if self.is_tracked else _UNNAMED
            return await usual.prepare(self, query, name=name, **options)

        async def fetch(self, query: str, *values: Any, **options: Any) -> Any:
            return await self._run(query, "fetch", *values, **options)

        async def fetchmany(self, query: str, args: Any, **options: Any) -> Any:
            return await self._run(query, "fetchmany", args, **options)

        async def executemany(self, command: str, args: Any, **options: Any) -> Any:
            return await self._run(command, "executemany", args, **options)

        async def _run(self, query: str, method: str, *values: Any, **options: Any) -> Any:
            if len(self._known) >= _KEPT:
                self._known.clear()
            statement = self._known.get(query) or await self.prepare(query)
            result = await getattr(statement, method)(*values, **options)
            self._known[query] = statement
            return result

    return PooledConnection
