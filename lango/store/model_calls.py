"""The records of model calls, and the prompts they shared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.model_calls import Attempt, ModelCall, PromptPart
from lango.core.streams import Usage
from lango.core.values import JsonObject, storable_text
from lango.store import prompt_parts
from lango.store.clock import seconds
from lango.store.database import Database
from lango.store.entries import SessionKey, readable_time
from lango.store.listing import check_limit
from lango.store.loading import key_is
from lango.store.prompt_parts import ELSEWHERE, PartLink
from lango.store.tables import model_calls, sessions, turns
from lango.store.upserts import upsert

_MOST_KNOWN_PARTS: Final = 4_096


@dataclass(frozen=True, slots=True)
class StoredModelCall:
    """One row: the record without its texts, which `prompt_part` has under their hashes."""

    pk: int
    call: ModelCall
    system_hash: str | None
    tools_hash: str | None


class ModelCallStore:
    """Model calls in the session store's database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Parts that a session has sent already are not sent again, however many calls name them:
        # as long as the session is there, its link keeps the part.
        self._known_parts: OrderedDict[PartLink, None] = OrderedDict()

    async def add(self, tenant: str, records: Sequence[ModelCall]) -> None:
        """Write records, each once however often it is given.

        A record that knows its session is dropped if that was deleted, even if another session
        has its name now.
        """
        if not records:
            return

        async def write(connection: AsyncConnection) -> Iterable[PartLink]:
            kept = await _with_sessions(connection, tenant, records)
            if not kept:
                return ()
            rows = [_row(tenant, record, pk) for record, pk in kept]
            await connection.execute(upsert(connection, model_calls).on_conflict_do_nothing(), rows)
            parts = {
                PartLink(pk or ELSEWHERE, tenant, part.hash): (kind, part.text)
                for record, pk in kept
                for kind, part in _parts(record)
            }
            new = {link: text for link, text in parts.items() if link not in self._known_parts}
            if new:
                await prompt_parts.add(connection, new)
            return new

        self._remember(await self._database.change(write))

    def _remember(self, links: Iterable[PartLink]) -> None:
        for link in links:
            self._known_parts[link] = None
        while len(self._known_parts) > _MOST_KNOWN_PARTS:
            self._known_parts.popitem(last=False)

    async def of_session(
        self, key: SessionKey, *, before: int | None = None, limit: int = 50
    ) -> list[StoredModelCall]:
        """A page of a session's calls, the newest first; `before` is the pk of the last one seen.

        The session need not be one of this database's: its records are here all the same.
        """
        check_limit(limit)

        async def read(connection: AsyncConnection) -> list[StoredModelCall]:
            found = sa.select(model_calls).where(await _of(connection, key))
            if before is not None:
                found = found.where(model_calls.c.pk < before)
            rows = await connection.execute(found.order_by(model_calls.c.pk.desc()).limit(limit))
            return [_stored(row) for row in rows]

        return await self._database.look(read)

    async def attempts(self, key: SessionKey, call: str) -> list[StoredModelCall]:
        """The attempts of one call of a session, in order; none if it has no such call."""

        async def read(connection: AsyncConnection) -> list[StoredModelCall]:
            found = sa.select(model_calls).where(
                await _of(connection, key), model_calls.c.call_id == storable_text(call)
            )
            rows = await connection.execute(found.order_by(model_calls.c.pk))
            return [_stored(row) for row in rows]

        return await self._database.look(read)

    async def cost_of_key(self, tenant: str, key_id: str, since: datetime) -> float:
        """US dollars that the turns of an API key have cost; what has no known price, nothing."""
        of_key = sa.exists().where(
            turns.c.key_id == key_id,
            sa.or_(turns.c.ended.is_(None), turns.c.ended >= since),
            turns.c.session_pk == model_calls.c.session_pk,
            turns.c.invocation_id == model_calls.c.turn,
        )
        cost = sa.select(sa.func.sum(model_calls.c.price)).where(
            model_calls.c.tenant == tenant, model_calls.c.started >= since, of_key
        )
        return await self._database.look(lambda connection: connection.scalar(cost)) or 0.0

    async def prompt_part(self, tenant: str, hashed: str) -> str | None:
        """The text with this hash, as far as the tenant has sent it to a model."""
        return await self._database.look(
            lambda connection: prompt_parts.read(connection, tenant, hashed)
        )


async def calls_of_turn(
    connection: AsyncConnection, session_pk: int, turn: str, limit: int
) -> list[ModelCall]:
    """The first calls of an invocation, those of agents that its tools ran among them."""
    mine = (model_calls.c.session_pk == session_pk, model_calls.c.turn == turn)
    found = sa.select(model_calls).where(*mine).order_by(model_calls.c.pk).limit(limit)
    return [_stored(row).call for row in await connection.execute(found)]


