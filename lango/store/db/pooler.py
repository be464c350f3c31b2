"""A pooler between us and PostgreSQL that shares server connections: PgBouncer in transaction mode.

Each transaction may run on another connection of the server. So no setting and no prepared
statement outlives one: a transaction sets what the role's own settings lack, and each statement is
parsed in the message that runs it (ADR 21).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

UNNAMED: Final = ""
"""The name of a statement that the server forgets with the next one."""
_KEPT: Final = 500
"""Statements whose types a connection remembers."""
SEARCH_PATH: Final = "search_path"

_FOUND: Final = """
select name, case when name = 'search_path' then coalesce(quote_ident(current_schema()), '')
  else setting end
from pg_settings where name = any($1::text[])
"""


class LocalSettings:
    """The settings that each transaction of an engine sets, as the role's own do not suffice."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self._wanted = wanted
        self._missing: dict[str, str] = {}
        self.begin = "begin"
        """Begins a transaction with these settings, in one message."""

    @property
    def missing(self) -> Mapping[str, str]:
        """The settings that a server connection was found to lack, with their values."""
        return self._missing

    async def read(self, raw: Any) -> None:
        """Read the settings of a server connection through asyncpg's connection."""
        found = {row[0]: row[1] for row in await raw.fetch(_FOUND, list(self._wanted))}
        # Those of one connection are not those of all: a role may have been altered meanwhile.
        self._missing |= {
            name: value
            for name, value in self._wanted.items()
            if not _suffices(name, found.get(name, ""), value)
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


def _suffices(name: str, found: str, wanted: str) -> bool:
    """Whether a server's own setting will do: the same, or a shorter timeout."""
    if found == wanted or name == SEARCH_PATH:
        return found == wanted
    return found.isdecimal() and 0 < int(found) < int(wanted)


_OF_ENGINES: Final[WeakKeyDictionary[Engine, LocalSettings]] = WeakKeyDictionary()
_NONE: Final = LocalSettings({})


def local_settings(engine: AsyncEngine) -> LocalSettings:
    """The settings that each transaction of an engine sets; none without a pooler."""
    return _OF_ENGINES.get(engine.sync_engine, _NONE)


def pooled_class(usual: Any) -> Any:
    """An asyncpg connection class whose statements leave nothing on the server connection.

    asyncpg's own way without a cache is to describe each statement anew, in a round trip of its
    own. This one remembers the types of each statement and sends the rest in one.
    """

    class PooledConnection(usual):
        def __init__(self, *arguments: Any) -> None:
            usual.__init__(self, *arguments)
            self._described: dict[str, Any] = {}

        async def fetch(self, query: str, *values: Any, **options: Any) -> Any:
            return await (await self._statement(query)).fetch(*values, **options)

        async def executemany(self, command: str, args: Any, **options: Any) -> None:
            await (await self._statement(command)).executemany(args, **options)

        async def _statement(self, query: str) -> Any:
            known = self._described.get(query)
            if known is None:
                if len(self._described) >= _KEPT:
                    self._described.clear()
                known = self._described[query] = await self.prepare(query, name=UNNAMED)
            return known

    return PooledConnection
