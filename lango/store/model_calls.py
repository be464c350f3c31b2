"""The records of model calls, and the prompt parts that they share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.context.model_calls import ModelAttempt, ModelCall, PromptPart
from lango.core.failpoints import failpoint
from lango.core.ids import fitted
from lango.core.messages.streams import Usage
from lango.core.values import JsonObject, storable_text
from lango.errors import StoreBusyError
from lango.store import prompt_parts
from lango.store.db.clock import seconds, seconds_or_none
from lango.store.db.database import Database
from lango.store.db.statement import Prepared
from lango.store.db.upserts import upsert
from lango.store.prompt_parts import ELSEWHERE, PartLink
from lango.store.schema.tables import model_calls, sessions
from lango.store.sessions.entries import SessionKey, readable_time
from lango.store.sessions.listing import check_limit
from lango.store.sessions.load import key_is

_MAX_KNOWN_PARTS: Final = 4_096
_ROOM: Final = 512
"""Bytes of a name in the index of sessions that are stored elsewhere."""
_WHILE_LOCKED: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Seconds between tries for sessions that other transactions have locked, mostly briefly."""
_SETTLE: Final = Prepared(
    sa.update(model_calls).where(
        model_calls.c.call_id == sa.bindparam("of_call"),
        model_calls.c.number == sa.bindparam("of_number"),
    )
)
_Located = tuple[ModelCall, int | None]
"""A record, and the primary key of its session."""


@dataclass(frozen=True, slots=True)
class StoredModelCall:
    """One row: the record without its texts, which `prompt_part` returns by their hashes."""

    pk: int
    call: ModelCall
    system_hash: str | None
    tools_hash: str | None


class ModelCallStore:
    """Model calls in the session store's database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Parts that were written for a session are not written again, however many calls use them:
        # as long as the session exists, its link keeps the part.
        self._known_parts: OrderedDict[PartLink, None] = OrderedDict()

    async def add(self, tenant: str, records: Sequence[ModelCall]) -> None:
        """Write records (idempotent).

        A record with its session's primary key is dropped if that session was deleted, even if
        another one has its name now. StoreBusyError if a session stays locked, after the records
        of the others are written.
        """
        await self._add_all(tenant, records, parts_only=False)

    async def add_parts(self, tenant: str, records: Sequence[ModelCall]) -> None:
        """Write the prompt parts of records, unless their sessions were deleted.

        StoreBusyError as in `add`.
        """
        remaining = [
            record for record in records if not await self._add_parts_at_once(tenant, record)
        ]
        await self._add_all(tenant, remaining, parts_only=True)

    async def _add_all(
        self, tenant: str, records: Sequence[ModelCall], *, parts_only: bool
    ) -> None:
        remaining = records
        for wait in (*_WHILE_LOCKED, None):
            remaining = await self._add(tenant, remaining, parts_only=parts_only)
            if not remaining:
                return
            if wait is not None:
                await asyncio.sleep(wait)
        raise StoreBusyError(f"The sessions of {len(remaining)} model calls are locked.")

    async def _add(
        self, tenant: str, records: Sequence[ModelCall], *, parts_only: bool
    ) -> Sequence[ModelCall]:
        """Try to write records; returns those of locked sessions."""
        if not records:
            return ()
        locked: list[ModelCall] = []

        async def write(connection: AsyncConnection) -> Iterable[PartLink]:
            located, locked[:] = await _with_sessions(connection, tenant, records)
            if not located:
                return ()
            if not parts_only:
                rows = [row_of(tenant, record, pk) for record, pk in located]
                new = upsert(connection, model_calls).on_conflict_do_nothing()
                await connection.execute(new, rows)
            return await self._add_parts(connection, tenant, located)

        self._remember(await self._database.write(write))
        return locked

    async def settle(self, records: Sequence[ModelCall]) -> None:
        """Write the outcomes of calls that have a row; one that was deleted is not written again.

        Not fenced: a worker that has lost its turn has still paid for its calls.
        """
        rows = [
            {"of_call": record.call, "of_number": record.number, **_end_columns(record)}
            for record in records
        ]
        failpoint("call.settle.before")
        if len(rows) == 1:
            await self._database.write(_SETTLE, **rows[0])
        elif rows:
            await self._database.transact(lambda transaction: transaction.each(_SETTLE, rows))
        failpoint("call.settle.after")

    def has_new_parts(self, tenant: str, record: ModelCall) -> bool:
        """Whether parts of a prompt may have to be written for its session."""
        return bool(self._new_parts(tenant, [(record, record.session_pk)]))

    def _new_parts(
        self, tenant: str, located: Sequence[_Located]
    ) -> Mapping[PartLink, tuple[str, str]]:
        parts = _part_links(tenant, located)
        return {link: text for link, text in parts.items() if link not in self._known_parts}

    async def _add_parts(
        self, connection: AsyncConnection, tenant: str, located: Sequence[_Located]
    ) -> Iterable[PartLink]:
        new = self._new_parts(tenant, located)
        if new:
            await prompt_parts.add(connection, new)
        return new

    async def _add_parts_at_once(self, tenant: str, record: ModelCall) -> bool:
        """Write a record's new parts in one statement; False if that takes a transaction."""
        pk = record.session_pk
        if self._database.is_sqlite or pk is None:
            return False
        new = self._new_parts(tenant, [(record, pk)])
        if new and not await prompt_parts.add_at_once(self._database, new):
            return False
        self._remember(new)
        return True

    def _remember(self, links: Iterable[PartLink]) -> None:
        for link in links:
            self._known_parts[link] = None
        while len(self._known_parts) > _MAX_KNOWN_PARTS:
            self._known_parts.popitem(last=False)

    async def of_session(
        self, key: SessionKey, *, before: int | None = None, limit: int = 50
    ) -> list[StoredModelCall]:
        """A page of a session's calls, the newest first; `before` is the pk of the last one seen.

        The session may be stored elsewhere: its records are here all the same.
        """
        check_limit(limit)

        async def read(connection: AsyncConnection) -> list[StoredModelCall]:
            statement = sa.select(model_calls).where(await _of(connection, key))
            if before is not None:
                statement = statement.where(model_calls.c.pk < before)
            rows = await connection.execute(
                statement.order_by(model_calls.c.pk.desc()).limit(limit)
            )
            return [_stored(row) for row in rows]

        return await self._database.read(read)

    async def attempts(self, key: SessionKey, call: str) -> list[StoredModelCall]:
        """The attempts of one call of a session, in order; none if it has no such call."""

        async def read(connection: AsyncConnection) -> list[StoredModelCall]:
            statement = sa.select(model_calls).where(
                await _of(connection, key), model_calls.c.call_id == storable_text(call)
            )
            rows = await connection.execute(statement.order_by(model_calls.c.pk))
            return [_stored(row) for row in rows]

        return await self._database.read(read)

    async def prompt_part(self, tenant: str, hashed: str) -> str | None:
        """The text with this hash; None if the tenant has not sent it to a model."""
        return await self._database.read(prompt_parts.read, tenant, hashed)