def _parts(record: ModelCall) -> Iterator[tuple[str, PromptPart]]:
    if record.system is not None:
        yield "system", record.system
    if record.tools is not None:
        yield "tools", record.tools


def _key(tenant: str, record: ModelCall) -> SessionKey:
    """The session of a record; empty names where nobody knows it."""
    app_name, user_id, session_id = map(storable_text, record.session or ("", "", ""))
    return SessionKey(tenant, app_name, user_id, session_id)


async def _with_sessions(
    connection: AsyncConnection, tenant: str, records: Sequence[ModelCall]
) -> list[tuple[ModelCall, int | None]]:
    """Each record with its session's key, but for those whose session was deleted.

    The sessions are held until the records are in: a delete waits, an append does not.
    """
    pks = {record.session_pk for record in records} - {None}
    held = await _held(connection, sessions.c.pk.in_(pks), tenant) if pks else set[int]()
    named = {_key(tenant, record): None for record in records if record.session_pk is None}
    found = {key: await _held(connection, key_is(key), tenant) for key in named}
    kept: list[tuple[ModelCall, int | None]] = []
    for record in records:
        if record.session_pk is None:
            kept.append((record, next(iter(found[_key(tenant, record)]), None)))
        elif record.session_pk in held:
            kept.append((record, record.session_pk))
    return kept


async def _held(
    connection: AsyncConnection, which: sa.ColumnElement[bool], tenant: str
) -> set[int]:
    found = sa.select(sessions.c.pk).where(which, sessions.c.tenant == tenant)
    locked = found.order_by(sessions.c.pk).with_for_update(read=True, key_share=True)
    return set((await connection.execute(locked)).scalars())


async def _of(connection: AsyncConnection, key: SessionKey) -> sa.ColumnElement[bool]:
    pk = await connection.scalar(sa.select(sessions.c.pk).where(key_is(key)))
    return model_calls.c.session_pk == pk if pk is not None else _elsewhere(key)


def _elsewhere(key: SessionKey) -> sa.ColumnElement[bool]:
    return sa.and_(
        model_calls.c.session_pk.is_(None),
        model_calls.c.tenant == key.tenant,
        model_calls.c.app_name == key.app_name,
        model_calls.c.user_id == key.user_id,
        model_calls.c.session_id == key.session_id,
    )


def _row(tenant: str, record: ModelCall, session_pk: int | None) -> JsonObject:
    attempt, key, usage = record.attempt, _key(tenant, record), record.attempt.usage
    return {
        "session_pk": session_pk,
        "tenant": tenant,
        "app_name": key.app_name,
        "user_id": key.user_id,
        "session_id": key.session_id,
        "turn": storable_text(record.turn),
        "call_id": record.call,
        "number": record.number,
        "agent": storable_text(record.agent),
        "provider": storable_text(attempt.provider),
        "model": storable_text(attempt.model),
        "started": readable_time(attempt.started),
        "first_byte": _time(attempt.first_byte),
        "ended": readable_time(attempt.ended),
        "outcome": attempt.outcome,
        "error": storable_text(attempt.error),
        "request_id": storable_text(attempt.request_id),
        "estimated_tokens": record.estimated,
        "input_tokens": usage.input if usage else None,
        "cached_tokens": usage.cached if usage else None,
        "output_tokens": usage.output if usage else None,
        "reasoning_tokens": usage.reasoning if usage else None,
        "price": record.price,
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
        session_pk=row.session_pk,
    )
    return StoredModelCall(row.pk, call, row.system_hash, row.tools_hash)


def _attempt(row: sa.Row[Any]) -> Attempt:
    counted = row.input_tokens is not None
    return Attempt(
        provider=row.provider,
        model=row.model,
        started=seconds(row.started),
        ended=seconds(row.ended),
        first_byte=None if row.first_byte is None else seconds(row.first_byte),
        outcome=row.outcome,
        error=row.error,
        request_id=row.request_id,
        usage=Usage(row.input_tokens, row.output_tokens, row.cached_tokens, row.reasoning_tokens)
        if counted
        else None,
    )


async def delete_calls(connection: AsyncConnection, key: SessionKey, session_pk: int) -> None:
    """Delete the records of a locked session, and the prompt parts that no other session sent.

    Records under its name without a key go too: before keys were kept, one that was written while
    its session was deleted was left like this.
    """
    await prompt_parts.delete(connection, key.tenant, session_pk)
    for which in (model_calls.c.session_pk == session_pk, _elsewhere(key)):
        await connection.execute(sa.delete(model_calls).where(which))
