"""Restoring a session from its export: whole, in one transaction, or not at all."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import check_key, new_id
from lango.core.memory import MAX_TEXT
from lango.core.values import JsonObject, json_text, json_value, storable_json, storable_text
from lango.errors import ImportSourceError, SessionExistsError
from lango.store.db.database import Database
from lango.store.db.retry import is_duplicate
from lango.store.db.upserts import upsert
from lango.store.files.contents import ObjectContent, SpooledContent
from lango.store.files.storage import stored
from lango.store.memory.rows import terms_of
from lango.store.schema.tables import (
    artifact_chunks,
    artifacts,
    memories,
    messages,
    sessions,
    state_changes,
)
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.load import key_is
from lango.store.transfer import export as exporting
from lango.store.transfer.bulk_import import write_state

Lines = Callable[[], Iterator[bytes]]
"""Returns the lines of an export, from the first one on each call."""
_BATCH: Final = 200
_BATCH_BYTES: Final = 4 << 20
_INT64_BOUND: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class NewNames:
    """The names of the restored session; None: as in the export."""

    tenant: str = ""
    app_name: str | None = None
    user_id: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore."""

    key: SessionKey
    public_id: str  # as in the export, unless another session has it
    entries: int
    artifacts: int
    memories: int  # entries of memory


async def restore_session(database: Database, lines: Lines, new_names: NewNames) -> RestoreResult:
    """Write the session of an export; its artifacts' bytes first, if there is an object store.

    SessionExistsError if there is one of its name, ImportSourceError if the export is incomplete
    or damaged. Of the states of the user and the app, only new keys are written, and of the user's
    memory only new entries.
    """

    objects = await _stored_artifacts(database, new_names.tenant, lines) if database.objects else {}

    async def once(connection: AsyncConnection) -> RestoreResult:
        restorer = _Restorer(connection, new_names, objects)
        for line in lines():
            await restorer.take(line)
        return restorer.restored()

    try:
        return await database.write(once, is_long=True)
    except IntegrityError as error:
        if is_duplicate(error):  # the name was free: the export repeats something
            raise _damaged("it has something twice") from error
        raise


async def _stored_artifacts(
    database: Database, tenant: str, lines: Lines
) -> dict[int, ObjectContent]:
    """Store the bytes of each artifact in the object store; where they are, by its number."""
    objects: dict[int, ObjectContent] = {}
    with SpooledContent() as spooled:
        for number, content in enumerate(_artifact_contents(lines(), spooled), start=1):
            in_store = await stored(database, tenant, content)
            if isinstance(in_store, ObjectContent):
                objects[number] = in_store
    return objects


def _artifact_contents(lines: Iterator[bytes], spooled: SpooledContent) -> Iterator[SpooledContent]:
    """Each artifact's bytes, as what is spooled until the next one is asked for."""
    in_artifact = False
    for line in lines:
        fields = _read(line)
        kind = fields.get("kind")
        if in_artifact and kind == exporting.CHUNK:
            spooled.write(_bytes(_text(fields, "data")))
            continue
        if in_artifact:
            yield spooled
            spooled.clear()
        in_artifact = kind == exporting.ARTIFACT_LINE


def _damaged(reason: str) -> ImportSourceError:
    return ImportSourceError(f"This is no sound export of a session: {reason}.")


