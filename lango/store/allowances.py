"""What a caller has used of its limits: requests per minute, concurrent turns, cost per day.

A caller is identified by its API key's id, or by an id that is derived from the user of a token.
All processes count in the same rows.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.errors import KeyLimitError
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Transaction
from lango.store.db.upserts import upsert
from lango.store.schema.tables import allowances, model_calls, turns

_MINUTE: Final = 60.0
_DAY: Final = timedelta(days=1)
RETRY_AFTER_TURN: Final = 2.0
"""Seconds until a retry: when a turn will end is unknown."""
_OPEN_TURNS: Final = Prepared(
    sa.select(sa.func.count().label("open")).where(
        turns.c.key_id == sa.bindparam("of_caller"), turns.c.ended.is_(None)
    )
)


def _unchanged(insert: Any) -> Any:
    """An insert of a caller's row, which locks the row if it is there."""
    return insert.values(caller=sa.bindparam("of_caller")).on_conflict_do_update(
        index_elements=[allowances.c.caller], set_={"caller": insert.excluded.caller}
    )


_LOCK: Final = Prepared(
    _unchanged(postgresql.insert(allowances)), on_sqlite=_unchanged(sqlite.insert(allowances))
)


class Grant(NamedTuple):
    """Requests that a caller may make."""

    requests: int
    wait: float = 0.0  # seconds until the next one passes, if there is none now


class Allowances:
    """Counts what callers use. Every operation may be repeated after a fault."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_requests(self, caller: str, allowed: int, count: int) -> Grant:
        """Count `count` of the `allowed` requests per minute, or one if fewer are left.

        This is the generic cell rate algorithm: a row has the theoretical arrival time of the next
        request, which may be a minute ahead of the clock.
        """
        every = _MINUTE / allowed

        async def once(connection: AsyncConnection) -> Grant:
            for requests in sorted({count, 1}, reverse=True):
                if await _count(connection, caller, requests * every):
                    return Grant(requests)
            delay = sa.select(allowances.c.next_request - _epoch(connection)).where(
                allowances.c.caller == caller
            )
            return Grant(0, max((await connection.scalar(delay) or 0.0) + every - _MINUTE, 0.001))

        return await self._database.write(once)

    async def open_turns(self, caller: str) -> int:
        """How many turns of a caller run or wait to run, including scheduled ones."""
        [row] = await self._database.read(_OPEN_TURNS, of_caller=caller)
        return row.open

    async def check_turns(self, caller: str, allowed: int) -> None:
        """KeyLimitError if a caller has reached its limit of open turns."""
        _check_turns(await self.open_turns(caller), allowed)

    async def spent(self, tenant: str, caller: str, since: datetime) -> float:
        """US dollars that the turns of a caller have cost since a day began.

        Calls without a known price cost nothing; calls of deleted sessions count.
        """
        of_caller = sa.exists().where(
            turns.c.key_id == caller,
            sa.or_(turns.c.ended.is_(None), turns.c.ended >= since),
            turns.c.session_pk == model_calls.c.session_pk,
            turns.c.invocation_id == model_calls.c.turn,
        )
        stored = sa.select(sa.func.sum(model_calls.c.price)).where(
            model_calls.c.tenant == tenant, model_calls.c.started >= since, of_caller
        )
        deleted = sa.select(allowances.c.deleted_cost).where(
            allowances.c.caller == caller, allowances.c.deleted_day == since.date()
        )

        async def once(connection: AsyncConnection) -> float:
            costs = [await connection.scalar(statement) for statement in (stored, deleted)]
            return sum(cost or 0.0 for cost in costs)

        return await self._database.read(once)

    async def check_cost(self, tenant: str, caller: str, allowed: float) -> None:
        """KeyLimitError if a caller has reached its cost limit of the day."""
        since = today()
        if await self.spent(tenant, caller, since) >= allowed:
            tomorrow = since + _DAY
            raise KeyLimitError(
                f"This caller may spend ${allowed:g} a day (UTC), and has.",
                limit="cost",
                retry_after=max((tomorrow - datetime.now(UTC)).total_seconds(), 1.0),
            )


async def check_open_turns(
    transaction: Transaction, caller: str | None, allowed: int | None
) -> None:
    """The same in the transaction that accepts a turn.

    Transactions for the same caller wait for each other, so together they stay within the limit.
    """
    if caller is not None and allowed is not None:
        await transaction.all(_LOCK, of_caller=caller)
        [row] = await transaction.all(_OPEN_TURNS, of_caller=caller)
        _check_turns(row.open, allowed)


def _check_turns(open_turns: int, allowed: int) -> None:
    if open_turns >= allowed:
        raise KeyLimitError(
            f"Limit of {allowed} open turns reached for this caller.",
            limit="turns",
            retry_after=RETRY_AFTER_TURN,
        )


async def keep_costs(connection: AsyncConnection, session_pk: int) -> None:
    """Record for its callers what a session has cost today, before its records are deleted."""
    day = today()
    invocations = (
        sa.select(turns.c.key_id, turns.c.invocation_id)
        .where(turns.c.session_pk == session_pk, turns.c.key_id.is_not(None))
        .distinct()
        .subquery()
    )
    costs = (
        sa.select(invocations.c.key_id, sa.func.sum(model_calls.c.price).label("cost"))
        .join(invocations, invocations.c.invocation_id == model_calls.c.turn)
        .where(model_calls.c.session_pk == session_pk, model_calls.c.started >= day)
        .group_by(invocations.c.key_id)
        .order_by(invocations.c.key_id)  # two deletes lock in one order
    )
    for row in (await connection.execute(costs)).all():
        if row.cost:
            await _keep_cost(connection, row.key_id, row.cost, day)


async def _keep_cost(connection: AsyncConnection, caller: str, cost: float, day: datetime) -> None:
    values: dict[str, Any] = {"deleted_cost": cost, "deleted_day": day.date()}
    same_day = allowances.c.deleted_day == day.date()
    before: Any = sa.case((same_day, allowances.c.deleted_cost), else_=0.0)
    await connection.execute(
        upsert(connection, allowances)
        .values(caller=caller, **values)
        .on_conflict_do_update(
            index_elements=[allowances.c.caller], set_={**values, "deleted_cost": before + cost}
        )
    )


async def _count(connection: AsyncConnection, caller: str, seconds: float) -> bool:
    """Advance the time of the next request; False if that is more than a minute from now."""
    now = _epoch(connection)
    since = sa.case((allowances.c.next_request > now, allowances.c.next_request), else_=now)
    counted = (
        upsert(connection, allowances)
        .values(caller=caller, next_request=now + seconds)
        .on_conflict_do_update(
            index_elements=[allowances.c.caller],
            set_={"next_request": since + seconds},
            where=since + seconds <= now + _MINUTE,
        )
        .returning(allowances.c.caller)
    )
    return (await connection.execute(counted)).one_or_none() is not None


def _epoch(connection: AsyncConnection) -> Any:
    """The database's time now, in seconds: the transaction may have waited for a row's lock."""
    if connection.dialect.name == "sqlite":
        return sa.literal(time.time())
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)


def today() -> datetime:
    """The start of the day (UTC) in which costs are counted."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
