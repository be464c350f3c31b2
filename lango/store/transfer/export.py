"""A session as JSON Lines: all that is needed to restore it in another database.

The lines, each an object with its `kind`: the header `lango.session` (the session's row), `state`
(of the user and the app), `memory` of the scope `user` (entries that belong to no session),
`message` and `change` (its entries, in order, undone ones too), `artifact` with its `chunk`s of
base64, `memory` of the scope `session`, then the same from `child` on for each session of an agent
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
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import JsonObject, json_text
from lango.store.db.database import Database
from lango.store.files.rows import ARTIFACT, EVENT_DATA, of_key
from lango.store.files.storage import chunks
from lango.store.schema.tables import artifacts, memories, messages, sessions, state_changes
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
MEMORY: Final = "memory"
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
ARTIFACT_COLUMNS: Final = columns(
    artifacts, "pk", "tenant", "app_name", "user_id", "session_id", "object_key"
)
# The words of an entry begin with its owner: the restore makes them anew, and a worker the rest.
MEMORY_COLUMNS: Final = columns(
    memories,
    *("pk", "tenant", "app_name", "user_id", "session_pk", "session_id", "terms"),
    *("embedding", "embedding_model", "embedding_claimed"),
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A session, or a child of it, as it was when the export began."""

    pk: int
    key: SessionKey
    last_seq: int
    last_artifact: int
    last_memory: int
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
        line_count, hashed = 0, sha256()
        async for fields in self._line_fields(watch):
            line = _line(fields)
            line_count += 1
            hashed.update(line)
            yield line
        yield _line({"kind": END, "lines": line_count, "sha256": hashed.hexdigest()})

    async def _line_fields(self, watch: Watch | None) -> AsyncGenerator[JsonObject]:
        for number, part in enumerate(self.parts):
            if number == 0:
                yield _header(part)
                yield {"kind": STATE, "scope": "user", "values": self.user_state}
                yield {"kind": STATE, "scope": "app", "values": self.app_state}
                async for fields in self._memories(part, "user"):
                    yield fields
            else:
                yield {"kind": CHILD, **part.row}
            async for fields in self._entries(part):
                yield fields
                if watch is not None:
                    watch(1)
            async for fields in self._artifacts(part):
                yield fields
            async for fields in self._memories(part, "session"):
                yield fields

    async def _entries(self, part: _Part) -> AsyncGenerator[JsonObject]:
        for first in range(1, part.last_seq + 1, PAGE):
            last = min(first + PAGE - 1, part.last_seq)
            for entry in await self.database.read(_entries, part, first, last):
                yield entry

    async def _artifacts(self, part: _Part) -> AsyncGenerator[JsonObject]:
        after = 0
        while True:
            artifact = await self.database.read(_artifact_after, part, after)
            if artifact is None:
                return
            row, fields = artifact
            after, number = row.pk, 0
            yield fields
            async for data in chunks(self.database, row.pk, row.object_key, 0, row.size):
                yield {"kind": CHUNK, "number": number, "data": base64.b64encode(data).decode()}
                number += 1

    async def _memories(
        self, part: _Part, scope: Literal["user", "session"]
    ) -> AsyncGenerator[JsonObject]:
        after = 0
        while page := await self.database.read(_memories_after, part, scope, after):
            for after, fields in page:  # noqa: B007 - the next page begins after the last one
                yield {"kind": MEMORY, "scope": scope, **fields}


async def open_export(
    database: Database, key: SessionKey, *, with_app_state: bool = True
) -> SessionExport:
    """Open a session for export; SessionNotFoundError if it does not exist.

    All users share the app's state: leave it out for a caller that may not see other users' data.
    """

    async def read(connection: AsyncConnection) -> SessionExport:
        statement = sa.select(sessions).where(key_is(key), sessions.c.parent_pk.is_(None))
        row = (await connection.execute(statement)).one_or_none()
        if row is None:
            raise missing(SessionRef(key))
        children = await connection.execute(
            sa.select(sessions)
            .where(*(sessions.c[name] == value for name, value in key.of_user.items()))
            .where(sessions.c.parent_pk == row.pk)
            .order_by(sessions.c.pk)
        )
        parts = [
            await _part(connection, key, session_row) for session_row in (row, *children.all())
        ]
        app_state, user_state = await read_states(connection, key)
        return SessionExport(
            database, tuple(parts), app_state if with_app_state else {}, user_state
        )

    return await database.read(read)