class _Restorer:
    """Takes the lines of an export, one by one."""

    def __init__(
        self, connection: AsyncConnection, new_names: NewNames, objects: Mapping[int, ObjectContent]
    ) -> None:
        self._connection = connection
        self._new_names = new_names
        self._objects = objects  # by the number of the artifact
        self._root: tuple[SessionKey, int, str] | None = None  # with its pk and public id
        self._key = SessionKey("", "", "", "")  # of the session that the lines describe
        self._pk = 0
        self._batches = {table: list[JsonObject]() for table in (messages, state_changes, memories)}
        self._size = 0
        self._artifact: _Artifact | None = None
        self._lines, self._hash, self._is_over = 0, sha256(), False
        self._entries = self._artifacts = self._memories = 0
        self._takers = {
            exporting.HEADER: self._header,
            exporting.CHILD: self._child,
            exporting.STATE: self._state,
            exporting.MESSAGE: self._message,
            exporting.CHANGE: self._change,
            exporting.ARTIFACT_LINE: self._new_artifact,
            exporting.CHUNK: self._chunk,
            exporting.MEMORY: self._memory,
            exporting.END: self._end,
        }

    async def take(self, line: bytes) -> None:
        """Write the data of a line, now or with the next ones."""
        fields = _read(line)
        kind = fields.pop("kind", None)
        taker = self._takers.get(kind) if isinstance(kind, str) else None
        if taker is None or (self._root is None) != (kind == exporting.HEADER) or self._is_over:
            raise _damaged(f"line {self._lines + 1} does not belong there")
        if kind != exporting.CHUNK:
            self._close_artifact()
        self._size += len(line)
        await taker(fields)
        self._lines += 1
        self._hash.update(line)

    def restored(self) -> RestoreResult:
        """The result, after the last line."""
        if self._root is None or not self._is_over:
            raise _damaged("its end is missing")
        key, _, public_id = self._root
        return RestoreResult(key, public_id, self._entries, self._artifacts, self._memories)

    async def _header(self, fields: JsonObject) -> None:
        if fields.get("version") != exporting.VERSION:
            raise _damaged(f"its version is not {exporting.VERSION}, the one known here")
        new_names = self._new_names
        key = SessionKey(
            new_names.tenant,
            new_names.app_name or _text(fields, "app_name"),
            new_names.user_id or _text(fields, "user_id"),
            new_names.session_id or _text(fields, "id"),
        ).checked()
        if await self._connection.scalar(sa.select(sessions.c.pk).where(key_is(key))) is not None:
            raise SessionExistsError(
                f"{key.user_id} has a session {key.session_id} in {key.app_name} already. Delete "
                "it first, or give the new one another name."
            )
        pk, public_id = await self._insert(key, fields, None)
        self._root, self._key, self._pk = (key, pk, public_id), key, pk

    async def _child(self, fields: JsonObject) -> None:
        root, root_pk, _ = self._known()
        await self._flush()
        self._key = replace(root, session_id=_text(fields, "id")).checked()
        self._pk, _ = await self._insert(self._key, fields, root_pk)

    async def _insert(
        self, key: SessionKey, fields: JsonObject, parent_pk: int | None
    ) -> tuple[int, str]:
        row = _values(exporting.SESSION_COLUMNS, fields)
        statement = sa.select(sessions.c.pk).where(sessions.c.public_id == row["public_id"])
        if await self._connection.scalar(statement) is not None:
            row["public_id"] = new_id("ses")
        row |= {**key.of_row, "parent_pk": parent_pk}
        insert = sa.insert(sessions).values(row).returning(sessions.c.pk)
        return (await self._connection.execute(insert)).scalar_one(), row["public_id"]

    async def _state(self, fields: JsonObject) -> None:
        values, scope = fields.get("values"), fields.get("scope")
        if not isinstance(values, dict) or scope not in ("user", "app"):
            raise _damaged(f"line {self._lines + 1} has no state")
        key = self._key if scope == "user" else replace(self._key, user_id="")
        state = storable_json(cast("JsonObject", values))
        await write_state(self._connection, key, state, overwrite=False)

    async def _message(self, fields: JsonObject) -> None:
        await self._entry(messages, _values(exporting.MESSAGE_COLUMNS, fields))

    async def _change(self, fields: JsonObject) -> None:
        await self._entry(state_changes, _values(exporting.CHANGE_COLUMNS, fields))

    async def _entry(self, table: sa.Table, row: JsonObject) -> None:
        self._entries += 1
        await self._add(table, row | {"session_pk": self._pk})

    async def _memory(self, fields: JsonObject) -> None:
        row, scope = _values(exporting.MEMORY_COLUMNS, fields), fields.get("scope")
        if scope not in ("user", "session") or row["role"] not in ("user", "assistant"):
            raise _damaged(f"line {self._lines + 1} has no entry of memory")
        self._memories += 1
        key = self._key if scope == "session" else replace(self._key, session_id="")
        check_key("event id", *key.columns, row["event_id"])
        row |= {**key.of_part, "session_pk": self._pk if scope == "session" else None}
        row["text"] = row["text"][:MAX_TEXT]
        # A deleted entry has no text, and no words.
        await self._add(memories, row | {"terms": row["text"] and terms_of(key, row["text"])})

    async def _add(self, table: sa.Table, row: JsonObject) -> None:
        self._batches[table].append(row)
        if len(self._batches[table]) >= _BATCH or self._size >= _BATCH_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        for table, rows in self._batches.items():
            if rows:
                # The user may have an entry already: it stays.
                upsertion = upsert(self._connection, table).on_conflict_do_nothing()
                insert = upsertion if table is memories else sa.insert(table)
                await self._connection.execute(insert, rows)
                rows.clear()
        self._size = 0

    async def _new_artifact(self, fields: JsonObject) -> None:
        self._artifacts += 1
        row = _values(exporting.ARTIFACT_COLUMNS, {**fields, "kind": fields.get("type")})
        content = self._objects.get(self._artifacts)
        row |= {**self._key.of_part, "object_key": content and content.key}
        insert = sa.insert(artifacts).values(row).returning(artifacts.c.pk)
        pk = (await self._connection.execute(insert)).scalar_one()
        self._artifact = _Artifact(pk, row["name"], row["sha256"], in_object=content is not None)

    async def _chunk(self, fields: JsonObject) -> None:
        if self._artifact is None:
            raise _damaged(f"line {self._lines + 1} is of no artifact")
        data = _bytes(_text(fields, "data"))
        row = {"artifact_pk": self._artifact.pk, "number": self._artifact.add(data), "data": data}
        if not self._artifact.in_object:
            await self._connection.execute(sa.insert(artifact_chunks).values(row))

    def _close_artifact(self) -> None:
        if self._artifact is not None and not self._artifact.is_whole:
            raise _damaged(f"the bytes of the artifact {self._artifact.name} are not those it had")
        self._artifact = None

    async def _end(self, fields: JsonObject) -> None:
        if (fields.get("lines"), fields.get("sha256")) != (self._lines, self._hash.hexdigest()):
            raise _damaged("its lines are not those that were written")
        await self._flush()
        self._is_over = True

    def _known(self) -> tuple[SessionKey, int, str]:
        assert self._root is not None, "the first line is the header"  # noqa: S101
        return self._root


