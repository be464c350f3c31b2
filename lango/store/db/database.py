"""One database: its engine, its schema check, transactions, and raw statements on PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple, cast, overload
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from lango.errors import StoreError, StoreUnavailableError
from lango.store.db.connection_errors import in_words
from lango.store.db.engines import (
    IDLE_TIMEOUT,
    POOL_TIMEOUT,
    READ_ONLY,
    STATEMENT_TIMEOUT,
    close_engine,
    create_engine,
    is_pooled,
    is_sqlite,
    pooled_url,
    quoted,
    session_url,
    store_url,
)
from lango.store.db.leases import Leases
from lango.store.db.pooler import local_settings
from lango.store.db.retry import as_lango_errors, is_locked_out, retrying
from lango.store.db.sqlite.engine import is_in_memory
from lango.store.db.sqlite.file import SqliteFile
from lango.store.db.sqlite.log import WriteAheadLog
from lango.store.db.statement import CoreTransaction, Prepared, Row, Transaction
from lango.store.db.stuck_transactions import END_SILENT
from lango.store.db.waiting import FairSemaphore, SessionQueues, acquired
from lango.store.files.objects import ObjectStore
from lango.store.schema import migrate
from lango.store.schema.tables import app_states
from lango.store.sessions.entries import SessionKey

T = TypeVar("T")
Args = TypeVarTuple("Args")
Work = Callable[[AsyncConnection, *Args], Awaitable[T]]

logger = logging.getLogger(__name__)

_IS_READ_ONLY: Final = sa.text("select current_setting('transaction_read_only')")
_PROBE: Final = {"tenant": "lango", "app_name": "lango_check_writes"}
"""Names of the row that `check_writes` writes, which no other transaction ever sees."""
POOL_SIZE: Final = 10
POOL_OVERFLOW: Final = 5


async def _refuse_read_only(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        if await connection.scalar(_IS_READ_ONLY) != "off":
            await connection.invalidate()  # a new one may reach the new primary
            raise StoreUnavailableError("The database server is read-only.")


class Database:
    """A database that opens on first use, so that it can be created before an event loop runs.

    `pool_size` connections are for turns and appends, `pool_overflow` for all other work. An
    operation that gets none in `pool_timeout` seconds is retried, then raises StoreBusyError.
    `pooled`: the URL leads to a pooler in transaction mode, `direct_url` past it. `objects` is the
    URL of an object store, which then has the bytes of files.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        pool_size: int = POOL_SIZE,
        pool_overflow: int = POOL_OVERFLOW,
        pool_timeout: float = POOL_TIMEOUT,
        pooled: bool = False,
        direct_url: str | None = None,
        objects: str | None = None,
    ) -> None:
        self.objects = None if objects is None else ObjectStore(objects)
        self.url = pooled_url(store_url(url), pooled=pooled, direct_url=direct_url)
        self.schema = schema
        self.is_sqlite = is_sqlite(self.url)
        self._pool_size = pool_size
        self._pool_overflow = pool_overflow
        self._pool_timeout = pool_timeout
        self._queues = SessionQueues(pool_timeout)
        self._engine: AsyncEngine | None = None
        self._leases: Leases | None = None
        self._file: SqliteFile | None = None  # of a database in a SQLite file
        self._opening = asyncio.Lock()
        self._closed = False
        # Tasks wait for a connection here, not at the pool, which knows no tenants.
        self._connections = FairSemaphore(self._beside_leases())

    async def open(self) -> AsyncEngine:
        """Open the engine, and check its schema once; a new SQLite file gets its tables here.

        Only this method reopens a closed database: a late operation must not do it unnoticed.
        """
        self._closed = False
        return await self._opened()

    async def _opened(self) -> AsyncEngine:
        if self._closed:
            raise StoreError("The store is closed: call `open` to use it again.")
        if self._engine is not None:
            return self._engine
        async with self._opening:
            if self._engine is None:
                log = WriteAheadLog()
                engine = create_engine(
                    self.url,
                    schema=self.schema,
                    # One more for the writer of a SQLite file, who must not wait for readers.
                    pool_size=self._pool_size + self._pool_overflow + int(self.is_sqlite),
                    pool_timeout=self._pool_timeout,
                    log=log,
                )
                try:
                    with in_words(self.url.render_as_string(hide_password=False)):
                        await migrate.ensure(engine, create=self.is_sqlite)
                except BaseException:
                    await close_engine(engine)
                    raise
                if self.is_sqlite and not self.is_in_memory:
                    self._file = SqliteFile(self.url, log, self._pool_timeout, STATEMENT_TIMEOUT)
                elif not self.is_sqlite:
                    self._leases = Leases(engine, self._pool_size, self._pool_timeout)
                self._engine = engine
        return self._engine

    async def check(self) -> None:
        """Check without a write that the schema still fits: an upgrade may have changed it.

        Raises StoreUnavailableError while the server is read-only, as after a failover.
        """
        engine = await self._opened()
        with as_lango_errors():
            async with self._slot():
                await migrate.ensure(engine, create=False)
            if not self.is_sqlite:
                await _refuse_read_only(engine)

    async def check_writes(self) -> None:
        """Raise unless the database takes a write: StoreUnavailableError if the fault may pass.

        Inserts and deletes a row in one transaction, and commits: nothing is left of it, but it
        has been on the disk. On SQLite, a transaction that is rolled back would not get there.
        """
        values = {**_PROBE, "key": uuid4().hex}  # no two processes wait for each other
        with in_words(self.url.render_as_string(hide_password=False)):
            async with self.begin() as connection:
                await connection.execute(sa.insert(app_states).values(values))
                conditions = (app_states.c[name] == value for name, value in values.items())
                await connection.execute(sa.delete(app_states).where(*conditions))

    def _beside_leases(self) -> int:
        """The number of connections for work that does not use leases."""
        if self.is_in_memory:
            return 1  # and it is in one transaction at a time
        if self.is_sqlite:
            return self._pool_size + self._pool_overflow
        return max(self._pool_overflow, 1)

    def _slot(self) -> AbstractAsyncContextManager[None]:
        """Inside, one of the engine's connections is free for this task."""
        return acquired(self._connections, self._pool_timeout)

    def queue_of(self, session: SessionKey | None) -> AbstractAsyncContextManager[None]:
        """Wait for this process's other writers to the session, before a write waits for its row.

        No more than two of them use a connection. Enter it once per operation.
        """
        if session is None or self.is_sqlite:  # a SQLite file has one writer anyway
            return nullcontext()
        return self._queues.turn_of(session)

    def twin(self) -> Database:
        """The same database with a connection of its own, for another thread and its event loop."""
        url = self.url.render_as_string(hide_password=False)
        return Database(url, schema=self.schema, pool_size=1, pool_timeout=self._pool_timeout)

    def is_same(self, other: Database | None) -> bool:
        """Whether both are one database, so that a primary key means the same in both."""
        if other is None or self.is_in_memory:
            return other is self
        return (self.url, self.schema) == (other.url, other.schema)

    @property
    def is_in_memory(self) -> bool:
        """Whether the database lives in this object alone, and has no twin."""
        return self.is_sqlite and is_in_memory(self.url)

    @property
    def is_pooled(self) -> bool:
        """Whether the URL leads to a pooler in transaction mode."""
        return is_pooled(self.url)

    @property
    def use(self) -> dict[str, tuple[int, int]]:
        """The connections of each pool that are in use, and the most that may be."""
        pools = {"other": (self._connections.used, self._connections.limit)}
        return pools if self._leases is None else {"turns": self._leases.use, **pools}

    async def missing_settings(self) -> list[str]:
        """Statements that would give a pooled database the settings that transactions set now."""
        missing = local_settings(await self._opened()).missing
        name = quoted(str(self.url.database))
        return [f"alter database {name} set {key} = {value}" for key, value in missing.items()]

    @property
    def session_url(self) -> sa.URL | None:
        """The URL for connections that keep their state; None if only a pooler's is known."""
        return session_url(self.url)

    @property
    def can_listen(self) -> bool:
        """Whether notifications of other processes can arrive."""
        return not self.is_sqlite and self.session_url is not None

    async def close(self) -> None:
        """Close every connection; `open` makes new ones."""
        self._closed = True
        async with self._opening:  # what is just being opened is closed as well
            engine, self._engine = self._engine, None
            leases, self._leases = self._leases, None
            file, self._file = self._file, None
        if leases is not None:
            await leases.close()
        if file is not None:
            await file.close()
        if engine is not None:
            await close_engine(engine)

    @overload
    async def read(self, work: Prepared, /, **values: Any) -> Sequence[Row]: ...

    @overload
    async def read(self, work: Work[*Args, T], /, *args: *Args) -> T: ...

    async def read(self, work: Any, /, *args: Any, **values: Any) -> Any:
        """Read one snapshot, and retry after a transient fault.

        `work` is a function of the connection and `args`, or a prepared statement, whose rows are
        returned: on PostgreSQL, that is one round trip. On SQLite, the statement blocks the event
        loop: what may take long is read by a function, whose statements run in a thread.
        """
        if isinstance(work, Prepared):
            return await retrying(partial(self._read_rows, work, values))
        return await retrying(partial(self._read, work, args))

    @overload
    async def write(self, work: Prepared, /, **values: Any) -> Sequence[Row]: ...

    @overload
    async def write(
        self,
        work: Work[*Args, T],
        /,
        *args: *Args,
        session: SessionKey | None = None,
        is_long: bool = False,
    ) -> T: ...

    async def write(
        self,
        work: Any,
        /,
        *args: Any,
        session: SessionKey | None = None,
        is_long: bool = False,
        **values: Any,
    ) -> Any:
        """Do work in a transaction, and retry all of it after a transient fault.

        `work` as for `read`. Few writers to `session` run at a time. Work whose statements may
        take long is done in a thread on SQLite, where others block the event loop.
        """
        if isinstance(work, Prepared):
            return await retrying(partial(self._write_rows, work, values))
        return await retrying(partial(self._write, work, args, session, is_long))

    async def transact(
        self,
        work: Callable[[Transaction, *Args], Awaitable[T]],
        /,
        *args: *Args,
        session: SessionKey | None = None,
    ) -> T:
        """`write` for work of prepared statements alone: on PostgreSQL, by a leased connection."""
        return await retrying(partial(self._transact, work, args, session))

    async def _read(self, work: Callable[..., Awaitable[T]], args: Sequence[Any]) -> T:
        async with self.snapshot() as connection:
            return await work(connection, *args)

    async def _read_rows(self, statement: Prepared, values: Mapping[str, Any]) -> Sequence[Row]:
        if self.is_sqlite:
            return await self._read_rows_of_sqlite(statement, values)
        return await (await self._leased()).find(statement, values)

    async def _write(
        self,
        work: Callable[..., Awaitable[T]],
        args: Sequence[Any],
        session: SessionKey | None,
        is_long: bool,
    ) -> T:
        async with self.begin(session, is_long=is_long) as connection:
            return await work(connection, *args)

    async def _read_rows_of_sqlite(
        self, statement: Prepared, values: Mapping[str, Any]
    ) -> Sequence[Row]:
        await asyncio.sleep(0)  # a task that reads in a loop must let the others run
        await self._opened()
        if self._file is not None:
            return self._file.find(statement, values)
        async with self.snapshot() as connection:
            return await CoreTransaction(connection).all(statement, **values)

    async def _write_rows(self, statement: Prepared, values: Mapping[str, Any]) -> Sequence[Row]:
        if self.is_sqlite:
            async with self.transaction() as transaction:
                return await transaction.all(statement, **values)
        leases = await self._leased()
        try:
            return await leases.find(statement, values)
        except Exception as error:
            await self._after(error)
            raise

    async def _transact(
        self, work: Callable[..., Awaitable[T]], args: Sequence[Any], session: SessionKey | None
    ) -> T:
        async with self.transaction(session) as transaction:
            return await work(transaction, *args)

    @asynccontextmanager
    async def begin(
        self, session: SessionKey | None = None, *, is_long: bool = False
    ) -> AsyncGenerator[AsyncConnection]:
        """One try of a `write`: a transaction that commits at the end."""
        engine, file = await self._opened(), self._file
        if file is None:
            transaction = self._begin(engine)
        else:
            transaction = file.begin_long(engine) if is_long else file.begin_short()
        try:
            with as_lango_errors():
                async with self.queue_of(session), transaction as connection:
                    yield connection
        except Exception as error:
            await self._after(error)
            raise

    @asynccontextmanager
    async def _begin(self, engine: AsyncEngine) -> AsyncGenerator[AsyncConnection]:
        async with self._slot(), engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[AsyncConnection]:
        """One try of a `read`: a read-only transaction that sees one snapshot."""
        engine = await self._opened()
        options: dict[str, Any] = dict(READ_ONLY)
        if not self.is_sqlite:
            options |= {"isolation_level": "REPEATABLE READ"}
        with as_lango_errors():
            async with self._slot(), engine.connect() as connection:
                yield await connection.execution_options(**options)

    @asynccontextmanager
    async def brief_snapshot(self) -> AsyncGenerator[Transaction]:
        """`snapshot` for a few prepared statements: on SQLite, they block the event loop."""
        await self._opened()
        if self._file is None:
            async with self.snapshot() as connection:
                yield CoreTransaction(connection)
            return
        await asyncio.sleep(0)  # a task that reads in a loop must let the others run
        async with self._file.snapshot() as transaction:
            yield transaction

    @asynccontextmanager
    async def transaction(self, session: SessionKey | None = None) -> AsyncGenerator[Transaction]:
        """One try of a `transact`: a transaction that commits at the end."""
        if self.is_sqlite:
            async with self._sqlite_transaction() as transaction:
                yield transaction
            return
        leases = await self._leased()
        try:
            async with self.queue_of(session), leases.transaction() as lease:
                yield lease
        except Exception as error:
            await self._after(error)
            raise

    @asynccontextmanager
    async def _sqlite_transaction(self) -> AsyncGenerator[Transaction]:
        await self._opened()
        if self._file is None:
            async with self.begin() as connection:
                yield CoreTransaction(connection)
            return
        async with self._file.transaction() as transaction:
            yield transaction

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """The rows of one hand-written statement, on PostgreSQL: one round trip, one try."""
        leases = await self._leased()
        try:
            return await leases.fetch(sql, *arguments)
        except Exception as error:
            await self._after(error)
            raise

    async def fetch_locked(
        self, sql: str, *arguments: Any, locking: int, session: SessionKey | None = None
    ) -> list[Any]:
        """The rows of a statement that locks before it looks, on PostgreSQL: one round trip.

        A statement that waits for a lock sees the other rows as they were before its wait. So this
        runs it twice in one transaction, both runs sent together. $1 is false in the first run,
        which locks and changes nothing, and true in the second, which sees what the transaction
        that it waited for has committed. The other arguments follow; the first run gets the first
        `locking` of them, and nulls. $1 is also the first column of what the statement returns:
        the result has the other columns, of the second run. Retried after a transient fault.
        """
        return await retrying(partial(self._fetch_locked, sql, arguments, locking, session))

    async def _fetch_locked(
        self, sql: str, arguments: Sequence[Any], locking: int, session: SessionKey | None
    ) -> list[Any]:
        leases = await self._leased()
        try:
            async with self.queue_of(session):
                return await leases.fetch_locked(sql, locking, *arguments)
        except Exception as error:
            await self._after(error)
            raise

    async def _leased(self) -> Leases:
        if self._leases is None:
            await self._opened()
        return cast(Leases, self._leases)

    async def _after(self, error: Exception) -> None:
        """After a lock timeout, end stuck transactions, so that the next try gets their rows."""
        if self._leases is None or not is_locked_out(error):
            return
        ended = await self._leases.fetch(END_SILENT, float(IDLE_TIMEOUT))
        if ended[0][0]:
            logger.warning("ended %d transactions whose process is silent", ended[0][0])
