"""Schema upgrades: Alembic inside the wheel, guarded by a lock, never at request time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateSchema

from lango.errors import SchemaError
from lango.store.connecting import in_words
from lango.store.engines import create_engine, store_url
from lango.store.tables import metadata

T = TypeVar("T")

VERSION_TABLE: Final = "lango_schema_version"
_LOCK: Final = 0x6C616E676F  # "lango"
_HOW: Final = "Run `lango db upgrade --url …` (docs/how-to/upgrading.md)."


def _config(connection: sa.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", "lango:store/migrations")
    config.attributes["connection"] = connection
    return config


def head() -> str:
    """The revision this version of lango works with."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:
        raise SchemaError("This installation of lango carries no migrations: install it again.")
    return revision


def _known() -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _current(connection: sa.Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def _upgrade(connection: sa.Connection, schema: str | None = None) -> str:
    if connection.dialect.name == "postgresql":
        # Two deploys may upgrade at once: the second waits, then finds nothing to do.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    if schema:
        connection.execute(CreateSchema(schema, if_not_exists=True))
    revision = _current(connection)
    _refuse_unknown(revision)
    if revision is None:
        _refuse_foreign_tables(connection)
    command.upgrade(_config(connection), "head")
    return head()


def _refuse_unknown(revision: str | None) -> None:
    if revision is not None and revision not in _known():
        raise SchemaError(
            f"The database is at schema {revision}, which this version of lango does not know: "
            "a newer lango upgraded it. Install that version here too."
        )


def _refuse_foreign_tables(connection: sa.Connection) -> None:
    """Tables that have our names and are not ours: most likely ADK's own."""
    taken = sorted(metadata.tables.keys() & sa.inspect(connection).get_table_names())
    if taken:
        raise SchemaError(
            f"The database has tables of another system named {', '.join(taken)} (ADK's?). Use "
            "another database, or on PostgreSQL a schema of lango's own: --schema lango."
        )


def _require_head(connection: sa.Connection) -> str:
    revision = _current(connection)
    _refuse_unknown(revision)
    if revision is None:
        raise SchemaError(f"The database has no lango tables yet. {_HOW}")
    if revision != head():
        raise SchemaError(
            f"The database is at schema {revision}, this lango needs {head()}. {_HOW}"
        )
    return revision


def _ensure(connection: sa.Connection) -> None:
    if _current(connection) is None and not sa.inspect(connection).get_table_names():
        _upgrade(connection)
    _require_head(connection)


async def ensure(engine: AsyncEngine, *, create: bool) -> None:
    """Refuse a database whose schema is not ours; `create` gives an empty one its tables."""
    if create:
        async with engine.begin() as connection:
            await connection.run_sync(_ensure)
    else:
        async with engine.connect() as connection:
            await connection.run_sync(_require_head)


async def _with_engine(url: str, schema: str | None, work: Callable[[sa.Connection], T]) -> T:
    options: dict[str, Any] = {"schema": schema, "statement_timeout": 0.0}
    parsed = store_url(url)
    if parsed.get_backend_name() == "sqlite":
        options.pop("statement_timeout")
    engine = create_engine(parsed, **options)
    try:
        with in_words(url):
            async with engine.begin() as connection:
                return await connection.run_sync(work)
    finally:
        await engine.dispose()


async def upgrade(url: str, schema: str | None = None) -> str:
    """Bring the database to this version's schema; the revision it has then."""
    return await _with_engine(url, schema, partial(_upgrade, schema=schema))


async def check(url: str, schema: str | None = None) -> str:
    """The revision, if the database has exactly the schema this version needs."""
    return await _with_engine(url, schema, _require_head)


async def current(url: str, schema: str | None = None) -> str | None:
    """The revision the database is at; None without tables of ours."""
    return await _with_engine(url, schema, _current)
