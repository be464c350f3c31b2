"""Reads the tables of ADK's own session services, a batch at a time, and never writes.

DatabaseSessionService (its schema 1, JSON) on PostgreSQL and SQLite, and SqliteSessionService's
file, which `adk web` keeps beside an agent. They have the same columns; the file has times as
numbers, and breaks ties by the order of insertion instead of the id.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lango.core.values import JsonObject, json_value
from lango.errors import ImportSourceError, UnsupportedUrlError
from lango.store.db.connection_errors import in_words, require_file
from lango.store.db.engines import close_engine, create_engine, is_sqlite, store_url
from lango.store.schema.migrate import VERSION_TABLE

BATCH: Final = 100
"""Rows in memory at once: an event may hold megabytes."""

# ADK's names. A test creates a database with each of ADK's services and reads it.
METADATA_TABLE: Final = "adk_internal_metadata"
SCHEMA_VERSION_KEY: Final = "schema_version"
SCHEMA_VERSION: Final = "1"
PICKLE_COLUMN: Final = "actions"

_sessions: Final = sa.table(
    "sessions",
    *map(sa.column, ("app_name", "user_id", "id", "state", "create_time", "update_time")),
)
_events: Final = sa.table(
    "events",
    *map(
        sa.column,
        ("id", "app_name", "user_id", "session_id", "invocation_id", "timestamp", "event_data"),
    ),
)
_app_states: Final = sa.table("app_states", *map(sa.column, ("app_name", "state")))
_user_states: Final = sa.table("user_states", *map(sa.column, ("app_name", "user_id", "state")))
_metadata: Final = sa.table(METADATA_TABLE, *map(sa.column, ("key", "value")))
_TABLES: Final = (_sessions, _events, _app_states, _user_states)


@dataclass(frozen=True, slots=True)
class SourceSession:
    """One ADK session, without its events."""

    app_name: str
    user_id: str
    id: str
    state: JsonObject
    created: float
    updated: float


class AdkSource:
    """A database that one of ADK's session services wrote: a URL, or the path of a SQLite file."""

    def __init__(self, url: str) -> None:
        self._source_url = _as_url(url)
        self.url = store_url(self._source_url)
        self._engine: AsyncEngine | None = None
        self._tie_break: sa.ColumnElement[Any] = _events.c.id

    async def open(self) -> None:
        """Connect, and refuse tables that are not ADK's or have its old pickle format."""
        with in_words(self._source_url):
            require_file(self._source_url)
            engine = _read_only_engine(self.url)
            try:
                async with engine.connect() as connection:
                    by_insertion = await connection.run_sync(self._recognise)
            except BaseException:
                await close_engine(engine)
                raise
        if by_insertion:
            self._tie_break = sa.literal_column("rowid")
        self._engine = engine

    async def close(self) -> None:
        """Close the connections."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await close_engine(engine)

    async def __aenter__(self) -> AdkSource:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _recognise(self, connection: sa.Connection) -> bool:
        """Whether ties are broken by insertion; ImportSourceError if this is not ADK's."""
        inspector = sa.inspect(connection)
        names = set(inspector.get_table_names())
        if VERSION_TABLE in names:
            raise ImportSourceError("The source is a lango database already.")
        missing = [table.name for table in _TABLES if table.name not in names]
        if missing:
            raise ImportSourceError(
                f"The source holds no ADK sessions: it has no table {', '.join(missing)}."
            )
        version = _schema_version(connection) if METADATA_TABLE in names else None
        columns = {column["name"] for column in inspector.get_columns("events")}
        if version == "0" or (PICKLE_COLUMN in columns and "event_data" not in columns):
            raise ImportSourceError(self._how_to_upgrade())
        if version not in (None, SCHEMA_VERSION):
            raise ImportSourceError(
                f"The source has ADK's schema {version}; this lango knows {SCHEMA_VERSION}."
            )
        for table in _TABLES:
            _require_columns(inspector, table)
        return version is None and is_sqlite(self.url)

    def _how_to_upgrade(self) -> str:
        source = self.url.set(drivername=self.url.get_backend_name()).render_as_string()
        return (
            "The source has ADK's schema 0, which keeps pickled objects; lango reads no pickle. "
            f"Let ADK upgrade it first: adk migrate session --source_db_url={source} "
            "--dest_db_url=sqlite:///adk-v1.db, then import sqlite:///adk-v1.db."
        )

    async def count(self) -> tuple[int, int]:
        """How many sessions and events there are."""
        async with self._connected().connect() as connection:
            sessions = await connection.scalar(sa.select(sa.func.count()).select_from(_sessions))
            events = await connection.scalar(sa.select(sa.func.count()).select_from(_events))
        return sessions or 0, events or 0

    async def count_sessions(self, app_name: str) -> int:
        """How many sessions an app has."""
        counted = sa.select(sa.func.count()).where(_sessions.c.app_name == app_name)
        async with self._connected().connect() as connection:
            return await connection.scalar(counted) or 0

    async def sessions(self) -> AsyncGenerator[SourceSession]:
        """Every session, in the order of the key; no transaction stays open in between."""
        key = (_sessions.c.app_name, _sessions.c.user_id, _sessions.c.id)
        page = sa.select(
            *key, _text(_sessions.c.state), _sessions.c.create_time, _sessions.c.update_time
        )
        page = page.order_by(*key).limit(BATCH)
        last: tuple[str, str, str] | None = None
        while True:
            after = page if last is None else page.where(sa.tuple_(*key) > sa.tuple_(*last))
            async with self._connected().connect() as connection:
                rows = (await connection.execute(after)).all()
            for app_name, user_id, id_, state, created, updated in rows:
                yield SourceSession(
                    app_name,
                    user_id,
                    id_,
                    _json_object(state, f"the state of session {id_}"),
                    _seconds(created),
                    _seconds(updated),
                )
            if len(rows) < BATCH:
                return
            last = (rows[-1][0], rows[-1][1], rows[-1][2])

    async def event_batches(self, session: SourceSession) -> AsyncGenerator[list[JsonObject]]:
        """A session's events as ADK's service reads them, in its order."""
        statement = (
            sa.select(
                _events.c.id,
                _events.c.invocation_id,
                _events.c.timestamp,
                _text(_events.c.event_data),
            )
            .where(
                _events.c.app_name == session.app_name,
                _events.c.user_id == session.user_id,
                _events.c.session_id == session.id,
            )
            .order_by(_events.c.timestamp, self._tie_break)
        )
        async with aclosing(self._batches(statement)) as batches:
            async for rows in batches:
                yield [_event(*row) for row in rows]

    async def app_states(self) -> AsyncGenerator[tuple[str, JsonObject]]:
        """Every app's state."""
        states = sa.select(_app_states.c.app_name, _text(_app_states.c.state))
        ordered = states.order_by(_app_states.c.app_name)
        async with aclosing(self._batches(ordered)) as batches:
            async for rows in batches:
                for app_name, state in rows:
                    yield app_name, _json_object(state, f"the state of app {app_name}")

    async def user_states(self) -> AsyncGenerator[tuple[str, str, JsonObject]]:
        """Every user's state, in every app."""
        key = (_user_states.c.app_name, _user_states.c.user_id)
        states = sa.select(*key, _text(_user_states.c.state)).order_by(*key)
        async with aclosing(self._batches(states)) as batches:
            async for rows in batches:
                for app_name, user_id, state in rows:
                    yield app_name, user_id, _json_object(state, f"the state of user {user_id}")

    async def _batches(
        self, statement: sa.Select[*tuple[Any, ...]]
    ) -> AsyncGenerator[list[tuple[Any, ...]]]:
        """The rows of one statement, streamed."""
        async with self._connected().connect() as connection:
            rows = await connection.stream(statement.execution_options(yield_per=BATCH))
            async for batch in rows.partitions():
                yield [tuple(row) for row in batch]

    def _connected(self) -> AsyncEngine:
        if self._engine is None:
            raise ImportSourceError("The source is not open.")
        return self._engine


