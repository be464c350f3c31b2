"""Changing tables that others are working with: one upgrade at a time, in short tries.

Whoever wants to change a table waits until nobody uses it, and all who come later wait behind. So
an upgrade waits for a moment only, lets the others pass, and tries again.
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
from lango.store.faults import states

T = TypeVar("T")
logger = logging.getLogger(__name__)

LOCK_WAIT: Final = 2.0
"""Seconds to wait for a table, less than any statement that waits behind is given up after."""
TRIES: Final = 12  # again, over about a minute
_LONGEST_PAUSE: Final = 5.0
_IDLE: Final = 60
"""Seconds after which PostgreSQL ends the transaction of an upgrade whose process fell silent."""
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


async def alone(connection: AsyncConnection) -> None:
    """Wait until no other upgrade of this database runs; until the connection ends, none will.

    It is asked for again and again, in transactions of their own: one that stood waiting for the
    lock would in turn be waited for by `create index concurrently` in the upgrade that holds it.
    """
    mine = sa.select(sa.func.pg_try_advisory_lock(_LOCK))
    said = False
    while not await connection.scalar(mine):
        await connection.commit()
        if not said:
            logger.info("Another upgrade is running; waiting for it.")
            said = True
        await asyncio.sleep(_ASK_AGAIN)
    await connection.exec_driver_sql(f"set lock_timeout = {int(LOCK_WAIT * 1000)}")
    await connection.exec_driver_sql(f"set idle_in_transaction_session_timeout = {_IDLE * 1000}")
    await connection.commit()


async def patiently(connection: AsyncConnection, work: Callable[[], Awaitable[T]]) -> T:
    """Do it, again when others had the tables, until the tries are used up.

    What the work has committed it must find done when it is tried again.
    """
    waits = delays(TRIES - 1, first=0.5, cap=_LONGEST_PAUSE)
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
    found = (await connection.execute(_HOLDERS, {"secs": LOCK_WAIT})).all()
    holders = [
        f"process {row.pid} ({row.application_name or 'without a name'}), for {row.seconds} s"
        for row in found
    ]
    who = f" Transactions that have been open for long: {'; '.join(holders)}." if holders else ""
    return (
        f"{SchemaBusyError.__doc__}{who} Let them end, or end them with `select "
        "pg_terminate_backend(…)`, and run `lango db upgrade` again: it goes on where it was."
    )