async def _part(connection: AsyncConnection, key: SessionKey, row: sa.Row[Any]) -> _Part:
    session_key = SessionKey(key.tenant, key.app_name, key.user_id, row.id)
    newest = sa.select(sa.func.max(artifacts.c.pk)).where(_artifacts_of(session_key))
    return _Part(
        pk=row.pk,
        key=session_key,
        last_seq=row.next_seq - 1,
        last_artifact=await connection.scalar(newest) or 0,
        last_memory=await connection.scalar(sa.select(sa.func.max(memories.c.pk))) or 0,
        row=_row_fields(row, SESSION_COLUMNS),
    )


def _header(part: _Part) -> JsonObject:
    owner = {"app_name": part.key.app_name, "user_id": part.key.user_id}
    return {"kind": HEADER, "version": VERSION, **owner, **part.row}


async def _entries(
    connection: AsyncConnection, part: _Part, first: int, last: int
) -> list[JsonObject]:
    """A page of messages and changes, without the marks of rewinds after the export began."""
    statement = sa.select(sessions.c.pk).where(sessions.c.pk == part.pk)
    if await connection.scalar(statement) is None:
        raise missing(SessionRef(part.key))
    entries: list[JsonObject] = []
    for kind, table, exported in (
        (MESSAGE, messages, MESSAGE_COLUMNS),
        (CHANGE, state_changes, CHANGE_COLUMNS),
    ):
        of_page = (table.c.session_pk == part.pk, table.c.seq.between(first, last))
        rows = await connection.execute(sa.select(*exported.values()).where(*of_page))
        entries += [{"kind": kind, **_row_fields(row, exported)} for row in rows]
    for entry in entries:
        if (entry["undone_by"] or 0) > part.last_seq:
            entry["undone_by"] = None
    return sorted(entries, key=lambda entry: entry["seq"])


def _artifacts_of(key: SessionKey) -> sa.ColumnElement[bool]:
    return sa.or_(of_key(key, ARTIFACT), of_key(key, EVENT_DATA))


async def _artifact_after(
    connection: AsyncConnection, part: _Part, pk: int
) -> tuple[sa.Row[Any], JsonObject] | None:
    """The next artifact: where its bytes are, and its line without them."""
    statement = (
        # SQLAlchemy's rows reserve the name `metadata`.
        sa.select(
            *(artifacts.c[name] for name in ("pk", "size", "object_key")),
            *(column.label(f"_{name}") for name, column in ARTIFACT_COLUMNS.items()),
        )
        .where(_artifacts_of(part.key))
        .where(artifacts.c.pk > pk, artifacts.c.pk <= part.last_artifact)
        .order_by(artifacts.c.pk)
        .limit(1)
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    fields = {name: _json(getattr(row, f"_{name}")) for name in ARTIFACT_COLUMNS}
    # `kind` is the kind of the line; that of the artifact is written as `type`.
    return row, {"kind": ARTIFACT_LINE, "type": fields.pop("kind"), **fields}


async def _memories_after(
    connection: AsyncConnection, part: _Part, scope: str, pk: int
) -> list[tuple[int, JsonObject]]:
    """The next entries of a session, or of its user, by their numbers.

    Deleted ones too: their messages must not join the memory again.
    """
    conditions = [memories.c.session_pk == part.pk]
    if scope == "user":
        of_user = part.key.of_user | {"session_id": ""}
        conditions = [memories.c[name] == value for name, value in of_user.items()]
    conditions.append(memories.c.pk.between(pk + 1, part.last_memory))
    statement = sa.select(memories.c.pk, *MEMORY_COLUMNS.values()).where(*conditions)
    rows = (await connection.execute(statement.order_by(memories.c.pk).limit(PAGE))).mappings()
    return [(row["pk"], {name: row[name] for name in MEMORY_COLUMNS}) for row in rows]


def _row_fields(row: sa.Row[Any], exported: dict[str, sa.Column[Any]]) -> JsonObject:
    return {name: _json(getattr(row, name)) for name in exported}


def _json(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()


def _line(fields: JsonObject) -> bytes:
    return json_text(fields).encode() + b"\n"
