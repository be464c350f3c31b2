"""A session as JSON Lines: all that is needed to restore it in another database.

The lines, each an object with its `kind`: the header `lango.session` (the session's row), `state`
(of the user and the app), `message` and `change` (its entries, in order, undone ones too),
`artifact` with its `chunk`s of base64, then the same from `child` on for each session of an agent
that a tool ran, and `end`, with the number and the SHA-256 of the lines before it. Rows are read
page by page, so a session of any length takes the same memory. Entries that are appended during
the export are not part of it.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import JsonObject, json_text
from lango.store.db.database import Database
from lango.store.files.rows import ARTIFACT, EVENT_DATA, of_key, read_chunk
from lango.store.schema.tables import artifacts, messages, sessions, state_changes
from lango.store.sessions.append import missing
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.sessions.load import key_is, read_states

HEADER: Final = "lango.session"
CHILD: Final = "child"
STATE: Final = "state"
MESSAGE: Final = "message"
CHANGE: Final = "change"
ARTIFACT_LINE: Final = "artifact"
CHUNK: Final = "chunk"
END: Final = "end"
VERSION: Final = 1
PAGE: Final = 100
"""Rows read at a time: one may hold 256 KiB of a tool's output."""

Watch = Callable[[int], None]
"""Called with the number of entries done since the last call."""


def columns(table: sa.Table, *left_out: str) -> dict[str, sa.Column[Any]]:
    """The columns of a table that an export keeps, by name."""
    return {column.name: column for column in table.c if column.name not in left_out}


# The header names app and user once; tenant, keys, epoch and owner mean nothing elsewhere.
SESSION_COLUMNS: Final = columns(
    sessions, "pk", "tenant", "app_name", "user_id", "parent_pk", "epoch", "owner"
)
MESSAGE_COLUMNS: Final = columns(messages, "session_pk")
CHANGE_COLUMNS: Final = columns(state_changes, "session_pk")
ARTIFACT_COLUMNS: Final = columns(artifacts, "pk", "tenant", "app_name", "user_id", "session_id")


@dataclass(frozen=True, slots=True)
class _Part:
    """A session, or a child of it, as it was when the export began."""

    pk: int
    key: SessionKey
    last_seq: int
    last_artifact: int
    row: JsonObject


@dataclass(frozen=True, slots=True)
class SessionExport:
    """An existing session, ready to be exported line by line."""

    database: Database
    parts: tuple[_Part, ...]  # the session, and its children
    app_state: JsonObject
    user_state: JsonObject

    @property
    def entries(self) -> int:
        """The number of messages and state changes."""
        return sum(part.last_seq for part in self.parts)

    async def lines(self, watch: Watch | None = None) -> AsyncGenerator[bytes]:
        """The export; SessionNotFoundError if the session is deleted meanwhile."""
        told, hashed = 0, sha256()
        async for each in self._told(watch):
            line = _line(each)
            told += 1
            hashed.update(line)
            yield line
        yield _line({"kind": END, "lines": told, "sha256": hashed.hexdigest()})

    async def _told(self, watch: Watch | None) -> AsyncGenerator[JsonObject]:
        for number, part in enumerate(self.parts):
            if number == 0:
                yield _header(part)
                yield {"kind": STATE, "scope": "user", "values": self.user_state}
                yield {"kind": STATE, "scope": "app", "values": self.app_state}
            else:
                yield {"kind": CHILD, **part.row}
            async for told in self._entries(part):
                yield told
                if watch is not None:
                    watch(1)
            async for told in self._artifacts(part):
                yield told

    async def _entries(self, part: _Part) -> AsyncGenerator[JsonObject]:
        for first in range(1, part.last_seq + 1, PAGE):
            last = min(first + PAGE - 1, part.last_seq)
            for told in await self.database.read(_entries, part, first, last):
                yield told

    async def _artifacts(self, part: _Part) -> AsyncGenerator[JsonObject]:
        after = 0
        while True:
            found = await self.database.read(_artifact_behind, part, after)
            if found is None:
                return
            after, told = found
            yield told
            for number in count():
                data = await self.database.read(read_chunk, after, number)
                if data is None:
                    break
                yield {"kind": CHUNK, "number": number, "data": base64.b64encode(data).decode()}