async def calls_of_turn(
    connection: AsyncConnection, session_pk: int, turn: str, limit: int
) -> list[ModelCall]:
    """The first calls of an invocation, including those of agents that its tools ran."""
    of_turn = (model_calls.c.session_pk == session_pk, model_calls.c.turn == turn)
    statement = sa.select(model_calls).where(*of_turn).order_by(model_calls.c.pk).limit(limit)
    return [_stored(row).call for row in await connection.execute(statement)]


def _part_links(tenant: str, located: Iterable[_Located]) -> dict[PartLink, tuple[str, str]]:
    """The parts of records for their sessions, each with its kind and text."""
    return {
        PartLink(pk or ELSEWHERE, tenant, part.hash): (kind, part.text)
        for record, pk in located
        for kind, part in _parts(record)
    }


def _parts(record: ModelCall) -> Iterator[tuple[str, PromptPart]]:
    if record.system is not None:
        yield "system", record.system
    if record.tools is not None:
        yield "tools", record.tools


def _key(tenant: str, record: ModelCall) -> SessionKey:
    """The session of a record, with empty names if it is unknown."""
    app_name, user_id, session_id = map(storable_text, record.session or ("", "", ""))
    return SessionKey(tenant, app_name, user_id, session_id)


async def _with_sessions(
    connection: AsyncConnection, tenant: str, records: Sequence[ModelCall]
) -> tuple[list[_Located], list[ModelCall]]:
    """Each record with its session's primary key, without those whose session was deleted.

    The sessions are locked until the records are written: a delete waits, an append does not. The
    second list has the records of sessions that others have locked: the rest does not wait.
    """
    pks = {record.session_pk for record in records} - {None}
    by_pk = _SessionLocks()
    if pks:
        by_pk = await _lock_sessions(connection, sessions.c.pk.in_(pks), tenant, len(pks))
    keys = {_key(tenant, record): None for record in records if record.session_pk is None}
    by_key = {key: await _lock_sessions(connection, key_is(key), tenant, 1) for key in keys}
    located: list[_Located] = []
    locked: list[ModelCall] = []
    for record in records:
        if record.session_pk is None:
            locks = by_key[_key(tenant, record)]
            pk = next(iter(locks.pks | locks.locked), None)
        else:
            locks, pk = by_pk, record.session_pk
        if pk in locks.locked:
            locked.append(record)
        elif record.session_pk is None or pk in locks.pks:
            located.append((record, pk))
    return located, locked


@dataclass(frozen=True, slots=True)
class _SessionLocks:
    """Sessions locked against deletion by this transaction, and those that another one locks."""

    pks: frozenset[int] = frozenset()
    locked: frozenset[int] = frozenset()


