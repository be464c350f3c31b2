"""Changing tables that are in use: one upgrade at a time, in short tries.

A change of a table waits until no transaction uses it, and all later statements wait for that
change. So an upgrade waits only briefly, lets the others pass, and retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.backoff import delays
from lango.errors import SchemaBusyError
from lango.store.db.retry import states

T = TypeVar("T")
logger = logging.getLogger(__name__)

LOCK_WAIT: Final = 2.0
"""Seconds to wait for a table's lock: less than the timeout of statements that wait after it."""
ATTEMPTS: Final = 12  # over about a minute
_MAX_PAUSE: Final = 5.0
_IDLE: Final = 60
"""Seconds after which PostgreSQL ends the transaction of an upgrade whose process hangs."""
_ASK_AGAIN: Final = 0.2
_LOCK: Final = 0x6C616E676F  # "lango"

_IN_THE_WAY: Final = {"55P03", "40P01"}  # lock not available, deadlock detected

_HOLDERS: Final = sa.text("""
select pid, application_name, extract(epoch from now() - xact_start)::int as seconds
from pg_stat_activity as holder
where datname = current_database() and pid <> pg_backend_pid()
  and xact_start < now() - make_interval(secs => :secs)
  and exists (select from pg_locks where pid = holder.pid and locktype = 'relation' and granted)
order by xact_start limit 3
""")


async def hold_upgrade_lock(connection: AsyncConnection) -> None:
    """Wait for the upgrade lock of this database, and hold it until the connection ends.

    Polls, each time in a new transaction: `create index concurrently` in the upgrade that holds
    the lock would wait for a transaction that waits for the lock.
    """
    lock = sa.select(sa.func.pg_try_advisory_lock(_LOCK))
    logged = False
    while not await connection.scalar(lock):
        await connection.commit()
        if not logged:
            logger.info("Another upgrade is running; waiting for it.")
            logged = True
        await asyncio.sleep(_ASK_AGAIN)
    await connection.exec_driver_sql(f"set lock_timeout = {int(LOCK_WAIT * 1000)}")
    await connection.exec_driver_sql(f"set idle_in_transaction_session_timeout = {_IDLE * 1000}")
    await connection.commit()


async def retry_while_locked(connection: AsyncConnection, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work, and retry while other transactions hold the tables: ATTEMPTS attempts in all.

    On a retry, the work must recognise what it has already committed.
    """
    waits = delays(ATTEMPTS - 1, first=0.5, cap=_MAX_PAUSE)
    while True:
        try:
            return await work()
        except DBAPIError as error:
            if not _IN_THE_WAY & set(states(error)):
                raise
            await connection.rollback()
            delay = next(waits, None)
            if delay is None:
                raise SchemaBusyError(await _why(connection)) from error
        logger.info("The tables are in use; trying again in %.1f s.", delay)
        await asyncio.sleep(delay)


async def _why(connection: AsyncConnection) -> str:
    rows = (await connection.execute(_HOLDERS, {"secs": LOCK_WAIT})).all()
    holders = [
        f"process {row.pid} ({row.application_name or 'without a name'}), for {row.seconds} s"
        for row in rows
    ]
    blockers = (
        f" Transactions that have been open for long: {'; '.join(holders)}." if holders else ""
    )
    return (
        f"{SchemaBusyError.__doc__}{blockers} Let them end, or end them with `select "
        "pg_terminate_backend(…)`, and run `lango db upgrade` again: it resumes where it stopped."
    )