class _Artifact:
    """An artifact whose chunks are being read."""

    def __init__(self, pk: int, name: str, expected: str, *, in_object: bool) -> None:
        self.pk = pk
        self.name = name
        self.in_object = in_object  # its bytes are in the object store already
        self._expected = expected
        self._hash = sha256()
        self._chunks = 0

    def add(self, data: bytes) -> int:
        """Add the next bytes; returns the number of their chunk."""
        self._hash.update(data)
        self._chunks += 1
        return self._chunks - 1

    @property
    def is_whole(self) -> bool:
        """Whether the bytes match the exported SHA-256."""
        return self._hash.hexdigest() == self._expected


def _read(line: bytes) -> JsonObject:
    try:
        fields: Any = json_value(line.decode())
    except (ValueError, RecursionError) as error:
        raise _damaged("a line of it is not JSON") from error
    if not isinstance(fields, dict):
        raise _damaged("a line of it is no object")
    if b"\\u" in line:  # only an escape can be half a surrogate pair
        _check_letters(fields)
    return cast("JsonObject", fields)


def _check_letters(fields: Any) -> None:
    try:
        json_text(fields).encode()
    except UnicodeEncodeError as error:
        raise _damaged("it has text with invalid characters") from error


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise _damaged(f"{name} is missing")
    return value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise _damaged("a chunk is not base64") from error


def _values(columns: Mapping[str, sa.Column[Any]], fields: Mapping[str, Any]) -> JsonObject:
    """The columns of a row; ImportSourceError if a value has the wrong type."""
    return {name: _value(column, fields.get(name)) for name, column in columns.items()}


def _value(column: sa.Column[Any], value: Any) -> Any:
    if value is None and column.nullable:
        return None
    kind = column.type
    if isinstance(kind, sa.DateTime):
        return _time(column.name, value)
    if isinstance(kind, sa.Integer | sa.BigInteger):
        fits = type(value) is int and -_INT64_BOUND <= value < _INT64_BOUND
    else:
        fits = isinstance(value, _TYPES.get(type(kind), object))
    if not fits:
        raise _damaged(f"{column.name} is not what it should be")
    return storable_text(value) if isinstance(value, str) else value


def _time(name: str, value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise _damaged(f"{name} is no time") from error


_TYPES: Final[Mapping[type[Any], type[Any]]] = {sa.Text: str, sa.Double: float}