async def _lock_sessions(
    connection: AsyncConnection, condition: sa.ColumnElement[bool], tenant: str, count: int
) -> _SessionLocks:
    """Lock up to `count` sessions against deletion."""
    statement = sa.select(sessions.c.pk).where(condition, sessions.c.tenant == tenant)
    lock = statement.with_for_update(read=True, key_share=True, skip_locked=True)
    pks = frozenset((await connection.execute(lock)).scalars())
    if len(pks) == count:
        return _SessionLocks(pks)
    existing = frozenset((await connection.execute(statement)).scalars())
    return _SessionLocks(pks, existing - pks)


async def _of(connection: AsyncConnection, key: SessionKey) -> sa.ColumnElement[bool]:
    pk = await connection.scalar(sa.select(sessions.c.pk).where(key_is(key)))
    return model_calls.c.session_pk == pk if pk is not None else _elsewhere(key)


def _indexed(key: SessionKey) -> SessionKey:
    """The names of a session that is stored elsewhere, shortened to fit the index."""
    fit = partial(fitted, room=_ROOM)
    return SessionKey(key.tenant, fit(key.app_name), fit(key.user_id), fit(key.session_id))


def _elsewhere(key: SessionKey) -> sa.ColumnElement[bool]:
    key = _indexed(key)
    conditions = (model_calls.c[name] == value for name, value in key.of_part.items())
    return sa.and_(model_calls.c.session_pk.is_(None), *conditions)


def row_of(tenant: str, record: ModelCall, session_pk: int | None) -> JsonObject:
    """The columns of a record."""
    attempt, key = record.attempt, _key(tenant, record)
    if session_pk is None:
        key = _indexed(key)
    return {
        **_end_columns(record),
        "session_pk": session_pk,
        **key.of_part,
        "turn": storable_text(record.turn),
        "turn_number": record.turn_number,
        "call_id": record.call,
        "number": record.number,
        "kind": record.kind,
        "agent": storable_text(record.agent),
        "provider": storable_text(attempt.provider),
        "model": storable_text(attempt.model),
        "started": readable_time(attempt.started),
        "estimated_tokens": record.estimated,
        "budget": record.budget,
        "first_seq": record.first_seq,
        "last_seq": record.last_seq,
        "sent": record.sent,
        "left_out": record.left_out,
        "shortened": list(map(storable_text, record.shortened)) or None,
        "why": record.why,
        "system_hash": record.system.hash if record.system else None,
        "tools_hash": record.tools.hash if record.tools else None,
    }


def _end_columns(record: ModelCall) -> JsonObject:
    """The columns that are known only when an attempt ends."""
    attempt, usage = record.attempt, record.attempt.usage
    return {
        "first_byte": _time(attempt.first_byte),
        "ended": readable_time(attempt.ended),
        "outcome": attempt.outcome,
        "error": storable_text(attempt.error),
        "request_id": storable_text(attempt.request_id),
        "input_tokens": usage.input if usage else None,
        "cached_tokens": usage.cached if usage else None,
        "output_tokens": usage.output if usage else None,
        "reasoning_tokens": usage.reasoning if usage else None,
        "price": record.price,
    }


def _time(moment: float | None) -> datetime | None:
    return None if moment is None else readable_time(moment)


def _stored(row: sa.Row[Any]) -> StoredModelCall:
    session = (row.app_name, row.user_id, row.session_id)
    call = ModelCall(
        attempt=_attempt(row),
        number=row.number,
        call=row.call_id,
        session=session if any(session) else (),
        turn=row.turn,
        agent=row.agent,
        budget=row.budget,
        estimated=row.estimated_tokens,
        sent=row.sent,
        left_out=row.left_out,
        shortened=tuple(row.shortened or ()),
        why=row.why,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        price=row.price,
        kind=row.kind,
        session_pk=row.session_pk,
        turn_number=row.turn_number,
    )
    return StoredModelCall(row.pk, call, row.system_hash, row.tools_hash)


def _attempt(row: sa.Row[Any]) -> ModelAttempt:
    counted = row.input_tokens is not None
    return ModelAttempt(
        provider=row.provider,
        model=row.model,
        started=seconds(row.started),
        ended=seconds(row.ended),
        first_byte=seconds_or_none(row.first_byte),
        outcome=row.outcome,
        error=row.error,
        request_id=row.request_id,
        usage=Usage(row.input_tokens, row.output_tokens, row.cached_tokens, row.reasoning_tokens)
        if counted
        else None,
    )


async def delete_calls(connection: AsyncConnection, key: SessionKey, session_pk: int) -> None:
    """Delete the records of a locked session, and the prompt parts that no other session sent.

    Records with its name and no primary key are deleted too: older versions left such a record if
    they wrote it while its session was being deleted.
    """
    await prompt_parts.delete(connection, key.tenant, session_pk)
    for condition in (model_calls.c.session_pk == session_pk, _elsewhere(key)):
        await connection.execute(sa.delete(model_calls).where(condition))
