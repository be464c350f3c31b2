"""Schema upgrades: Alembic inside the wheel, guarded by a lock, never at request time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateSchema

from lango.errors import SchemaError
from lango.store.db.connection_errors import in_words
from lango.store.db.engines import (
    close_engine,
    create_engine,
    is_sqlite,
    pooled_url,
    session_url,
    store_url,
)
from lango.store.schema.revisions import OURS, VERSION_TABLE, Revisions
from lango.store.schema.tables import metadata
from lango.store.schema.upgrade import hold_upgrade_lock, retry_while_locked

T = TypeVar("T")

carried: Revisions = OURS
"""The migrations of this process; a test may replace them by those of a newer version."""
_HOW: Final = "Run `lango db upgrade`, with the `--config` or `--url` of this database."
_TOO_OLD: Final = (
    "from before lango's first release, and cannot be upgraded. Use a new database; to keep "
    "sessions, run `lango sessions export` with the lango that made them, then `lango sessions "
    "import`."
)


def head() -> str:
    """The revision this version of lango works with."""
    return carried.head


def _current(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return _noted(connection, "version_num")


def _noted(connection: sa.Connection, column_name: str) -> str | None:
    """A column of the one row in which Alembic and our migrations record the schema."""
    column = sa.column(column_name, sa.Text)
    return connection.scalar(sa.select(column).select_from(sa.table(VERSION_TABLE)))


def _is_newer(connection: sa.Connection, revision: str) -> bool:
    """Whether a newer lango made the tables; SchemaError if this version cannot use them."""
    if carried.knows(revision):
        return False
    if carried.is_before_first(revision):
        raise SchemaError(f"The database is at schema {revision}, {_TOO_OLD}")
    # The oldest schema whose code works with the tables, as the last upgrade recorded it.
    if carried.knows(_noted(connection, "oldest_code")):
        return True
    raise SchemaError(
        f"The database is at schema {revision}, which this version of lango does not know and "
        "cannot work with: a newer lango upgraded it. Install that version here too."
    )


def _refuse_foreign_tables(connection: sa.Connection) -> None:
    """Refuse tables of another system with our names: most likely ADK's own."""
    names = sorted(metadata.tables.keys() & sa.inspect(connection).get_table_names())
    if names:
        raise SchemaError(
            f"The database has tables of another system named {', '.join(names)} (ADK's?). Use "
            "another database, or on PostgreSQL a schema of lango's own: --schema lango."
        )


def _upgrade(connection: sa.Connection, schema: str | None = None) -> str:
    """Upgrade the tables; on SQLite in one transaction, which the file's lock guards."""
    if schema:
        connection.execute(CreateSchema(schema, if_not_exists=True))
    revision = _current(connection)
    if revision is None:
        _refuse_foreign_tables(connection)
    elif _is_newer(connection, revision):
        return revision  # this version was restored after a newer one
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.commit()  # Alembic makes a transaction of each migration if it finds none
    command.upgrade(carried.config(connection), "head")
    _require_tables(connection)
    return head()


def _require_fitting(connection: sa.Connection) -> str:
    revision = _current(connection)
    if revision is None:
        raise SchemaError(f"The database has no lango tables yet. {_HOW}")
    if not _is_newer(connection, revision) and revision != head():
        raise SchemaError(
            f"The database is at schema {revision}, this lango needs {head()}. {_HOW}"
        )
    _require_tables(connection)
    return revision


def _require_tables(connection: sa.Connection) -> None:
    """Refuse a database that a version from before the first release made: it may lack tables."""
    missing = sorted(metadata.tables.keys() - sa.inspect(connection).get_table_names())
    if missing:
        lacks = ", ".join(missing)
        raise SchemaError(f"The database lacks the tables {lacks}: it is {_TOO_OLD}")


def _ensure(connection: sa.Connection) -> None:
    if _current(connection) is None and not sa.inspect(connection).get_table_names():
        _upgrade(connection)
    _require_fitting(connection)


async def ensure(engine: AsyncEngine, *, create: bool) -> None:
    """Refuse a database whose tables do not fit; `create` gives an empty one its tables."""
    if create:
        async with engine.begin() as connection:
            await connection.run_sync(_ensure)
    else:
        async with engine.connect() as connection:
            await connection.run_sync(_require_fitting)


def _checked(url: str) -> sa.URL:
    return pooled_url(store_url(url), pooled=False, direct_url=None)


@asynccontextmanager
async def _engine(url: str, schema: str | None) -> AsyncGenerator[AsyncEngine]:
    options: dict[str, Any] = {"schema": schema, "statement_timeout": 0.0}
    parsed = _checked(url)
    if is_sqlite(parsed):
        options.pop("statement_timeout")
    engine = create_engine(parsed, **options)
    try:
        with in_words(url):
            yield engine
    finally:
        await close_engine(engine)


async def _inspect(url: str, schema: str | None, look: Callable[[sa.Connection], T]) -> T:
    async with _engine(url, schema) as engine, engine.begin() as connection:
        return await connection.run_sync(look)


async def upgrade(url: str, schema: str | None = None) -> str:
    """Upgrade the database to this version's schema; returns its revision.

    On PostgreSQL each migration is a transaction of its own. A newer schema that this version can
    work with is left as it is.
    """
    work = partial(_upgrade, schema=schema)
    if is_sqlite(store_url(url)):
        return await _inspect(url, schema, work)
    session = session_url(_checked(url))
    if session is None:
        raise SchemaError(
            "An upgrade needs a connection of its own, which a pooler in transaction mode does not "
            "give. Set `store.direct_url` to the URL of the database itself, or run `lango db "
            "upgrade --url …` with it."
        )
    direct = session.render_as_string(hide_password=False)
    async with _engine(direct, schema) as engine, engine.connect() as connection:
        await hold_upgrade_lock(connection)
        return await retry_while_locked(connection, lambda: connection.run_sync(work))


async def check(url: str, schema: str | None = None) -> str:
    """The revision of the database; SchemaError if this version cannot use its tables."""
    return await _inspect(url, schema, _require_fitting)


async def current(url: str, schema: str | None = None) -> str | None:
    """The revision of the database; None if it has no lango tables."""
    return await _inspect(url, schema, _current)