async def open_export(
    database: Database, key: SessionKey, *, with_app_state: bool = True
) -> SessionExport:
    """Open a session for export; SessionNotFoundError if it does not exist.

    All users share the app's state: leave it out for a caller that may not see other users' data.
    """

    async def read(connection: AsyncConnection) -> SessionExport:
        found = sa.select(sessions).where(key_is(key), sessions.c.parent_pk.is_(None))
        row = (await connection.execute(found)).one_or_none()
        if row is None:
            raise missing(SessionRef(key))
        children = await connection.execute(
            sa.select(sessions)
            .where(
                sessions.c.tenant == key.tenant,
                sessions.c.app_name == key.app_name,
                sessions.c.user_id == key.user_id,
                sessions.c.parent_pk == row.pk,
            )
            .order_by(sessions.c.pk)
        )
        parts = [await _part(connection, key, one) for one in (row, *children.all())]
        app_state, user_state = await read_states(connection, key)
        return SessionExport(
            database, tuple(parts), app_state if with_app_state else {}, user_state
        )

    return await database.read(read)


async def _part(connection: AsyncConnection, key: SessionKey, row: sa.Row[Any]) -> _Part:
    mine = SessionKey(key.tenant, key.app_name, key.user_id, row.id)
    newest = sa.select(sa.func.max(artifacts.c.pk)).where(_artifacts_of(mine))
    return _Part(
        pk=row.pk,
        key=mine,
        last_seq=row.next_seq - 1,
        last_artifact=await connection.scalar(newest) or 0,
        row=_told(row, SESSION_COLUMNS),
    )


def _header(part: _Part) -> JsonObject:
    who = {"app_name": part.key.app_name, "user_id": part.key.user_id}
    return {"kind": HEADER, "version": VERSION, **who, **part.row}


async def _entries(
    connection: AsyncConnection, part: _Part, first: int, last: int
) -> list[JsonObject]:
    """A page of messages and changes, without the marks of rewinds after the export began."""
    there = sa.select(sessions.c.pk).where(sessions.c.pk == part.pk)
    if await connection.scalar(there) is None:
        raise missing(SessionRef(part.key))
    found: list[JsonObject] = []
    for kind, table, kept in (
        (MESSAGE, messages, MESSAGE_COLUMNS),
        (CHANGE, state_changes, CHANGE_COLUMNS),
    ):
        mine = (table.c.session_pk == part.pk, table.c.seq.between(first, last))
        rows = await connection.execute(sa.select(*kept.values()).where(*mine))
        found += [{"kind": kind, **_told(row, kept)} for row in rows]
    for told in found:
        if (told["undone_by"] or 0) > part.last_seq:
            told["undone_by"] = None
    return sorted(found, key=lambda told: told["seq"])


def _artifacts_of(key: SessionKey) -> sa.ColumnElement[bool]:
    return sa.or_(of_key(key, ARTIFACT), of_key(key, EVENT_DATA))


async def _artifact_behind(
    connection: AsyncConnection, part: _Part, pk: int
) -> tuple[int, JsonObject] | None:
    """The next artifact: its pk, and its line without the bytes."""
    found = (
        # SQLAlchemy's rows reserve the name `metadata`.
        sa.select(
            artifacts.c.pk, *(one.label(f"_{name}") for name, one in ARTIFACT_COLUMNS.items())
        )
        .where(_artifacts_of(part.key))
        .where(artifacts.c.pk > pk, artifacts.c.pk <= part.last_artifact)
        .order_by(artifacts.c.pk)
        .limit(1)
    )
    row = (await connection.execute(found)).one_or_none()
    if row is None:
        return None
    told = {name: _json(getattr(row, f"_{name}")) for name in ARTIFACT_COLUMNS}
    # `kind` is the kind of the line; that of the artifact is written as `type`.
    return row.pk, {"kind": ARTIFACT_LINE, "type": told.pop("kind"), **told}


def _told(row: sa.Row[Any], kept: dict[str, sa.Column[Any]]) -> JsonObject:
    return {name: _json(getattr(row, name)) for name in kept}


def _json(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()


def _line(told: JsonObject) -> bytes:
    return json_text(told).encode() + b"\n"