def _as_url(source: str) -> str:
    """A path or URL as a URL; one of PostgreSQL without its driver."""
    scheme, separator, address = source.partition("://")
    if not separator:
        if not source:
            raise UnsupportedUrlError
        return f"sqlite:///{Path(source).resolve()}"
    return f"postgresql://{address}" if scheme.startswith("postgresql+") else source


def _read_only_engine(url: sa.URL) -> AsyncEngine:
    """An engine that cannot change the source."""
    if is_sqlite(url):
        file = Path(url.database or "").resolve().as_uri()
        url = url.set(database=file, query={"mode": "ro", "uri": "true"})
        return create_async_engine(url, hide_parameters=True)
    return create_engine(url, statement_timeout=0).execution_options(postgresql_readonly=True)


def _schema_version(connection: sa.Connection) -> str:
    statement = sa.select(_metadata.c.value).where(_metadata.c.key == SCHEMA_VERSION_KEY)
    return str(connection.scalar(statement))


def _require_columns(inspector: sa.Inspector, table: sa.TableClause) -> None:
    names = {column["name"] for column in inspector.get_columns(table.name)}
    missing = [column.name for column in table.columns if column.name not in names]
    if missing:
        raise ImportSourceError(
            f"The source's table {table.name} is not ADK's: it has no {', '.join(missing)}."
        )


def _text(column: sa.ColumnClause[Any]) -> sa.ColumnElement[str]:
    """JSON as text, whatever the type of the column."""
    return sa.cast(column, sa.Text)


def _event(id_: str, invocation_id: str, timestamp: Any, data: str | None) -> JsonObject:
    """An event as ADK assembles it: the payload has the exact time, the columns the ids."""
    event = _json_object(data, f"event {id_}") if data is not None else {}
    return {"timestamp": _seconds(timestamp)} | event | {"id": id_, "invocation_id": invocation_id}


def _json_object(text: str | None, subject: str) -> JsonObject:
    try:
        value: Any = json_value(text or "")
    except ValueError as error:
        raise ImportSourceError(f"In the source, {subject} is not JSON.") from error
    if not isinstance(value, dict):
        raise ImportSourceError(f"In the source, {subject} is not a JSON object.")
    return cast(JsonObject, value)


def _seconds(time: Any) -> float:
    """A time of ADK's in any of its forms: UTC without a zone, text of that, or a number."""
    if isinstance(time, (int, float)):
        return float(time)
    moment = datetime.fromisoformat(time) if isinstance(time, str) else cast(datetime, time)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
